#!/usr/bin/env bash
# Puts the source of every dependency into vendor/ and proves that it is all that a build needs: a copy of the tracked
# files and of vendor/ is built without network and without a registry cache.
#
#   scripts/vendor.sh [PROFILE=release]
#
# Afterwards: cargo --config vendor/config.toml build --frozen --release
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}

rm -rf vendor
config=$(cargo vendor --locked vendor)
# Paths in it are relative to the folder above the one with the file.
printf '%s\n' "$config" >vendor/config.toml

clean=$(mktemp -d)
trap 'rm -rf "$clean"' EXIT
mkdir "$clean/source" "$clean/cargo"
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$clean/source"
cp -r vendor "$clean/source/vendor"
cd "$clean/source"
CARGO_HOME=$clean/cargo CARGO_TARGET_DIR=$clean/target \
    cargo --config vendor/config.toml build --frozen --offline --profile "$profile"
# The cache that was empty before is still empty: nothing came from elsewhere.
if [ -e "$clean/cargo/registry/cache" ] || [ -e "$clean/cargo/git" ]; then
    printf 'error: the build took something from outside vendor/\n' >&2
    exit 1
fi
"$clean"/target/*/unisonic --version
printf 'vendor/ is complete\n'
