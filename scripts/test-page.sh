#!/usr/bin/env bash
# Tests the chat page of `unisonic serve` in a headless Chromium, and leaves screenshots in target/page/ to look at.
#
#   scripts/test-page.sh [MODEL]
#
# Needs node, npm and chromium (Debian: chromium, which it installs as root); a model that chats, by default that of `make model`.
set -euo pipefail
cd "$(dirname "$0")/.."

puppeteer_version=24.43.1
model=${1:-models/smollm2-135m-instruct-q4_1.gguf}
tools=$(pwd)/.fixtures/clients/page
screenshots=target/page

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

command -v npm >/dev/null || fail "needed: node and npm"
[ -f "$model" ] || fail "there is no $model: make model"
if ! command -v chromium >/dev/null; then
    [ "$(id -u)" -eq 0 ] || fail "needed: sudo apt-get install chromium"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi
if [ "$(cat "$tools/version" 2>/dev/null)" != "$puppeteer_version" ]; then
    npm install --silent --no-fund --no-audit --ignore-scripts --prefix "$tools" "puppeteer-core@$puppeteer_version"
    echo "$puppeteer_version" >"$tools/version"
fi

cargo build --release --locked
mkdir -p "$screenshots"
log=$(mktemp)
target/release/unisonic serve --port 0 --context 2048 "$model" 2>"$log" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -f "$log"' EXIT
until grep -q '^ready: ' "$log"; do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; fail "the server has ended"; }
    sleep 0.1
done
url=$(sed -n 's/^listening on //p' "$log")/
NODE_PATH="$tools/node_modules" node server/tests/page/page.cjs "$url" "$(command -v chromium)" "$screenshots"
echo "screenshots: $screenshots/page*.png"
