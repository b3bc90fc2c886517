#!/usr/bin/env bash
# Installs Python packages into .venv, which it makes if needed: scripts/venv.sh PURPOSE PACKAGE...
#
# PURPOSE is what the packages are for, as in "make the fixtures". What is there already is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:?usage: scripts/venv.sh PURPOSE PACKAGE...}
shift
venv=.venv

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }

# A module that imports is not enough: Debian splits ensurepip, which venv needs, into python3-venv.
if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    command -v apt-get >/dev/null || fail "needed to $purpose: Python 3.11 or newer with venv"
    [ "$(id -u)" -eq 0 ] || fail "needed to $purpose: sudo apt-get install python3 python3-venv"
    note "installing python3 python3-venv"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        python3 python3-venv ca-certificates; } >/dev/null || fail "apt-get could not install python3 and python3-venv"
fi
[ -x $venv/bin/pip ] || python3 -m venv $venv
$venv/bin/pip install --quiet --disable-pip-version-check "$@" ||
    fail "pip could not install $*: check the network and the package index, then run this again"
