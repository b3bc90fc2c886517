#!/usr/bin/env bash
# Tests the C ABI as C programs see it: exported symbols, SONAME, pkg-config; the programs of capi/tests/c and examples/c, compiled by
# gcc and clang with every warning an error, run plainly, under valgrind, and with the address sanitizer; a program that was
# compiled against an older header.
#
#   scripts/test-capi.sh [--if-possible] [LIBRARY]
#
# LIBRARY is a libunisonic.so; without it the one that `cargo test -p unisonic-capi` builds. With --if-possible a machine that lacks tools
# is no failure: a line says that the tests are left out. scripts/reproduce-capi.sh is apart: it builds the release twice.
set -euo pipefail
cd "$(dirname "$0")/.."

if_possible=
if [ "${1-}" = --if-possible ]; then
    if_possible=yes
    shift
fi
missing=()
for tool in gcc g++ clang valgrind pkg-config nm readelf; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
    say="${missing[*]}; on Debian: apt-get install gcc g++ clang valgrind pkg-config binutils"
    [ -z "$if_possible" ] || { echo "left out: the tests of the C ABI (needed: $say)"; exit 0; }
    echo "error: needed: $say" >&2
    exit 1
fi
library=${1-}
if [ -z "$library" ]; then
    cargo test --locked --no-run --quiet -p unisonic-capi
    library=${CARGO_TARGET_DIR:-target}/debug/deps/libunisonic.so
fi

model=$PWD/tests/data/quants/llama-Q4_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/install-capi.sh "$work/prefix" "$library" >/dev/null
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
export LD_LIBRARY_PATH=$work/prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

step() { printf '%s: %s\n' "capi" "$*"; }

step "exported symbols"
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort >"$work/symbols"
if [ -n "${BLESS:-}" ]; then cp "$work/symbols" capi/symbols.txt; fi
diff -u capi/symbols.txt "$work/symbols" ||
    { echo "error: the exported symbols are not those of capi/symbols.txt; BLESS=1 writes it. One that goes breaks programs" >&2; exit 1; }
readelf -d "$library" | grep -qF 'Library soname: [libunisonic.so.0]' || { echo "error: the SONAME is another" >&2; exit 1; }

strict="-std=c11 -O1 -gdwarf-4 -Wall -Wextra -pedantic -Werror"
cflags=$(pkg-config --cflags unisonic)
libs=$(pkg-config --libs unisonic)
# The program in the documentation is one.
awk '/^```c$/ { inside = !found; next } /^```$/ { if (inside) found = 1; inside = 0 } inside' docs/c-abi.md >"$work/c-abi.c"
for compiler in gcc clang; do
    step "$compiler"
    # shellcheck disable=SC2086
    {
        $compiler $strict $cflags -Icapi/tests/c capi/tests/c/{main,arguments,nulls,callbacks,sessions,graphs,threads,process}.c \
            -o "$work/abi_test-$compiler" $libs -pthread -lm
        $compiler $strict capi/tests/c/old_caller.c -o "$work/old_caller-$compiler" $libs
        for example in examples/c/*.c "$work/c-abi.c"; do
            $compiler $strict -D_GNU_SOURCE $cflags "$example" -o "$work/$(basename "$example" .c)-$compiler" $libs -pthread -lm
        done
    }
done
# Padding would be garbage in a field to come. C++ may include the header too.
# shellcheck disable=SC2086
echo '#include <unisonic.h>' | gcc -x c -std=c11 -fsyntax-only -Wpadded -Werror $cflags -
# shellcheck disable=SC2086
echo '#include <unisonic.h>' | g++ -x c++ -fsyntax-only -Wall -Wextra -pedantic -Werror $cflags -

step "tests"
"$work/abi_test-gcc" "$model"
"$work/old_caller-clang" "$model"
if "$work/generate-gcc" "$model" "Once" vulkan:0 >"$work/vulkan" 2>/dev/null; then
    step "threads on vulkan:0"
    "$work/generate-gcc" "$model" "Once" | cmp - "$work/vulkan"
    ABI_TEST_DEVICE=vulkan:0 "$work/abi_test-gcc" "$model" threads moving
else
    step "left out: threads on vulkan:0, which cannot be opened"
fi
step "examples"
"$work/generate-gcc" "$model" "Once upon a time" >"$work/text"
"$work/generate-clang" "$model" "Once upon a time" cpu | cmp - "$work/text"
"$work/stream-clang" "$model" "Once upon a time" >/dev/null 2>&1
"$work/c-abi-gcc" "$model" >/dev/null
"$work/graph-gcc" cpu >"$work/rows"
"$work/graph-clang" cpu-scalar | cmp - "$work/rows"

# Of libunisonic.so itself only what C programs give and take is checked by the sanitizer, and all of it by valgrind.
step "address sanitizer"
# shellcheck disable=SC2086
clang $strict -fsanitize=address,undefined $cflags -Icapi/tests/c \
    capi/tests/c/{main,arguments,nulls,callbacks,sessions,graphs,threads,process}.c -o "$work/abi_test-asan" $libs -pthread -lm
ABI_TEST_CYCLES=5 ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 "$work/abi_test-asan" "$model" >/dev/null

step "valgrind"
run_valgrind() {
    valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
        --fair-sched=yes "$@"
}
ABI_TEST_CYCLES=2 run_valgrind "$work/abi_test-gcc" "$model" \
    arguments nulls handles structs context callbacks calls_in_log sessions constraints batch receipts cancel graphs memory >/dev/null
run_valgrind "$work/old_caller-gcc" "$model" >/dev/null
run_valgrind "$work/generate-gcc" "$model" "Once" >/dev/null
run_valgrind "$work/graph-gcc" >/dev/null
step "all is well"
