//! One question, unlike answers: by what was asked before, by batch, by threads, by device, by who else asks.

use std::sync::Arc;

use unisonic_core::launch::Hardware;
use unisonic_core::plan::Device;
use unisonic_cpu::native::{CpuDevice, Isa};
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::{Engine, EngineOptions, GenerateOptions};
use unisonic_gpu::device::GpuDevice;
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_planner::launches::Lowering;

use super::common::{Answer, VOCAB, answer_in, cpu, ids, load, options};

/// A GPU of the kernel interpreter.
fn interpreter(hardware: Hardware) -> GpuDevice<InterpreterMachine> {
    GpuDevice::new(InterpreterMachine { hardware }, Arc::new(Lowering::default()))
}

/// Temperature 0.8 and this seed, drawn from a prompt that may be in the prefix tree.
fn seeded(engine: &mut Engine, salt: &[u8], prompt: &[u32], max_tokens: u32) -> (Answer, usize) {
    let drawn = SamplerOptions { temperature: 0.8, seed: 1337, ..SamplerOptions::default() };
    chosen(engine, salt, prompt, max_tokens, &drawn)
}

fn chosen(
    engine: &mut Engine,
    salt: &[u8],
    prompt: &[u32],
    max_tokens: u32,
    sampling: &SamplerOptions,
) -> (Answer, usize) {
    let mut sampler = Sampler::new(sampling, VOCAB).unwrap();
    let mut session = engine.session_for(salt, prompt).unwrap();
    let held = session.tokens().len();
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Some(&mut sampler),
        ..GenerateOptions::default()
    };
    (answer_in(engine, &mut session, &prompt[held..], None, options).unwrap().0, held)
}

/// The first of ten equal requests differed from the others, until another prompt came between.
#[test]
fn five_times_then_another_then_five_times() {
    let gpu = interpreter(Hardware::SM_86);
    let devices: [(&dyn Device, usize, u32); 2] =
        [(&CpuDevice::new().with_threads(1), 70, 50), (&gpu, 66, 2)];
    for (device, len, max_tokens) in devices {
        let mut engine = load(device, "Q4_0", &EngineOptions { sequences: 4, ..options() });
        let (prompt, other) = (ids(1, len, VOCAB), ids(2, len, VOCAB));
        let (right, held) = seeded(&mut engine, b"", &prompt, max_tokens);
        assert_eq!((right.ids.len(), held), (max_tokens as usize, 0));
        for time in 1..10 {
            if time == 5 {
                seeded(&mut engine, b"", &other, max_tokens);
            }
            let (found, held) = seeded(&mut engine, b"", &prompt, max_tokens);
            assert_eq!(found, right, "{}: time {time}", engine.device().name);
            assert!(held >= 64, "nothing was reused, which shows nothing");
        }
    }
}

/// The size of a prompt's batches changed the continuation.
#[test]
fn batch_sizes() {
    let narrow = SamplerOptions { temperature: 1.0, top_k: Some(1), ..SamplerOptions::default() };
    for len in [10, 130] {
        let prompt = ids(3, len, VOCAB);
        let answers = [1, 7, 8, 9, 63, 64, 65, 100].map(|chunk_rows| {
            let mut engine = cpu(&EngineOptions { chunk_rows, ..options() });
            chosen(&mut engine, b"", &prompt, 30, &narrow).0
        });
        assert_eq!(answers[0].digests.len(), 30);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "a prompt of {len}");
    }
}

/// The number of threads changed the answer of a seed.
#[test]
fn thread_counts() {
    let prompt = ids(4, 90, VOCAB);
    let answers = [1, 3, 7, 14, 15].map(|threads| {
        let mut engine = load(&CpuDevice::new().with_threads(threads), "Q4_0", &options());
        seeded(&mut engine, b"", &prompt, 8).0
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

/// The CPU multiplied integers and the GPU floats, and both were right.
#[test]
fn q4_k_on_cpu_and_gpu_kernels() {
    let prompt = ids(5, 9, VOCAB);
    let answer = |device: &dyn Device| {
        let mut engine = load(device, "Q4_K", &options());
        seeded(&mut engine, b"", &prompt, 2).0
    };
    let oracle = answer(&ScalarDevice::new(Arithmetic::U1));
    for isa in Isa::ALL {
        if let Some(device) = CpuDevice::new().with_isa(isa) {
            assert_eq!(answer(&device.with_threads(1)), oracle, "{isa}");
        }
    }
    for hardware in [Hardware::SM_86, Hardware::LEAST, Hardware::COOPERATIVE] {
        assert_eq!(answer(&interpreter(hardware)), oracle, "{hardware:?}");
    }
}

/// The second use of a prompt from the cache was gibberish, or held another conversation.
#[test]
fn a_prompt_comes_back_after_another() {
    let (a, b) = (ids(6, 100, VOCAB), ids(7, 100, VOCAB));
    let greedy = SamplerOptions::default();
    let cold = |prompt: &[u32]| chosen(&mut cpu(&options()), b"", prompt, 20, &greedy).0;
    let (right_a, right_b) = (cold(&a), cold(&b));
    let mut engine = cpu(&options());
    for (prompt, right) in [(&a, &right_a), (&b, &right_b), (&a, &right_a), (&a, &right_a)] {
        // With and without the cache.
        assert_eq!(&chosen(&mut engine, b"", prompt, 20, &greedy).0, right);
        assert_eq!(&super::common::alone(&mut engine, prompt, 20), right);
    }
}

/// A caller's salt was taken for another field of the key, with a hit on pages that are not the caller's.
#[test]
fn a_salt_that_is_anothers_name() {
    let mut engine = cpu(&EngineOptions { weights_digest: b"weights".to_vec(), ..options() });
    let prompt = ids(8, 150, VOCAB);
    let profile = engine.device().profile.clone().into_bytes();
    let joined = [&b"weights"[..], &profile].concat();
    let mut right = None;
    for salt in [&b""[..], b"x", b"xx", b"weights", &profile, &joined, b"\0", b"\0\0\0\0\0\0\0\0"] {
        let (answer, held) = seeded(&mut engine, salt, &prompt, 5);
        assert_eq!(held, 0, "salt {salt:?} hits the pages of another");
        assert_eq!(&answer, right.get_or_insert(answer.clone()), "salt {salt:?}");
        assert_eq!(seeded(&mut engine, salt, &prompt, 5), (answer, 149), "salt {salt:?}, again");
    }
}
