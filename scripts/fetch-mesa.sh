#!/usr/bin/env bash
# Fetches Mesa 26's llvmpipe out of Debian's trixie-backports into .fixtures/tools/mesa/, a folder of its own with all that it
# needs (70 MB, 360 MB unpacked): nothing of the system changes. It multiplies int8 matrices and flushes subnormals,
# which the llvmpipe of Debian 12 does not. Kept if there. Debian and x86-64 only; needs no root.
#
# Its C library is newer than Debian 12's, so that programs run with it by its own dynamic loader (tests/golden_tokens.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

out=.fixtures/tools/mesa
mirror=http://deb.debian.org/debian
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

if [ -f $out/complete ]; then
    printf '  have %s\n' $out >&2
    exit
fi
[ "$(uname -m)" = x86_64 ] || fail "Mesa is fetched for x86-64 only"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && [ -f $keyring ] || fail "Mesa comes from a Debian package"

# apt with sources, lists and a state of its own, in which nothing is installed, so that it downloads all that is needed.
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
chmod 755 "$apt"
mkdir -p "$apt"/{lists/partial,archives/partial,preferences.d}
: >"$apt/status"
printf 'deb [signed-by=%s] %s %s main\n' $keyring $mirror trixie $keyring $mirror trixie-backports >"$apt/sources.list"
options=(-qq -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
    -o Dir::Cache="$apt" -o Dir::Cache::Archives="$apt/archives" -o Dir::Etc::SourceList="$apt/sources.list"
    -o Dir::Etc::SourceParts=- -o Dir::Etc::PreferencesParts="$apt/preferences.d" -o APT::Sandbox::User=
    -o APT::Install-Recommends=false -o Debug::NoLocking=1)
apt-get "${options[@]}" update >/dev/null || fail "apt-get could not read trixie-backports"
apt-get "${options[@]}" --download-only -y -t trixie-backports install mesa-vulkan-drivers libvulkan1 libgcc-s1 >/dev/null ||
    fail "apt-get could not download mesa-vulkan-drivers of trixie-backports"

rm -rf $out
mkdir -p $out
for package in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C $out
done
[ -f $out/usr/share/vulkan/icd.d/lvp_icd.json ] || fail "mesa-vulkan-drivers has no llvmpipe"
: >$out/complete
printf '  fetched %s\n' $out >&2
