#!/usr/bin/env bash
# Checks dependencies against deny.toml: licences, sources, wildcards. With `advisories` also known holes and yanked
# versions, for which the advisory database is fetched.
#
#   scripts/deny.sh [advisories]
#
# Needs cargo-deny 0.20 or newer: `cargo install --locked cargo-deny`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Whatever the build needs is in the registry cache afterwards, so that the check itself needs no network.
cargo fetch --locked
case "${1-}" in
'') cargo deny --offline --workspace --log-level error check bans licenses sources ;;
advisories) cargo deny --workspace --log-level error check ;;
*) printf 'usage: scripts/deny.sh [advisories]\n' >&2; exit 2 ;;
esac
