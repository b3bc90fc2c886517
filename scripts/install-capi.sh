#!/usr/bin/env bash
# Installs libunisonic.so, its header and pkg-config's file below a folder: scripts/install-capi.sh PREFIX [LIBRARY]. Without LIBRARY the
# release build, which is made if need be.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 1 ] && [[ $1 = /* ]] || { echo "usage: $0 PREFIX [LIBRARY], PREFIX an absolute path" >&2; exit 2; }
prefix=$1
library=${2:-}
if [ -z "$library" ]; then
    cargo build --release --locked -p unisonic-capi
    library=${CARGO_TARGET_DIR:-target}/release/libunisonic.so
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

install -d "$prefix/lib/pkgconfig" "$prefix/include"
install -m 644 capi/include/unisonic.h "$prefix/include/unisonic.h"
# Programs ask for the name with the number of the ABI; the linker asks for the one without.
install -m 755 "$library" "$prefix/lib/libunisonic.so.$version"
ln -sf "libunisonic.so.$version" "$prefix/lib/libunisonic.so.0"
ln -sf libunisonic.so.0 "$prefix/lib/libunisonic.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" capi/unisonic.pc.in >"$prefix/lib/pkgconfig/unisonic.pc"
echo "installed in $prefix; pkg-config finds it with PKG_CONFIG_PATH=$prefix/lib/pkgconfig"
