#!/usr/bin/env bash
# Tests the CPU backend for aarch64 on a Debian machine of another kind: cross-compiled, and run by QEMU, which
# computes NEON instructions exactly. More crates can be named: scripts/test-aarch64.sh -p unisonic-core.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)

missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]})); then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
# The standard library for the target belongs to the toolchain; Debian's is too old for this edition.
if [[ ! -d $(rustc --print target-libdir --target "$target") ]]; then
    rustup target add "$target"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
exec cargo test --target "$target" -p unisonic-cpu "$@"
