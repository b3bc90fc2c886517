//! What is measured, and the loop that measures it.
//!
//! Rounds are interleaved: each measures every test once, so that a machine that is busy for a while slows
//! all tests and not one; each begins with another test, so that no test always follows the same one. The
//! first round only warms up.

use std::ops::ControlFlow;
use std::time::Instant;

use unisonic_core::numerics::philox::random_word;
use unisonic_engine::{Engine, EngineError, GenerateOptions, GreedyTokens, Session, generate};

use super::bandwidth::Bandwidth;
use super::profile::Profiled;
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
}

impl Work {
    /// The word for tables and machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Work::Prefill => "prefill",
            Work::Decode => "decode",
            Work::Generate => "generate",
        }
    }
}

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
    /// Length of the sequence when it is done; a token that is generated needs a place, too.
    pub fn end(&self) -> u64 {
        let generated = u64::from(self.work == Work::Generate);
        u64::from(self.depth) + u64::from(self.tokens) + generated
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

/// Tests on an engine, with a sequence for each depth.
pub struct Bench<'a> {
    engine: &'a mut Engine,
    tests: &'a [Test],
    ids: Vec<u32>,
    sessions: Vec<(u32, Session)>,
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
        let mut sessions = Vec::new();
        for depth in depths(tests) {
            let mut session = engine.session();
            for piece in ids[..depth as usize].chunks(piece_len) {
                engine.extend(&mut session, piece, piece.len(), &mut |_, _| {})?;
                progress(piece.len() as u64);
            }
            sessions.push((depth, session));
        }
        Ok(Self { engine, tests, ids, sessions })
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
        let rows = match test.work {
            Work::Prefill => test.tokens.min(self.engine.chunk_rows()),
            Work::Decode | Work::Generate => 1,
        };
        let step = Test { tokens: rows, ..test };
        let (engine, session, ids) = self.ready(step);
        let run = engine.profile(session, ids, ids.len().saturating_sub(1), repetitions)?;
        self.run(step)?;
        let seconds = (0..repetitions).map(|_| self.run(step)).collect::<Result<_, _>>()?;
        Ok(Profiled { test, rows, seconds, run })
    }

    /// Seconds of a test. What it adds to its sequence is what the sequence had there before, if anything, so
    /// that all rounds do the same.
    fn run(&mut self, test: Test) -> Result<f64, EngineError> {
        let (engine, session, ids) = self.ready(test);
        let started = Instant::now();
        match test.work {
            Work::Prefill => engine.extend(session, ids, ids.len().saturating_sub(1), &mut |_, _| {})?,
            Work::Decode => {
                for id in ids {
                    engine.extend(session, &[*id], 0, &mut |_, _| {})?;
                }
            }
            Work::Generate => {
                let options = GenerateOptions {
                    max_tokens: Some(test.tokens),
                    sampler: Some(&mut GreedyTokens),
                    ..GenerateOptions::default()
                };
                let go_on = &mut |_: u32, _: &[f32]| ControlFlow::Continue(());
                generate(engine, session, &ids[..1], options, &|_| false, go_on)?;
            }
        }
        Ok(started.elapsed().as_secs_f64())
    }

    /// The sequence of a test as it is before the test, and the ids that the test adds to it.
    fn ready(&mut self, test: Test) -> (&mut Engine, &mut Session, &[u32]) {
        let mut sessions = self.sessions.iter_mut();
        let (_, session) = sessions.find(|(depth, _)| *depth == test.depth).expect("all depths have one");
        session.truncate(test.depth as usize);
        (self.engine, session, &self.ids[test.depth as usize..][..test.tokens as usize])
    }
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
