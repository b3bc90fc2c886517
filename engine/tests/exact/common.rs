//! Models, samplers and drafters of these tests.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;

use unisonic_core::format::{GgufFile, Metadata, Value};
use unisonic_core::numerics::sampling::{DrawKey, Temperature, draw};
use unisonic_core::plan::Device;
use unisonic_cpu::native::CpuDevice;
use unisonic_engine::constraint::{ConstrainedSampler, Constraint, ConstraintKind, Grammars};
use unisonic_engine::draft::{Confidence, Drafter, StepCosts};
use unisonic_engine::sampling::{Sampler, SamplerOptions, Window};
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::{
    Completion, Engine, EngineError, EngineOptions, GenerateOptions, Sample, Session, generate,
};

/// Tokens of the vocabulary.
pub const VOCAB: u32 = 259;

/// Rows are nearly free together, so that guesses are always worth it.
pub const CHEAP_ROWS: [f64; 7] = [1.0, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006];

/// The tier of this run (DEVELOPERS.md, "Test tiers").
pub fn quick() -> bool {
    matches!(std::env::var("UNISONIC_TIER").as_deref(), Err(_) | Ok("quick"))
}

/// One of these by the tier of this run: quick, ci or full.
pub fn tier_choice<T>(quick_choice: T, ci: T, full: T) -> T {
    match std::env::var("UNISONIC_TIER").as_deref() {
        _ if quick() => quick_choice,
        Ok("full") => full,
        _ => ci,
    }
}

pub fn options() -> EngineOptions<'static> {
    EngineOptions { max_outputs: 64, ..EngineOptions::default() }
}

/// A committed tiny llama.
pub fn file(quant: &str) -> GgufFile {
    // The program's tests have this file too.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = if manifest.ends_with("engine") { manifest.parent().unwrap() } else { manifest };
    GgufFile::open(&root.join(format!("tests/data/quants/llama-{quant}.gguf"))).unwrap()
}

/// The same on a device.
pub fn load(device: &dyn Device, quant: &str, options: &EngineOptions<'_>) -> Engine {
    let file = file(quant);
    let mut engine = Engine::load(file.metadata(), file.tensors(), &file, device, options, &|_| {}).unwrap();
    engine.set_costs(StepCosts::known(CHEAP_ROWS));
    engine
}

/// The same with a context of so many tokens, which may be more than it was made for: what it says then is of no use, but
/// has to be the same however it is computed.
pub fn load_long(device: &dyn Device, quant: &str, context_len: u32, options: &EngineOptions<'_>) -> Engine {
    let (file, mut metadata) = (file(quant), Metadata::default());
    for (key, value) in file.metadata().iter() {
        let value = if key == "llama.context_length" { Value::U32(context_len) } else { value.clone() };
        assert!(metadata.insert(key, value));
    }
    let options = EngineOptions { context_len: Some(context_len), ..options.clone() };
    let mut engine = Engine::load(&metadata, file.tensors(), &file, device, &options, &|_| {}).unwrap();
    engine.set_costs(StepCosts::known(CHEAP_ROWS));
    engine
}

/// The native device; one thread, for many tests run at a time.
pub fn cpu(options: &EngineOptions<'_>) -> Engine {
    load(&CpuDevice::new().with_threads(1), "Q4_0", options)
}

/// Ids that look random and follow from the seed.
pub fn ids(seed: u64, len: usize, below: u32) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(u64::from(below)) as u32).collect()
}

/// Random numbers that follow from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Draws with temperature 1.
#[derive(Clone, Copy)]
pub struct Seeded(pub u64);

impl Sample for Seeded {
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError> {
        let all: Vec<u32> = (0..logits.len() as u32).collect();
        let key = DrawKey { seed: self.0, position: before.len() as u32, purpose: 0 };
        Ok(draw(logits, &all, Temperature::new(1.0).unwrap(), key).unwrap())
    }
}

/// Every option of sampling at once, penalties over the last 16 tokens.
pub fn all_options(seed: u64) -> Sampler {
    let options = SamplerOptions {
        temperature: 1.1,
        top_k: Some(200),
        top_p: Some(0.98),
        min_p: Some(0.001),
        typical: Some(0.99),
        top_n_sigma: Some(6.0),
        ..penalties(seed)
    };
    Sampler::new(&options, VOCAB).unwrap()
}

/// The largest logit, after penalties over all that came before, and biases.
pub fn greedy_with_penalties() -> Sampler {
    let options = SamplerOptions { repeat_window: Window::All, ..penalties(0) };
    Sampler::new(&options, VOCAB).unwrap()
}

fn penalties(seed: u64) -> SamplerOptions {
    SamplerOptions {
        repeat_penalty: 1.2,
        repeat_window: Window::Last(16),
        presence_penalty: 0.3,
        frequency_penalty: 0.2,
        logit_bias: vec![(65, 1.5), (3, f64::NEG_INFINITY)],
        seed,
        ..SamplerOptions::default()
    }
}

