//! The promise: how rows are cut into chunks, which rows run beside them, the float state of the host and the switches
//! of the planner change no bit of any logits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use common::Tier;
use common::float_state;
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_engine::{Engine, EngineError, EngineOptions};
use unisonic_planner::PlanOptions;
use unisonic_planner::passes::PASSES;

/// Sizes around the 64 positions of a KV page and the 16 of the fixtures' sliding window.
const CHUNKS: [u32; 6] = [1, 7, 63, 64, 65, 512];
/// Over four pages, and across the sliding window many times.
const LEN: usize = 300;

const SCALAR: &str = "cpu-scalar";

/// The oracle first.
fn each(check: impl Fn(&str)) {
    [SCALAR, "cpu"].into_iter().for_each(check);
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|z| z.to_bits()).collect()).collect()
}

#[track_caller]
fn assert_equal(found: &[Vec<f32>], right: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), right.len(), "{what}: rows");
    let (found, right) = (bits(found), bits(right));
    for (position, (a, b)) in found.iter().zip(&right).enumerate() {
        let differ = a.iter().zip(b).filter(|(a, b)| a != b).count();
        assert_eq!(differ, 0, "{what}: logits differ at position {position}");
    }
}

fn load(device: &str, model: &Path, chunk_rows: u32) -> Engine {
    common::load_on(device, model, &EngineOptions { chunk_rows, sequences: 2, ..common::options() })
}

fn ids(engine: &Engine) -> Vec<u32> {
    common::some_ids(LEN, engine.plan().vocab_len)
}

/// One prefill in one chunk on the scalar device: what everything is compared with. Computed once a model.
fn whole(model: &Path) -> Arc<Vec<Vec<f32>>> {
    type Rows = Arc<OnceLock<Arc<Vec<Vec<f32>>>>>;
    static ROWS: Mutex<BTreeMap<PathBuf, Rows>> = Mutex::new(BTreeMap::new());
    let rows = Arc::clone(ROWS.lock().unwrap().entry(model.to_owned()).or_default());
    Arc::clone(rows.get_or_init(|| {
        let mut engine = load(SCALAR, model, 512);
        let ids = ids(&engine);
        Arc::new(common::logits(&mut engine, &ids))
    }))
}

fn chunks_are_invisible(device: &str, model: &Path, flush: bool) {
    let right = whole(model);
    for chunk in CHUNKS {
        let options = EngineOptions { chunk_rows: chunk, ..common::options() };
        let mut engine = match (flush, device) {
            // This one stays in the mode of the thread, so that it flushes all the way.
            (true, SCALAR) => {
                let scalar = ScalarDevice::new(Arithmetic::U1).in_host_float_state();
                common::load_with(&scalar, model, &options)
            }
            _ => common::load_on(device, model, &options),
        };
        let ids = ids(&engine);
        let (rows, what) = if flush {
            let (rows, flushes) = float_state::flushing(|| common::logits(&mut engine, &ids));
            assert!(flushes, "flush-to-zero could not be set");
            (rows, "flushing, chunks of")
        } else {
            (common::logits(&mut engine, &ids), "chunks of")
        };
        assert_equal(&rows, &right, &format!("{device}: {what} {chunk}"));
    }
}

/// Token by token, as decoding goes, in one session.
fn decoding_equals_prefill(device: &str, model: &Path) {
    let right = whole(model);
    let mut engine = load(device, model, 64);
    let mut session = engine.session();
    let mut rows = Vec::new();
    for id in ids(&engine) {
        rows.extend(common::extend(&mut engine, &mut session, &[id]));
    }
    assert_equal(&rows, &right, &format!("{device}: decoding"));
}

/// Two sequences of one engine, alternating by pieces of unlike size; and what a truncated session forgets.
fn sessions_are_alone(device: &str, model: &Path) {
    let right = whole(model);
    let mut engine = load(device, model, 64);
    let ids = ids(&engine);
    let reversed: Vec<u32> = ids.iter().rev().copied().collect();
    let right_reversed = common::logits(&mut load(SCALAR, model, 512), &reversed);

    let (mut a, mut b) = (engine.session(), engine.session());
    let (mut rows_a, mut rows_b) = (Vec::new(), Vec::new());
    for (piece_a, piece_b) in ids.chunks(37).zip(reversed.chunks(37)) {
        rows_a.extend(common::extend(&mut engine, &mut a, piece_a));
        rows_b.extend(common::extend(&mut engine, &mut b, piece_b));
    }
    assert_equal(&rows_a, &right, &format!("{device}: first of two sessions"));
    assert_equal(&rows_b, &right_reversed, &format!("{device}: second of two sessions"));

    a.truncate(100);
    b.truncate(1);
    let rows = common::extend(&mut engine, &mut a, &ids[100..]);
    assert_equal(&rows, &right[100..], &format!("{device}: after truncation"));
}

