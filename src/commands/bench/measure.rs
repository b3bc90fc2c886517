//! What is measured, and the loop that measures it.
//!
//! Rounds are interleaved: each measures every test once, so that a machine that is busy for a while slows
//! all tests and not one; each begins with another test, so that no test always follows the same one. The
//! first round only warms up.

use std::ops::ControlFlow;
use std::time::Instant;

use unisonic_core::numerics::philox::random_word;
use unisonic_engine::draft::{Drafter, MAX_VERIFY_ROWS};
use unisonic_engine::{Engine, EngineError, GenerateOptions, GreedyTokens, Session, generate};

use super::bandwidth::Bandwidth;
use super::profile::Profiled;
use super::recorded::Recorded;
use crate::digest::{LogitsDigest, ids_sha256};

/// Tokens of the prompt whose continuation is digested.
pub const DIGEST_PROMPT_TOKENS: u32 = 16;
/// Tokens of the continuation.
pub const DIGEST_TOKENS: u32 = 64;

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads a prompt and gives the logits of its last token.
    Prefill,
    /// Reads fixed tokens one after the other and gives the logits of each; none of them is chosen by the
    /// model.
    Decode,
    /// Generates tokens greedily after one fixed token, without guesses; nobody looks at logits.
    Generate,
    /// The same with guesses that all come true: what speculation reaches at best.
    Recorded,
    /// One step that reads fixed tokens of a sequence and picks the most likely one after each, as where guesses are checked.
    Verify,
    /// One step that reads a fixed token in each of so many sequences and picks the most likely one after each.
    Parallel,
}

impl Work {
    /// The word for tables and machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Work::Prefill => "prefill",
            Work::Decode => "decode",
            Work::Generate => "generate",
            Work::Recorded => "recorded",
            Work::Verify => "verify",
            Work::Parallel => "parallel",
        }
    }
}

/// Steps of which one is the mean, where a test is a single step.
const STEPS: u32 = 8;

/// Work on a number of tokens that follow `depth` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// What it does.
    pub work: Work,
    /// On how many tokens.
    pub tokens: u32,
    /// After how many tokens, whose keys and values are in the cache.
    pub depth: u32,
}

impl Test {
    /// Length of its sequences when it is done; a token that is generated needs a place, too.
    pub fn end(&self) -> u64 {
        let tokens = u64::from(self.tokens);
        let added = match self.work {
            Work::Prefill | Work::Decode | Work::Verify => tokens,
            Work::Generate | Work::Recorded => tokens + 1,
            Work::Parallel => STEPS.into(),
        };
        u64::from(self.depth) + added
    }

    /// Sequences that it has at once.
    pub fn sequences(&self) -> u32 {
        if self.work == Work::Parallel { self.tokens } else { 1 }
    }

    /// Rows of a step whose logits are needed.
    pub fn outputs(&self) -> u32 {
        match self.work {
            Work::Prefill | Work::Decode | Work::Generate => 1,
            Work::Recorded => MAX_VERIFY_ROWS as u32,
            Work::Verify | Work::Parallel => self.tokens,
        }
    }
}

/// Digests of a greedy continuation: the same for the same file and profile on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// SHA-256 over the logits of each step.
    pub logits_sha256: String,
    /// SHA-256 over the ids.
    pub ids_sha256: String,
}

/// Continues the first [`DIGEST_PROMPT_TOKENS`] tokens of [`fixed_ids`] by [`DIGEST_TOKENS`], past any end
/// token. `done` is called after each.
pub fn continuation(engine: &mut Engine, done: &dyn Fn()) -> Result<Continuation, EngineError> {
    let prompt = fixed_ids(DIGEST_PROMPT_TOKENS.into(), engine.plan().vocab_len);
    let options = GenerateOptions { max_tokens: Some(DIGEST_TOKENS), ..GenerateOptions::default() };
    let mut logits_digest = LogitsDigest::default();
    let mut session = engine.session();
    let completion = generate(engine, &mut session, &prompt, options, &|_| false, &mut |_, logits| {
        logits_digest.update(logits);
        done();
        ControlFlow::Continue(())
    })?;
    let ids_sha256 = ids_sha256(&completion.token_ids);
    Ok(Continuation { logits_sha256: logits_digest.finish(), ids_sha256 })
}

/// Token ids that look random and are always the same: id i is the Philox word of position i, modulo the
/// vocabulary.
fn fixed_ids(len: u64, vocab_len: u32) -> Vec<u32> {
    (0..len).map(|position| random_word(0, position as u32, 0, 0) % vocab_len.max(1)).collect()
}

