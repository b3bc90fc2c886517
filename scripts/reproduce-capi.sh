#!/usr/bin/env bash
# Builds libunisonic.so twice, from two copies of the sources in different folders, and compares SHA-256. Takes two whole builds, so
# it is no part of what CI runs. scripts/reproduce-capi.sh [PROFILE], which is release unless it is given.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-release}
case $profile in dev) folder=debug ;; *) folder=$profile ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Where sources and dependencies lie is no part of a release.
home=${CARGO_HOME:-$HOME/.cargo}

# Both before the first build: what is edited meanwhile is in neither.
for copy in one elsewhere/two; do
    mkdir -p "$work/$copy"
    git ls-files -z | xargs -0 cp --parents --no-dereference -t "$work/$copy"
done

# Prints the digest of the library of a copy.
build() {
    local copy=$work/$1
    (
        cd "$copy"
        RUSTFLAGS="--remap-path-prefix=$copy=/unisonic --remap-path-prefix=$home=/cargo" CARGO_TARGET_DIR=$copy/target \
            CARGO_INCREMENTAL=0 cargo build --profile "$profile" --locked --quiet -p unisonic-capi
    )
    sha256sum "$copy/target/$folder/libunisonic.so" | cut -d ' ' -f 1
}

first=$(build one)
second=$(build elsewhere/two)
echo "first:  $first"
echo "second: $second"
[ "$first" = "$second" ] || { echo "error: two builds of libunisonic.so differ" >&2; exit 1; }
echo "equal"