/// Every optional pass off, one at a time and all together.
fn passes_are_invisible(device: &str, model: &Path) {
    let right = whole(model);
    let optional: Vec<String> =
        PASSES.iter().filter(|pass| !pass.required).map(|pass| pass.name.to_owned()).collect();
    assert!(!optional.is_empty());
    for off in optional.iter().map(std::slice::from_ref).chain([&optional[..]]) {
        let plan = PlanOptions { passes_off: off.to_vec(), ..PlanOptions::default() };
        let mut engine =
            common::load_on(device, model, &EngineOptions { chunk_rows: 512, plan, ..common::options() });
        let ids = ids(&engine);
        assert_equal(
            &common::logits(&mut engine, &ids),
            &right,
            &format!("{device}: without {}", off.join(", ")),
        );
    }
}

/// A model in three parts, each a graph that is given what the one before it made.
fn parts_are_the_whole(device: &str, model: &Path) {
    let right = whole(model);
    let opened = unisonic_devices::open(device.parse().unwrap(), Default::default()).unwrap();
    let ids = ids(&load(device, model, 64));
    let rows = common::pieces::logits(&*opened, model, &ids, [64, 7, 100]);
    assert_equal(&rows, &right, &format!("{device}: in parts"));
}

/// The pages of a session mean nothing to another engine, so that it must not run over them.
#[test]
fn a_session_of_another_engine_is_refused() {
    let model = common::quant("Q4_0");
    let (mut one, mut other) = (load("cpu", &model, 64), load("cpu", &model, 64));
    let mut session = one.session();
    let before = common::extend(&mut one, &mut session, &[1, 2, 3]);
    let refused = other.extend(&mut session, &[4], 0, &mut |_, _| panic!("there are no logits"));
    assert!(matches!(refused, Err(EngineError::ForeignSession)), "{refused:?}");
    assert_eq!(session.tokens(), [1, 2, 3]);
    session.truncate(0);
    assert_equal(&common::extend(&mut one, &mut session, &[1, 2, 3]), &before, "with its own engine");
}

/// A fixture whose operations `tests/cpu_equals_scalar.rs` compares in chunks of several sizes.
fn in_full(name: &str) -> Option<PathBuf> {
    let runs = common::runs_in(Tier::Full, &format!("equal bits over tiny {name}"));
    runs.then(|| common::fixture(name)).flatten()
}

macro_rules! models {
    ($($name:ident: $model:expr;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn chunks_are_invisible() {
                if let Some(model) = $model { each(|device| super::chunks_are_invisible(device, &model, false)) }
            }

            #[test]
            fn chunks_are_invisible_when_the_thread_flushes_subnormals() {
                if let Some(model) = $model { each(|device| super::chunks_are_invisible(device, &model, true)) }
            }

            #[test]
            fn decoding_equals_prefill() {
                if let Some(model) = $model { each(|device| super::decoding_equals_prefill(device, &model)) }
            }

            #[test]
            fn sessions_are_alone() {
                if let Some(model) = $model { each(|device| super::sessions_are_alone(device, &model)) }
            }

            #[test]
            fn parts_are_the_whole() {
                if let Some(model) = $model { each(|device| super::parts_are_the_whole(device, &model)) }
            }

            #[test]
            fn passes_are_invisible() {
                if let Some(model) = $model { each(|device| super::passes_are_invisible(device, &model)) }
            }
        }
    )* };
}

models! {
    llama_q4_0: Some(common::quant("Q4_0"));
    llama_q6_k: Some(common::quant("Q6_K"));
    llama_f16: common::fixture("llama");
    llama_yarn: common::fixture("llama-yarn");
    qwen2: common::fixture("qwen2");
    qwen3: common::fixture("qwen3");
    qwen2moe: common::fixture("qwen2moe");
    gemma2: in_full("gemma2");
    gpt2: in_full("gpt2");
    gemma3: common::fixture("gemma3");
    gemma4: in_full("gemma4");
    smollm2: common::smollm2(Tier::Full, "equal bits over SmolLM2-135M");
}
