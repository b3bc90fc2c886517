#!/usr/bin/env bash
# Runs the Vulkan driver and kernels on software devices: Mesa's llvmpipe with subgroups of 4, 8 and 16, and SwiftShader,
# which flushes subnormals; then whole models on these and on Mesa 26 (tests/golden_tokens.rs, in full, for which it
# fetches the models). Debian only; as root it installs what is missing.
#
#   scripts/test-vulkan.sh [--if-possible]
#
# With --if-possible a machine that lacks llvmpipe, or cannot get it, is no failure: a line says that the tests are left
# out; and whole models are left to the tests of the tier full. Tests that fail are a failure. SwiftShader and Mesa 26 are
# fetched from Debian; where they cannot be had, a line says that they are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

if_possible=${1-}

# Ends the script: the machine cannot run the tests.
cannot() {
    if [ "$if_possible" = --if-possible ]; then
        printf 'left out: kernels on software Vulkan devices (%s)\n' "$*"
        exit
    fi
    printf 'error: needed to run kernels: %s\n' "$*" >&2
    exit 1
}
note() { printf '%s\n' "$*" >&2; }

llvmpipe() { find /usr/share/vulkan/icd.d -name 'lvp_icd*.json' 2>/dev/null | head -1; }

if [ -z "$(llvmpipe)" ] || ! ldconfig -p | grep -qF libvulkan.so.1; then
    command -v apt-get >/dev/null || cannot "Mesa's llvmpipe and the Vulkan loader"
    [ "$(id -u)" -eq 0 ] || cannot "sudo apt-get install libvulkan1 mesa-vulkan-drivers"
    note "installing libvulkan1 mesa-vulkan-drivers"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        libvulkan1 mesa-vulkan-drivers; } >/dev/null || cannot "apt-get could not install them"
fi

swiftshader=.fixtures/tools/swiftshader
run() {
    local name=$1
    shift
    note "$name"
    env "$@" cargo test --locked -p unisonic-vulkan --test on_device --test driver --test self_test
}

for bits in 128 256 512; do
    run "llvmpipe, vectors of $bits bits" VK_ICD_FILENAMES="$(llvmpipe)" LP_NATIVE_VECTOR_WIDTH=$bits
done
if scripts/fetch-swiftshader.sh; then
    run SwiftShader VK_ICD_FILENAMES="$PWD/$swiftshader/vk_swiftshader_icd.json"
else
    note "skipped: kernels on SwiftShader (chromium-common could not be fetched)"
fi

if [ "$if_possible" != --if-possible ]; then
    scripts/fetch-mesa.sh || note "skipped: Mesa 26 (it could not be fetched)"
    scripts/make-fixtures.sh
    scripts/fetch-model.sh smollm2-135m gemma3-270m
    UNISONIC_TIER=full cargo test --locked -p unisonic --test golden_tokens
fi
