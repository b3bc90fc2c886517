#!/usr/bin/env bash
# Tests the CPU backend for aarch64 on a Debian machine of another kind: cross-compiled, and run by QEMU, which
# computes NEON instructions exactly. More crates can be named: scripts/test-aarch64.sh -p unisonic-core.
#
#   scripts/test-aarch64.sh [--if-possible] [ARGUMENT OF CARGO TEST...]
#
# With --if-possible a machine that lacks the compiler's target, or cannot get it, is no failure: a line says that the
# tests are left out. Tests that fail are one.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

if_possible=
if [ "${1-}" = --if-possible ]; then
    if_possible=yes
    shift
fi

# Ends the script: the machine cannot run the tests.
cannot() {
    if [ -n "$if_possible" ]; then
        printf 'left out: the tests of the CPU device for aarch64 (%s)\n' "$*"
        exit 0
    fi
    printf 'error: %s\n' "$*" >&2
    exit 1
}

if [ "$(uname -m)" = aarch64 ]; then
    exec cargo test -p unisonic-cpu "$@"
fi
missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]})); then
    command -v apt-get >/dev/null || cannot "needed: ${missing[*]}"
    [ "$(id -u)" -eq 0 ] || cannot "needed: sudo apt-get install ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"; } >/dev/null || cannot "apt-get could not install ${missing[*]}"
fi
# The standard library for the target belongs to the toolchain; Debian's is of an older compiler.
if [[ ! -d $(rustc --print target-libdir --target "$target") ]]; then
    command -v rustup >/dev/null || cannot "needed: Rust's standard library for $target, which rustup would install"
    rustup target add "$target" || cannot "rustup could not install Rust's standard library for $target"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
exec cargo test --locked --target "$target" -p unisonic-cpu "$@"
