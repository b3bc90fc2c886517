#!/usr/bin/env bash
# Fetches OpenAI's clients for Python (PyPI) and Node (npm) into .fixtures/clients/, against which the server is tested.
#
#   scripts/fetch-clients.sh
#
# Needs Python 3 with venv. Without node and npm the client for Node is left out, with a line that says so.
set -euo pipefail
cd "$(dirname "$0")/.."

python_version=3.57.0
node_version=6.49.0

dir=$(pwd)/.fixtures/clients
note() { printf '%s\n' "$*" >&2; }

# Whether this has been fetched: scripts/fetch-clients.sh writes the version last.
is_there() { [ "$(cat "$dir/$1/version" 2>/dev/null)" = "$2" ] && note "  have $dir/$1"; }

if ! is_there python "$python_version"; then
    rm -rf "$dir/python"
    python3 -m venv "$dir/python"
    "$dir/python/bin/pip" install --quiet --disable-pip-version-check "openai==$python_version"
    echo "$python_version" >"$dir/python/version"
fi
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    note "skipped: OpenAI's client for Node (there is no node, or no npm)"
elif ! is_there node "$node_version"; then
    rm -rf "$dir/node"
    npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$dir/node" "openai@$node_version"
    echo "$node_version" >"$dir/node/version"
fi
