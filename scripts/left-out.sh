#!/usr/bin/env bash
# Says what a test tier leaves out: scripts/left-out.sh quick|ci|full. Printed near the end of a test run.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests that run in any tier once the files are there.
vocabularies() {
    [ -f .fixtures/vocab/complete ] ||
        echo "  tokens of llama.cpp's 17 vocabularies, calls by ten templates (35 MB)     make vocabularies"
}

assembling() {
    [ -x .fixtures/tools/ptxas ] ||
        echo "  PTX assembled for each GPU, and the registers of kernels (40 MB)           make ptxas"
}

validating() {
    [ -x .fixtures/tools/spirv-val ] ||
        echo "  SPIR-V validated (7 MB)                                                  make spirv-tools"
}

swiftshader() {
    [ -f .fixtures/tools/swiftshader/vk_swiftshader_icd.json ] ||
        echo "  golden tokens on SwiftShader (30 MB)                                     make swiftshader"
}

clients() {
    [ -f .fixtures/clients/python/version ] && [ -f .fixtures/clients/node/version ] ||
        echo "  OpenAI's clients for Python and Node against the server                    make clients"
}

# In no tier, as they need compilers or two whole builds.
c_programs() {
    echo "  C programs on the C ABI, with gcc, clang and valgrind (.ci/run has them)     make test-capi"
    echo "  two builds of libunisonic.so have one SHA-256                              scripts/reproduce-capi.sh"
}

# The loader that finds devices.
vulkan() {
    ldconfig -p 2>/dev/null | grep -qF libvulkan.so.1 ||
        echo "  kernels on a Vulkan device (Debian: libvulkan1, mesa-vulkan-drivers)       make test-vulkan"
}

case "${1:-}" in
quick)
    echo "left out of this tier (quick):"
    echo "  tiny models of all architectures and F16 models, SmolLM2-135M           make test"
    echo "  golden tokens: whole models on software Vulkan drivers                    make test"
    echo "  Gemma 3 270M, Qwen2.5-Coder-0.5B, long sweeps over SmolLM2-135M          make test-full"
    c_programs
    assembling
    validating
    clients
    vulkan
    vocabularies ;;
ci)
    echo "left out of this tier (ci):"
    echo "  Gemma 3 270M, Qwen2.5-Coder-0.5B, long sweeps over SmolLM2-135M          make test-full"
    echo "  golden tokens: chunks above 147 rows; of most models and drivers, above 3  make test-full"
    c_programs
    assembling
    validating
    clients
    vulkan
    swiftshader
    vocabularies ;;
full)
    left_out=$'\n'$(c_programs)
    [ -f models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf ] || left_out+=$'\n  Qwen2.5-Coder-0.5B, whose packages could not be fetched'
    [ -f .fixtures/vocab/complete ] || left_out+=$'\n  tokens of llama.cpp\'s vocabularies, which could not be fetched'
    [ -x .fixtures/tools/ptxas ] || left_out+=$'\n  PTX assembled for each GPU: there is no assembler for this machine'
    [ -f .fixtures/tools/mesa/complete ] || left_out+=$'\n  golden tokens on Mesa 26, which could not be fetched'
    [ -z "$(swiftshader)" ] || left_out+=$'\n  golden tokens on SwiftShader, which could not be fetched'
    [ -z "$(clients)" ] || left_out+=$'\n'$(clients)
    [ -z "$(vulkan)" ] || left_out+=$'\n'$(vulkan)
    echo "left out of this tier (full):${left_out:- nothing}" ;;
*) echo "usage: $0 quick|ci|full" >&2; exit 2 ;;
esac
