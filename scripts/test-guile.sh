#!/bin/sh
# The tests of the Guile modules, over the tiny models of `make fixtures`, which must be there, and SmolLM2-135M where it is; what was
# left out is said at the end. The library is the one that UNISONIC_LIBRARY names, or the newest that cargo has built.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${UNISONIC_LIBRARY:-}" ]; then
  UNISONIC_LIBRARY=$(ls -t target/*/libunisonic.so target/*/deps/libunisonic.so 2>/dev/null | head -n 1)
  [ -n "$UNISONIC_LIBRARY" ] || { echo "there is no libunisonic.so: run cargo build -p unisonic-capi" >&2; exit 1; }
fi
case $UNISONIC_LIBRARY in /*) ;; *) UNISONIC_LIBRARY=$PWD/$UNISONIC_LIBRARY ;; esac
export UNISONIC_LIBRARY
# Names of files are text.
export LC_ALL=C.UTF-8
command -v guile >/dev/null || { echo "guile is missing (Debian: guile-3.0)" >&2; exit 1; }

# Compiled here and not in the user's cache, each in a process of its own: the modules first that others use.
export GUILE_AUTO_COMPILE=0
compiled=$PWD/target/guile
build() {
  source=$1/$2.scm object=$compiled/$2.go
  mkdir -p "$(dirname "$object")"
  if [ ! "$object" -nt "$source" ]; then
    guile -C "$compiled" -L bindings/guile -L examples/guile -c '(use-modules (system base compile))
      (compile-file (cadr (command-line)) #:output-file (caddr (command-line)) #:opts (list #:warning-level 1))' \
      "$source" "$object"
  fi
}
for module in ffi tensor graph nn model; do build bindings/guile "unisonic/$module"; done
build bindings/guile tests/common
for module in llama early-exit; do build examples/guile "$module"; done

status=0 said=$compiled/said
: >"$said"
for test in ${*:-tensor graph nn model}; do
  guile -C "$compiled" -L bindings/guile -L examples/guile -s "bindings/guile/tests/$test.scm" 2>>"$said" || status=1
done
# Last: what failed outside a test, and what was left out, each line once.
awk '!/^skipped: / || !seen[$0]++' "$said" >&2
exit $status
