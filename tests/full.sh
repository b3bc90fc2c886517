#!/usr/bin/env bash
# The full product of kernel templates: each template with every format, shape, number of rows, tuning row and device,
# in the interpreter, against core::numerics. About 20 minutes of processor time. `make test-full` runs it too.
set -euo pipefail
cd "$(dirname "$0")/.."
UNISONIC_TIER=full cargo test --locked -p unisonic-planner --test kernel_samples -- --nocapture
