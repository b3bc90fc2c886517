#!/usr/bin/env bash
# Fetches SwiftShader, a Vulkan driver that needs no GPU, out of Debian's chromium-common into .fixtures/tools/swiftshader/.
# Kept if there. Debian and x86-64 or arm64 only; needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."

out=.fixtures/tools/swiftshader
manifest=$out/vk_swiftshader_icd.json

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

if [ -f $manifest ]; then
    printf '  have %s\n' $out >&2
    exit
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "SwiftShader comes from a Debian package"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
# apt drops to a user of its own, who has to be able to write there.
chmod 777 "$download"
(cd "$download" && apt-get download -qq chromium-common >/dev/null 2>&1) ||
    fail "apt-get could not download chromium-common; run apt-get update, then this again"
dpkg-deb --fsys-tarfile "$download"/chromium-common_*.deb |
    tar -x -C "$download" --wildcards --no-anchored '*vk_swiftshader*'
mkdir -p $out
# The manifest last: it says that all is there.
find "$download" -name libvk_swiftshader.so -exec mv {} $out/ \;
find "$download" -name vk_swiftshader_icd.json -exec mv {} $out/ \;
[ -f $manifest ] || fail "chromium-common has no SwiftShader"
printf '  fetched %s\n' $out >&2
