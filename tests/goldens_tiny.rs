//! The tiny models against another runtime's logits: dequantisation and wiring of each type and architecture.
//!
//! Two arithmetics are compared. With the values of attention kept exact (a diagnostic) nothing but rounding is left,
//! so the limit is sharp; profile u1 itself stores values in 8 bits, which costs what its limit allows.
//!
//! Start reading at [`check`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::golden::{Golden, argmax, nmse};
use unisonic_core::format::blocks::expand_floats;
use unisonic_core::format::{GgmlType, GgufFile, GgufWriter};
use unisonic_core::plan::{FloatSource, WeightSource};

/// Largest normalised mean square error of logits.
#[derive(Clone, Copy)]
struct Limits {
    exact_v: f64,
    u1: f64,
}

const LIMITS: Limits = Limits { exact_v: 2e-7, u1: 1.2e-4 };
/// These goldens carry their runtime's f16 table of GELU.
const GELU_LIMITS: Limits = Limits { exact_v: 8e-7, u1: 3.5e-4 };

fn check(model: &Path, golden: &str, limits: Limits) {
    let right = Golden::read(&format!("tiny/{golden}.json"));
    check_with(model, golden, &right, true, limits.exact_v);
    check_with(model, golden, &right, false, limits.u1);
}

fn check_with(model: &Path, name: &str, right: &Golden, exact_v: bool, limit: f64) {
    let prompt = right.ids("prompt_ids");
    let greedy = right.ids("greedy32");
    let mut engine = common::load(model, exact_v, &common::options());
    let rows = common::logits(&mut engine, &[&prompt[..], &greedy].concat());
    let last = prompt.len() - 1;
    let profile = engine.device().profile.clone();

    for (row, field) in [(0, "logits_pos0"), (last, "logits_last"), (rows.len() - 1, "logits_after_greedy")] {
        let error = nmse(&rows[row], &right.floats(field));
        println!("{name:24} {profile:12} {field:20} nmse {error:.2e} (at most {limit:.1e})");
        assert!(error <= limit, "{name}, {profile}, {field}: nmse {error:e}, at most {limit:e}");
    }
    // An error of the allowed size moves a difference of two logits by some `noise`; eight times that never happens.
    let squares: f64 = right.floats("logits_last").iter().map(|z| z * z).sum();
    let clear = 8.0 * (2.0 * limit * squares / rows[0].len() as f64).sqrt();
    let mut compared = 0;
    for (i, (&token, margin)) in greedy.iter().zip(right.floats("margins")).enumerate() {
        if margin > clear {
            assert_eq!(argmax(&rows[last + i]), token as usize, "{name}, {profile}, greedy token {i}");
            compared += 1;
        }
    }
    assert!(compared >= greedy.len() / 3, "{name}: only {compared} of {} margins are clear", greedy.len());
    for (i, &token) in right.ids("argmax_each_pos").iter().enumerate() {
        let behind = f64::from(rows[i][argmax(&rows[i])]) - f64::from(rows[i][token as usize]);
        assert!(
            behind <= clear,
            "{name}, {profile}, position {i}: token {token} is {behind} behind the largest"
        );
    }
}

macro_rules! quants {
    ($($name:ident: $ty:literal;)*) => { $(
        #[test]
        fn $name() {
            check(&common::quant($ty), concat!("quants-f32deq/llama-", $ty), LIMITS);
        }
    )* };
}

quants! {
    q4_0: "Q4_0";
    q4_1: "Q4_1";
    q5_0: "Q5_0";
    q5_1: "Q5_1";
    q8_0: "Q8_0";
    q2_k: "Q2_K";
    q3_k: "Q3_K";
    q4_k: "Q4_K";
    q5_k: "Q5_K";
    q6_k: "Q6_K";
    iq4_nl: "IQ4_NL";
}

/// Types of which no file is committed, in files of random blocks.
#[test]
fn random_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for ty in common::random_quants::TYPES {
        let path = folder.path().join(format!("llama-random-{ty}.gguf"));
        common::random_quants::write(ty, &path);
        check(&path, &format!("quants-f32deq/llama-random-{ty}"), LIMITS);
    }
}

macro_rules! architectures {
    ($($name:ident: $file:literal, $limits:expr;)*) => { $(
        #[test]
        fn $name() {
            if let Some(model) = common::fixture($file) {
                check(&model, concat!("f32/", $file), $limits);
            }
        }
    )* };
}

architectures! {
    llama: "llama", LIMITS;
    llama_with_rope_freqs: "llama-ropefreqs", LIMITS;
    qwen2: "qwen2", LIMITS;
    qwen3: "qwen3", LIMITS;
    llama_with_experts: "llama-moe", LIMITS;
    qwen2_with_experts: "qwen2moe", LIMITS;
    qwen3_with_experts: "qwen3moe", LIMITS;
    phi3: "phi3", LIMITS;
    gpt2: "gpt2", GELU_LIMITS;
    gemma2: "gemma2", GELU_LIMITS;
    gemma3: "gemma3", GELU_LIMITS;
    gemma4: "gemma4", GELU_LIMITS;
}

#[test]
fn f16() {
    if let Some(model) = common::fixture("llama") {
        check(&model, "quants-f32deq/llama-F16", LIMITS);
    }
}

#[test]
fn f32() {
    check_converted("F32", GgmlType::F32, f32::to_bits, 4);
}

#[test]
fn bf16() {
    // The upper half of the f32, rounded to nearest even.
    let to_bf16 = |x: f32| (x.to_bits() + 0x7FFF + (x.to_bits() >> 16 & 1)) >> 16;
    check_converted("BF16", GgmlType::BF16, to_bf16, 2);
}

/// Writes the F16 fixture with its matrices in another float type, `len_bytes` low bytes of `convert` each, and checks
/// that file.
fn check_converted(name: &str, ty: GgmlType, convert: fn(f32) -> u32, len_bytes: usize) {
    let Some(model) = common::fixture("llama") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("llama-{name}.gguf"));
    let source = GgufFile::open(&model).unwrap();
    let mut writer = GgufWriter::from_metadata(source.metadata());
    let mut values = Vec::new();
    for tensor in source.tensors() {
        let bytes = source.read(&tensor.name).unwrap();
        writer = if tensor.ty == GgmlType::F16 {
            expand_floats(FloatSource::F16, &bytes, &mut values);
            let converted = values.iter().flat_map(|&x| convert(x).to_le_bytes().into_iter().take(len_bytes));
            writer.tensor(&tensor.name, ty, &tensor.dims, converted.collect::<Vec<u8>>())
        } else {
            writer.tensor(&tensor.name, tensor.ty, &tensor.dims, bytes)
        };
    }
    writer.write(&path).unwrap();
    check(&path, &format!("quants-f32deq/llama-{name}"), LIMITS);
}
