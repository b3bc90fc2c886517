#!/usr/bin/env bash
# Builds the release of libunisonic.so twice, from two copies of the sources in different folders, and compares SHA-256. Takes two whole
# builds, so it is no part of what CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Where sources and dependencies lie is no part of a release.
home=${CARGO_HOME:-$HOME/.cargo}

build() {
    local copy=$work/$1
    mkdir -p "$copy"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$copy" 2>/dev/null || true
    (
        cd "$copy"
        RUSTFLAGS="--remap-path-prefix=$copy=/unisonic --remap-path-prefix=$home=/cargo" \
            CARGO_TARGET_DIR=$copy/target CARGO_INCREMENTAL=0 cargo build --release --locked --quiet -p unisonic-capi
    )
    sha256sum "$copy/target/release/libunisonic.so" | cut -d ' ' -f 1
}

first=$(build one)
second=$(build elsewhere/two)
echo "first:  $first"
echo "second: $second"
[ "$first" = "$second" ] || { echo "error: two builds of libunisonic.so differ" >&2; exit 1; }
echo "equal"