/// Tests on an engine, with as many sequences for each depth as its tests have at once.
pub struct Bench<'a> {
    engine: &'a mut Engine,
    tests: &'a [Test],
    ids: Vec<u32>,
    sessions: Vec<(u32, Vec<Session>)>,
    /// The answers that guesses come from, by depth, once they are known.
    recorded: Vec<(u32, Recorded)>,
}

impl<'a> Bench<'a> {
    /// Fills the cache of each depth. `progress(tokens)` is called as it goes on.
    pub fn new(
        engine: &'a mut Engine,
        tests: &'a [Test],
        progress: &dyn Fn(u64),
    ) -> Result<Self, EngineError> {
        let longest = tests.iter().map(Test::end).max().unwrap_or(0);
        let ids = fixed_ids(longest, engine.plan().vocab_len);
        let piece_len = engine.chunk_rows() as usize;
        let mut all = Vec::new();
        for depth in depths(tests) {
            let mut sessions = Vec::new();
            for _ in 0..sequences(tests, depth) {
                let mut session = engine.session();
                for piece in ids[..depth as usize].chunks(piece_len) {
                    engine.extend(&mut session, piece, piece.len(), &mut |_, _| {})?;
                    progress(piece.len() as u64);
                }
                sessions.push(session);
            }
            all.push((depth, sessions));
        }
        Ok(Self { engine, tests, ids, sessions: all, recorded: vec![] })
    }

    /// Measures every test once, the one with index `first` (modulo their number) first; seconds of each, in
    /// the order of the tests. `done` is called after each.
    pub fn round(&mut self, first: usize, done: &dyn Fn()) -> Result<Vec<f64>, EngineError> {
        let count = self.tests.len();
        let mut seconds = vec![0.0; count];
        for index in (0..count).map(|step| (first + step) % count) {
            seconds[index] = self.run(self.tests[index])?;
            done();
        }
        Ok(seconds)
    }

    /// Where the time of a test's first step goes, after `repetitions` of it. What it adds to its sequence is
    /// as in [`Bench::round`].
    pub fn profile(&mut self, test: Test, repetitions: u32) -> Result<Profiled, EngineError> {
        let (work, rows) = match test.work {
            Work::Prefill => (Work::Prefill, test.tokens.min(self.engine.chunk_rows())),
            Work::Decode | Work::Generate | Work::Recorded => (Work::Decode, 1),
            // In one sequence or in many: the launches are the same.
            Work::Verify | Work::Parallel => (Work::Verify, test.tokens),
        };
        let step = Test { work, tokens: rows, ..test };
        let (engine, sessions, ids) = self.ready(step);
        let first_output = if work == Work::Verify { 0 } else { ids.len().saturating_sub(1) };
        let run = engine.profile(&mut sessions[0], &ids[..rows as usize], first_output, repetitions)?;
        self.run(step)?;
        let seconds = (0..repetitions).map(|_| self.run(step)).collect::<Result<_, _>>()?;
        Ok(Profiled { test, rows, seconds, run })
    }

    /// Seconds of a test. What it adds to its sequences is what they had there before, if anything, so that all rounds do
    /// the same.
    fn run(&mut self, test: Test) -> Result<f64, EngineError> {
        if test.work == Work::Recorded {
            return self.run_recorded(test);
        }
        let (engine, sessions, ids) = self.ready(test);
        let (session, tokens) = (&mut sessions[0], &ids[..test.tokens.min(ids.len() as u32) as usize]);
        let started = Instant::now();
        let mut steps = 1;
        match test.work {
            Work::Prefill => {
                engine.extend(session, tokens, tokens.len().saturating_sub(1), &mut |_, _| {})?
            }
            Work::Decode => {
                for id in tokens {
                    engine.extend(session, &[*id], 0, &mut |_, _| {})?;
                }
            }
            Work::Generate | Work::Recorded => {
                drop(generate_tokens(engine, session, ids[0], test.tokens, None)?)
            }
            Work::Verify => {
                steps = STEPS;
                for _ in 0..STEPS {
                    session.truncate(test.depth as usize);
                    engine.pick_each(&mut [(&mut *session, tokens)])?;
                }
            }
            Work::Parallel => {
                steps = STEPS;
                for id in &ids[..STEPS as usize] {
                    let sessions = sessions[..test.tokens as usize].iter_mut();
                    let mut parts: Vec<_> =
                        sessions.map(|session| (session, std::slice::from_ref(id))).collect();
                    engine.pick_each(&mut parts)?;
                }
            }
        }
        Ok(started.elapsed().as_secs_f64() / f64::from(steps))
    }

