//! Thousands of decoded tokens against one prefill: the KV cache over many pages, positions far beyond a sliding window.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use unisonic_core::format::Value;
use unisonic_engine::EngineOptions;

/// Tokens: 32 KV pages.
const LEN: usize = 2000;

/// Decodes greedily, on two threads, one row at a time; then reads the same tokens at once on the scalar device.
fn decoding_equals_prefill(model: &Path) {
    let folder = tempfile::tempdir().unwrap();
    // The tiny models are said to be for 512 tokens. Their weights are random: they may as well be for more.
    let architecture = common::architecture(model);
    let key = format!("{architecture}.context_length");
    let path = folder.path().join("long.gguf");
    std::fs::write(&path, common::with_metadata(model, &[(&key, Value::U32(LEN as u32))])).unwrap();

    let options = |chunk_rows| EngineOptions { chunk_rows, ..common::options() };
    let mut engine = common::load_on("cpu", &path, &options(1));
    let mut session = engine.session();
    let mut ids = common::some_ids(1, engine.plan().vocab_len);
    let mut decoded: Vec<Vec<u32>> = Vec::with_capacity(LEN);
    while decoded.len() < LEN {
        let next = [ids[decoded.len()]];
        let row = common::extend(&mut engine, &mut session, &next).remove(0);
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        ids.push(best as u32);
        decoded.push(row.iter().map(|z| z.to_bits()).collect());
    }
    // A model that repeats one token would show little.
    ids.truncate(LEN);
    let mut kinds = ids.clone();
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() > 3, "the answer has {} different tokens", kinds.len());

    let mut oracle = common::load_on("cpu-scalar", &path, &options(512));
    let mut session = oracle.session();
    let mut position = 0;
    let compare = &mut |_: usize, logits: &[f32]| {
        let bits: Vec<u32> = logits.iter().map(|z| z.to_bits()).collect();
        assert!(decoded[position] == bits, "logits differ at position {position}");
        position += 1;
    };
    oracle.extend(&mut session, &ids, 0, compare).unwrap();
    assert_eq!(position, LEN);
}

#[test]
fn llama() {
    decoding_equals_prefill(&common::quant("Q4_0"));
}

#[test]
fn gemma3_with_its_sliding_window() {
    if let Some(model) = common::fixture("gemma3") {
        decoding_equals_prefill(&model);
    }
}
