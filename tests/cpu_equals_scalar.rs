//! The fast CPU device against the oracle: equal logits bits for every set of instructions that this machine has, any
//! number of threads and any shape of batch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::Tier;
use unisonic_cpu::native::{CpuDevice, Isa};
use unisonic_engine::EngineOptions;

/// Threads of a device; more than this machine may have, on purpose.
const THREADS: [usize; 4] = [1, 2, 3, 7];

fn bits(rows: Vec<Vec<f32>>) -> Vec<Vec<u32>> {
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

fn every_device_equals_the_oracle(model: &Path, len: usize, chunks: &[u32]) {
    let mut oracle = common::load_on("cpu-scalar", model, &common::options());
    let ids = common::some_ids(len, oracle.plan().vocab_len);
    let right = bits(common::logits(&mut oracle, &ids));
    for isa in Isa::ALL {
        let Some(device) = CpuDevice::new().with_isa(isa) else {
            continue;
        };
        for (threads, &chunk_rows) in THREADS.into_iter().zip(chunks.iter().cycle()) {
            let options = EngineOptions { chunk_rows, ..common::options() };
            let mut engine = common::load_with(&device.with_threads(threads), model, &options);
            // What its kernels do not take it leaves to the oracle, which would be compared with itself.
            let name = engine.device().name.clone();
            assert!(!name.contains("scalar"), "{}: {isa} runs as {name}", model.display());
            let found = bits(common::logits(&mut engine, &ids));
            assert!(found == right, "{}: {isa}, {threads} threads, chunks of {chunk_rows}", model.display());
        }
    }
}

#[test]
fn instructions_of_this_machine() {
    for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
        common::skipped(&format!("{isa} kernels"), "this machine does not have the instructions");
    }
}

#[test]
fn quantised_types() {
    for ty in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"] {
        every_device_equals_the_oracle(&common::quant(ty), 90, &[64, 1, 7, 65]);
    }
}

#[test]
fn random_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for ty in common::random_quants::TYPES {
        let path = folder.path().join(format!("llama-random-{ty}.gguf"));
        common::random_quants::write(ty, &path);
        every_device_equals_the_oracle(&path, 90, &[64, 1, 7, 65]);
    }
}

#[test]
fn architectures() {
    for name in common::ARCHITECTURES {
        if let Some(model) = common::fixture(name) {
            every_device_equals_the_oracle(&model, 90, &[5, 64, 1, 33]);
        }
    }
}

/// Past a group of 16 chunks, where the order of merging has its second level.
#[test]
fn long_sequences() {
    // The tiny models hold 512 tokens, so this one is real.
    if let Some(model) = common::smollm2(Tier::Full, "the CPU device over 1100 tokens of SmolLM2-135M") {
        every_device_equals_the_oracle(&model, 1100, &[512]);
    }
}
