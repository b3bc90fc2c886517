#!/usr/bin/env bash
# Fetches ptxas, NVIDIA's assembler for PTX, into .fixtures/tools/ (or --dir DIR), and checks size and SHA-256.
#
#   scripts/fetch-ptxas.sh [--dir DIR]
#
# It checks what backend-cuda emits, needs no GPU and no driver, and is nothing that unisonic uses or carries: it is
# NVIDIA's, under its own licence. The package is downloaded by name and unzipped, never installed. 40 MB, for x86-64
# Linux; on other machines nothing is fetched, with a line that says so.
set -euo pipefail
cd "$(dirname "$0")/.."

package=nvidia-cuda-nvcc-cu12==12.9.86
member=nvidia/cuda_nvcc/bin/ptxas
len_bytes=34931056
sha256=983b0e9283855979f42cebfd80d43f9b6e786eb84f03f7570bf941c4d3a3c461

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

dir=.fixtures/tools
while [ $# -gt 0 ]; do
    case "$1" in
    --dir) [ $# -ge 2 ] || fail "--dir needs a folder"; dir=$2; shift 2 ;;
    -h | --help) usage; exit ;;
    *) fail "unknown argument $1 (see --help)" ;;
    esac
done

is_right() {
    [ -f "$1" ] && [ "$(stat -c %s "$1")" -eq "$len_bytes" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    note "skipped: ptxas is fetched for x86-64 Linux only"
    exit
fi
if is_right "$dir/ptxas"; then
    note "  have $dir/ptxas"
    exit
fi
for tool in python3 unzip sha256sum; do
    command -v "$tool" >/dev/null || fail "$tool is needed to fetch ptxas; install it and try again"
done
python3 -m pip --version >/dev/null 2>&1 || fail "pip is needed to fetch ptxas; install python3-pip and try again"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
note "  downloading $package"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$package" >&2 ||
    fail "pip could not download $package: check the network and the package index, then run this again"
unzip -pq "$work"/*.whl "$member" >"$work/ptxas" || fail "$package: could not unpack $member"
is_right "$work/ptxas" ||
    fail "ptxas is not what was expected: $(stat -c %s "$work/ptxas") bytes (expected $len_bytes)," \
        "sha256 $(sha256sum "$work/ptxas" | cut -d' ' -f1) (expected $sha256)"
mkdir -p "$dir"
chmod +x "$work/ptxas"
# Under its name only when it is right and whole.
mv "$work/ptxas" "$dir/ptxas.part"
mv "$dir/ptxas.part" "$dir/ptxas"
note "  fetched $dir/ptxas"
