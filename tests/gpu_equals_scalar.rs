//! The launches of a model file against the oracle: equal logits bits on the interpreter of the kernel IR,
//! which plays a GPU with everything and one with nothing. No GPU is used; `gpu/tests/equal_bits.rs` has
//! batches of several sequences.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;
use std::sync::Arc;

use unisonic_core::launch::Hardware;
use unisonic_engine::EngineOptions;
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_planner::launches::Lowering;

fn bits(rows: Vec<Vec<f32>>) -> Vec<Vec<u32>> {
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

fn launches_equal_the_oracle(model: &Path, len: usize, chunks: &[u32]) {
    let mut oracle = common::load_on("cpu-scalar", model, &common::options());
    let ids = common::some_ids(len, oracle.plan().vocab_len);
    let right = bits(common::logits(&mut oracle, &ids));
    for (hardware, &chunk_rows) in
        [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE].into_iter().zip(chunks.iter().cycle())
    {
        let device = GpuDevice::new(InterpreterMachine { hardware }, Arc::new(Lowering::default()));
        let options = EngineOptions { chunk_rows, ..common::options() };
        let mut engine = common::load_with(&device, model, &options);
        let found = bits(common::logits(&mut engine, &ids));
        assert!(found == right, "{}: {hardware:?}, chunks of {chunk_rows}", model.display());
    }
}

/// Models in three parts, each a graph that is given what the one before it made.
#[test]
fn parts_are_the_whole() {
    for ty in ["Q4_0", "Q6_K"] {
        let model = common::quant(ty);
        let mut oracle = common::load_on("cpu-scalar", &model, &common::options());
        let ids = common::some_ids(20, oracle.plan().vocab_len);
        let right = bits(common::logits(&mut oracle, &ids));
        for hardware in [Hardware::SM_86, Hardware::LEAST] {
            let device = GpuDevice::new(InterpreterMachine { hardware }, Arc::new(Lowering::default()));
            let found = bits(common::pieces::logits(&device, &model, &ids, [18, 7, 20]));
            assert!(found == right, "{ty}: {hardware:?}");
        }
    }
}

#[test]
fn quantised_types() {
    for ty in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"] {
        launches_equal_the_oracle(&common::quant(ty), 20, &[16]);
    }
}

#[test]
fn random_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for ty in common::random_quants::TYPES {
        let path = folder.path().join(format!("llama-random-{ty}.gguf"));
        common::random_quants::write(ty, &path);
        launches_equal_the_oracle(&path, 20, &[16]);
    }
}

#[test]
fn architectures() {
    for name in common::ARCHITECTURES {
        if let Some(model) = common::fixture(name) {
            launches_equal_the_oracle(&model, 20, &[18]);
        }
    }
}
