#!/usr/bin/env bash
# Makes the tiny random-weight models of tests/tools/mktiny.py in .fixtures/ and checks their SHA-256. Kept if right.
set -euo pipefail
cd "$(dirname "$0")/.."

out=.fixtures
sums=$PWD/tests/data/fixtures.sha256

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }
are_right() { (cd "$out" 2>/dev/null && sha256sum --check --quiet "$sums" >/dev/null 2>&1); }

if are_right; then
    note "  have $out"
    exit
fi
scripts/venv.sh "make the fixtures" gguf==0.19.0 numpy==2.4.6
rm -rf $out.part
.venv/bin/python tests/tools/mktiny.py $out.part
# Beside the vocabularies, which are not made here.
mkdir -p $out
rm -f $out/*.gguf
mv $out.part/* $out/
rmdir $out.part
are_right || fail "the fixtures in $out differ from tests/data/fixtures.sha256: $(cd $out && sha256sum --check --quiet \
    "$sums" 2>&1 | head -3)"
note "  made $out"
