#!/usr/bin/env bash
# Makes the tiny random-weight models of tests/tools/mktiny.py in .fixtures/ and checks their SHA-256. Kept if right.
set -euo pipefail
cd "$(dirname "$0")/.."

out=.fixtures
sums=$PWD/tests/data/fixtures.sha256
venv=.venv

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }
are_right() { (cd "$out" 2>/dev/null && sha256sum --check --quiet "$sums" >/dev/null 2>&1); }

if are_right; then
    note "  have $out"
    exit
fi
# A module that imports is not enough: Debian splits ensurepip, which venv needs, into python3-venv.
if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    command -v apt-get >/dev/null || fail "needed to make the fixtures: Python 3.11 or newer with venv"
    [ "$(id -u)" -eq 0 ] || fail "needed to make the fixtures: sudo apt-get install python3 python3-venv"
    note "installing python3 python3-venv"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        python3 python3-venv ca-certificates; } >/dev/null || fail "apt-get could not install python3 and python3-venv"
fi
[ -x $venv/bin/pip ] || python3 -m venv $venv
$venv/bin/pip install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.4.6 ||
    fail "pip could not install gguf and numpy: check the network and the package index, then run this again"
rm -rf $out.part
$venv/bin/python tests/tools/mktiny.py $out.part
rm -rf $out
mv $out.part $out
are_right || fail "the fixtures in $out differ from tests/data/fixtures.sha256: $(cd $out && sha256sum --check --quiet \
    "$sums" 2>&1 | head -3)"
note "  made $out"
