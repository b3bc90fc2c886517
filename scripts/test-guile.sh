#!/bin/sh
# The tests of the Guile modules, over the tiny models of `make fixtures` and SmolLM2-135M where they are. The library is the one
# that UNISONIC_LIBRARY names, or the newest that cargo has built.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${UNISONIC_LIBRARY:-}" ]; then
  UNISONIC_LIBRARY=$(ls -t target/*/libunisonic.so target/*/deps/libunisonic.so 2>/dev/null | head -n 1)
  [ -n "$UNISONIC_LIBRARY" ] || { echo "there is no libunisonic.so: run cargo build -p unisonic-capi" >&2; exit 1; }
fi
case $UNISONIC_LIBRARY in /*) ;; *) UNISONIC_LIBRARY=$PWD/$UNISONIC_LIBRARY ;; esac
export UNISONIC_LIBRARY
command -v guile >/dev/null || { echo "guile is missing (Debian: guile-3.0)" >&2; exit 1; }

export GUILE_AUTO_COMPILE=0
compiled=target/guile
for source in bindings/guile/unisonic/*.scm bindings/guile/tests/common.scm examples/guile/llama.scm examples/guile/early-exit.scm; do
  case $source in
    bindings/guile/*) module=${source#bindings/guile/} ;;
    *) module=${source#examples/guile/} ;;
  esac
  object=$compiled/${module%.scm}.go
  mkdir -p "$(dirname "$object")"
  if [ ! "$object" -nt "$source" ]; then
    guild compile -L bindings/guile -L examples/guile -W1 -o "$object" "$source" >/dev/null
  fi
done

status=0
for test in ${*:-tensor graph nn model}; do
  guile -C "$compiled" -L bindings/guile -L examples/guile -s "bindings/guile/tests/$test.scm" || status=1
done
exit $status