    /// Seconds of [`Work::Recorded`]. The first time generates the answer without guesses, and is that time.
    fn run_recorded(&mut self, test: Test) -> Result<f64, EngineError> {
        let known = self
            .recorded
            .iter()
            .position(|(depth, answer)| *depth == test.depth && answer.len() >= test.tokens);
        let mut drafter = known.map(|index| self.recorded[index].1.clone());
        let (engine, sessions, ids) = self.ready(test);
        let first = ids[0];
        let started = Instant::now();
        let drafter = drafter.as_mut().map(|drafter| drafter as _);
        let answer = generate_tokens(engine, &mut sessions[0], first, test.tokens, drafter)?;
        let seconds = started.elapsed().as_secs_f64();
        if known.is_none() {
            self.recorded.push((test.depth, Recorded::new(test.depth, answer)));
        }
        Ok(seconds)
    }

    /// The sequences of a test as they are before the test, and the ids that the test adds to them.
    fn ready(&mut self, test: Test) -> (&mut Engine, &mut [Session], &[u32]) {
        let mut sessions = self.sessions.iter_mut();
        let (_, sessions) = sessions.find(|(depth, _)| *depth == test.depth).expect("all depths have some");
        sessions.iter_mut().for_each(|session| session.truncate(test.depth as usize));
        (self.engine, sessions, &self.ids[test.depth as usize..test.end() as usize])
    }
}

/// Generates so many tokens greedily after a token.
fn generate_tokens(
    engine: &mut Engine,
    session: &mut Session,
    first: u32,
    tokens: u32,
    drafter: Option<&mut dyn Drafter>,
) -> Result<Vec<u32>, EngineError> {
    let mut greedy = GreedyTokens;
    let options = GenerateOptions {
        max_tokens: Some(tokens),
        sampler: Some(&mut greedy),
        drafter: drafter.map(|drafter| drafter as _),
        ..GenerateOptions::default()
    };
    let go_on = &mut |_: u32, _: &[f32]| ControlFlow::Continue(());
    Ok(generate(engine, session, &[first], options, &|_| false, go_on)?.token_ids)
}

/// Sequences that tests at a depth have at once.
pub fn sequences(tests: &[Test], depth: u32) -> u32 {
    tests.iter().filter(|test| test.depth == depth).map(Test::sequences).max().unwrap_or(0)
}

/// The depths of tests, each once, in their order.
pub fn depths(tests: &[Test]) -> Vec<u32> {
    let mut depths = Vec::new();
    for test in tests {
        if !depths.contains(&test.depth) {
            depths.push(test.depth);
        }
    }
    depths
}

/// What the rounds found.
pub struct Measurements {
    /// Seconds of each test, in each round.
    pub seconds: Vec<Vec<f64>>,
    /// Bandwidth of each round in bytes a second, measured before its tests; empty where it is not measured.
    pub bandwidths: Vec<f64>,
}

/// Measures the tests in rounds, and the bandwidth before each.
pub fn repeat(
    bench: &mut Bench<'_>,
    repetitions: u32,
    bandwidth: Option<&Bandwidth>,
    done: &dyn Fn(),
) -> Result<Measurements, EngineError> {
    let mut found = Measurements { seconds: vec![Vec::new(); bench.tests.len()], bandwidths: Vec::new() };
    for round in 0..repetitions as usize {
        found.bandwidths.extend(bandwidth.map(Bandwidth::measure));
        for (all, one) in found.seconds.iter_mut().zip(bench.round(round, done)?) {
            all.push(one);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_and_inside_the_vocabulary() {
        let ids = fixed_ids(1000, 259);
        assert!(ids.iter().all(|&id| id < 259));
        assert_eq!(
            fixed_ids(3, u32::MAX),
            [random_word(0, 0, 0, 0), random_word(0, 1, 0, 0), random_word(0, 2, 0, 0)]
        );
        let mut distinct = ids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 200, "{} of 259 ids occur", distinct.len());
    }

    #[test]
    fn each_depth_is_filled_once() {
        let test = |depth| Test { work: Work::Decode, tokens: 1, depth };
        assert_eq!(depths(&[test(0), test(512), test(0), test(512)]), [0, 512]);
    }
}
