#!/usr/bin/env bash
# Says what a test tier leaves out: scripts/left-out.sh quick|ci|full. Printed near the end of a test run.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
quick)
    echo "left out of this tier (quick):"
    echo "  tiny qwen2, qwen3, gemma3, rope_freqs and F16 models, SmolLM2-135M      make test"
    echo "  Gemma 3 270M, Qwen2.5-Coder-0.5B, long sweeps over SmolLM2-135M          make test-full" ;;
ci)
    echo "left out of this tier (ci):"
    echo "  Gemma 3 270M, Qwen2.5-Coder-0.5B, long sweeps over SmolLM2-135M          make test-full" ;;
full)
    if [ -f models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf ]; then
        echo "left out of this tier (full): nothing"
    else
        echo "left out of this tier (full): Qwen2.5-Coder-0.5B, whose packages could not be fetched"
    fi ;;
*) echo "usage: $0 quick|ci|full" >&2; exit 2 ;;
esac
