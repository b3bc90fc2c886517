#!/usr/bin/env bash
# Fuzzes one target: scripts/fuzz.sh gguf|tokenizer|chat_template|request [SECONDS=3600] [WORKERS=1]
#
# WORKERS processes share a corpus; the first finding ends all.
#
# Needs cargo-fuzz (`cargo install --locked cargo-fuzz`) and a C++ compiler. The seeds come from tests/data and
# fuzz/regressions; what is found lies in fuzz/artifacts. See docs/fuzzing.md.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:?usage: scripts/fuzz.sh gguf|tokenizer|chat_template|request [SECONDS] [WORKERS]}
seconds=${2:-3600}
workers=${3:-1}
corpus=fuzz/corpus/$target
seeds=$corpus-seeds
mkdir -p "$corpus"
rm -rf "$seeds"
mkdir -p "$seeds"

cp -r "fuzz/regressions/$target/." "$seeds/"
case "$target" in
gguf)
    cp tests/data/gguf/*.gguf "$seeds/"
    # A header with some of its vocabulary; the target puts zeros behind it.
    for file in tests/data/quants/*.gguf; do
        [ ! -e "$file" ] || head -c 12288 "$file" >"$seeds/$(basename "$file")"
    done
    # One model of each kind, unchanged.
    for kind in 0 1 2 3 4 5 6 7 8 9 A B; do printf "\\x$kind" >"$seeds/model-$kind"; done
    max_len=16384 ;;
tokenizer)
    number=0
    for text in tests/data/goldens/golden_eval.txt tests/data/chat-templates/*.jinja; do
        split -b 300 "$text" "$seeds/part-"
        for part in "$seeds"/part-*; do
            # Each vocabulary and mode in turn.
            { printf "\\x$(printf %x $((number % 40)))"; cat "$part"; } >"$seeds/text-$number"
            number=$((number + 1))
            rm "$part"
        done
    done
    max_len=1024 ;;
chat_template)
    for template in tests/data/chat-templates/*.jinja; do
        { printf '\x10'; cat "$template"; printf '\xffuser\xffHi\xffassistant\xff<|im_end|>'; } \
            >"$seeds/$(basename "$template")"
    done
    for real in 0 1 2 3; do
        printf "\\x$real"'user\xffHi <|im_end|>\xffassistant\xff|im_start|' >"$seeds/real-$real"
    done
    max_len=3072 ;;
request)
    # The bodies of fuzz/regressions are all there is.
    max_len=4096 ;;
*) printf 'error: no target is called %s\n' "$target" >&2; exit 2 ;;
esac

# The stable toolchain has the sanitizer's runtime; the flags for it are not stable.
export RUSTC_BOOTSTRAP=1
cargo fuzz build -O "$target"
printf 'start %s: %s for %s s, %s workers\n' "$(date -u +%FT%TZ)" "$target" "$seconds" "$workers"
status=0
# What the fuzzer itself had of a busy machine, which may be less than an hour on the clock.
TIMEFORMAT='processor time %U s, system %S s'
# A busy or suspended machine is no finding: the limit is for endless loops. Inputs over 20 seconds are kept as
# slow-unit-*, to be looked at. Memory limits are what a small device could give.
time cargo fuzz run -O --jobs "$workers" "$target" "$corpus" "$seeds" -- -max_total_time="$seconds" \
    -max_len="$max_len" -dict="fuzz/dictionaries/$target.dict" -timeout=1200 -report_slow_units=20 \
    -rss_limit_mb=1536 -malloc_limit_mb=256 -print_final_stats=1 || status=$?
printf 'end %s: %s, status %s\n' "$(date -u +%FT%TZ)" "$target" "$status"
exit "$status"
