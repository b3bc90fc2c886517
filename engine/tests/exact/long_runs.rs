//! Two thousand tokens on the native CPU: what guesses, and in what chunks the prompt is run, changes none of them.

use std::sync::{Arc, Mutex};

use unisonic_cpu::native::CpuDevice;
use unisonic_engine::draft::{Drafter, ModelDrafter, NgramDrafter, StepCosts};
use unisonic_engine::{EngineOptions, GenerateOptions, Greedy, Sample};

use super::common::{
    Answer, Seeded, VOCAB, all_options, answer_in, ids, load_long, options, say, tier_choice,
};

const TOKENS: u32 = 2000;
/// Room for prompt and answer.
const CONTEXT_LEN: u32 = 2200;

fn device() -> CpuDevice {
    CpuDevice::new().with_threads(1)
}

fn sampler(kind: &str) -> Box<dyn Sample> {
    match kind {
        "greedy" => Box::new(Greedy),
        "seeded" => Box::new(Seeded(5)),
        _ => Box::new(all_options(5)),
    }
}

/// The answer, and how many guesses came true.
fn run(kind: &str, chunk_rows: u32, drafter: Option<&mut dyn Drafter>) -> (Answer, u64) {
    let options = EngineOptions { chunk_rows, ..options() };
    let mut engine = load_long(&device(), "Q4_0", CONTEXT_LEN, &options);
    let mut session = engine.session();
    let mut sampler = sampler(kind);
    let options = GenerateOptions {
        max_tokens: Some(TOKENS),
        sampler: Some(&mut *sampler),
        drafter: drafter.map(|drafter| drafter as &mut dyn Drafter),
        ..GenerateOptions::default()
    };
    let (answer, completion) =
        answer_in(&mut engine, &mut session, &ids(71, 150, 30), None, options).unwrap();
    (answer, completion.drafts.accepted)
}

/// All ways to one sampler's answer.
fn whatever_guesses(kind: &str, chunks: &[u32]) {
    let (right, _) = run(kind, 64, None);
    assert_eq!(right.ids.len(), TOKENS as usize);
    let mut accepted = [0; 2];
    for &chunk_rows in chunks {
        if chunk_rows != 64 {
            assert_eq!(run(kind, chunk_rows, None).0, right, "{kind}, plain, chunks of {chunk_rows}");
        }
        let (found, came_true) = run(kind, chunk_rows, Some(&mut NgramDrafter::new()));
        assert_eq!(found, right, "{kind}, n-gram, chunks of {chunk_rows}");
        accepted[0] += came_true;
        let mut draft = load_long(&device(), "Q8_0", CONTEXT_LEN, &options());
        draft.set_costs(StepCosts::known([0.001; 7]));
        let mut drafter = ModelDrafter::new(Arc::new(Mutex::new(draft)), VOCAB, b"").unwrap();
        let (found, came_true) = run(kind, chunk_rows, Some(&mut drafter));
        assert_eq!(found, right, "{kind}, draft model, chunks of {chunk_rows}");
        accepted[1] += came_true;
    }
    let least = if kind == "greedy" { 1000 } else { 10 };
    assert!(accepted.iter().all(|&came_true| came_true > least), "{kind}: {accepted:?} guesses came true");
}

#[test]
fn two_thousand_tokens_are_the_same_whatever_guesses() {
    const ALL: &[u32] = &[1, 7, 64, 65, 500];
    let cases: &[(&str, &[u32])] = tier_choice(
        &[("greedy", &[7])],
        &[("greedy", &[7]), ("seeded", &[64])],
        &[("greedy", ALL), ("seeded", ALL), ("all options", ALL)],
    );
    for (kind, chunks) in cases {
        whatever_guesses(kind, chunks);
    }
    let count: usize = cases.iter().map(|(_, chunks)| chunks.len()).sum();
    let left = 3 * ALL.len() - count;
    if left > 0 {
        say(&format!("skipped: {left} of {} cases of 2,000 tokens (run in tier full)", 3 * ALL.len()));
    }
}