/// The tokenizer of the tiny llamas: every byte is a token, and no text is longer.
pub fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| Tokenizer::from_metadata(file("Q4_0").metadata()).unwrap())
}

pub fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| Grammars::new(tokenizer()).unwrap())
}

/// Chooses by these options what a constraint allows, in an answer after so many tokens.
pub fn constrained(constraint: &Constraint, options: &SamplerOptions, start: usize) -> ConstrainedSampler {
    let sampler = Sampler::new(options, VOCAB).unwrap();
    ConstrainedSampler::new(sampler, grammars().compile(constraint).unwrap(), start)
}

/// Text that is forced beside some that is not, in an answer that does not end soon.
pub fn long_schema() -> Constraint {
    let schema = r#"{"type": "object", "required": ["id", "words"], "additionalProperties": false, "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 99},
        "words": {"type": "array", "minItems": 40, "items": {"enum": ["alpha", "beta", null, true]}}}}"#;
    Constraint::new(ConstraintKind::JsonSchema, schema)
}

/// Every kind of choice under [`long_schema`]: drawn after penalties.
pub fn drawn_by_grammar(start: usize) -> ConstrainedSampler {
    constrained(&long_schema(), &SamplerOptions { temperature: 1.1, ..penalties(4) }, start)
}

/// Makes the last tokens unlikely: a choice that depends on what came before.
#[derive(Clone, Copy)]
pub struct Penalised;

impl Sample for Penalised {
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError> {
        let window = &before[before.len().saturating_sub(2)..];
        let allowed: Vec<u32> = (0..logits.len() as u32).filter(|id| !window.contains(id)).collect();
        Ok(unisonic_core::numerics::sampling::greedy(logits, &allowed).unwrap())
    }
}

/// Guesses from a script: the right tokens with errors here and there.
pub struct Scripted {
    /// What will be said, from the beginning of the sequence.
    pub right: Vec<u32>,
    /// One in so many guesses is wrong; 0: none, 1: all.
    pub wrong_every: usize,
    /// What a wrong guess is.
    pub wrong: u32,
}

impl Drafter for Scripted {
    fn look(&mut self, _tokens: &[u32]) -> Option<Confidence> {
        Some(Confidence::of_match_len(100))
    }

    fn draft(&mut self, tokens: &[u32], width: usize, draft: &mut Vec<u32>) {
        for at in tokens.len()..tokens.len() + width {
            let wrong = self.wrong_every > 0 && at.is_multiple_of(self.wrong_every);
            draft.push(if wrong { self.wrong } else { self.right.get(at).copied().unwrap_or(self.wrong) });
        }
    }
}

/// What a generation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub ids: Vec<u32>,
    pub stop: &'static str,
    /// Digest of the bits of the logits that each token was chosen from.
    pub digests: Vec<u64>,
}

pub fn digest(logits: &[f32]) -> u64 {
    logits.iter().fold(7, |hash: u64, z| {
        (hash ^ u64::from(z.to_bits())).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

/// Generates; `end_token` is the one end-of-generation token.
pub fn answer_in(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    end_token: Option<u32>,
    options: GenerateOptions<'_>,
) -> Result<(Answer, Completion), EngineError> {
    let mut digests = Vec::new();
    let completion =
        generate(engine, session, prompt, options, &|token| Some(token) == end_token, &mut |_, logits| {
            digests.push(digest(logits));
            ControlFlow::Continue(())
        })?;
    let answer = Answer { ids: completion.token_ids.clone(), stop: completion.stop.as_str(), digests };
    Ok((answer, completion))
}

/// Generates greedily in a session that begins with what the tree has of the prompt; with the number of
/// tokens that it had.
pub fn reusing(engine: &mut Engine, prompt: &[u32], max_tokens: u32) -> (Answer, usize) {
    let mut session = engine.session_for(b"", prompt).unwrap();
    let held = session.tokens().len();
    assert_eq!(session.tokens(), &prompt[..held]);
    let rest = &prompt[held..];
    let options = GenerateOptions { max_tokens: Some(max_tokens), ..GenerateOptions::default() };
    (answer_in(engine, &mut session, rest, None, options).unwrap().0, held)
}

/// Generates greedily without any help.
pub fn alone(engine: &mut Engine, prompt: &[u32], max_tokens: u32) -> Answer {
    let mut session = engine.session();
    let options = GenerateOptions { max_tokens: Some(max_tokens), ..GenerateOptions::default() };
    answer_in(engine, &mut session, prompt, None, options).unwrap().0
}

/// Says on stderr, past the test's capture, what a tier leaves out.
pub fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
