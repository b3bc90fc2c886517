#!/usr/bin/env bash
# Writes what the program is made of to target/sbom/unisonic.cdx.json (CycloneDX) and unisonic.spdx.json (SPDX).
#
# Needs cargo-sbom 0.10 or newer: `cargo install --locked cargo-sbom`.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p target/sbom
write() {
    cargo sbom --cargo-package unisonic --output-format "$1" >"target/sbom/$2.part"
    mv "target/sbom/$2.part" "target/sbom/$2"
    printf 'target/sbom/%s\n' "$2"
}
write cyclone_dx_json_1_6 unisonic.cdx.json
write spdx_json_2_3 unisonic.spdx.json
