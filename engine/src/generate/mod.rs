//! Continuation of a prompt, one sequence at a time.
//!
//! `Generation` is the state of a sequence between steps, the same for [`generate()`] and for a
//! [`Scheduler`](crate::schedule::Scheduler); [`Sample`] chooses its tokens.

mod generation;
mod sample;

use std::ops::ControlFlow;

use crate::draft::{DraftStats, Drafter, Load};
use crate::step::Part;
use crate::{Engine, EngineError, Session};

pub(crate) use generation::{Budget, Generation, Turn};
pub use sample::{Greedy, GreedyTokens, Sample};

/// Limits of a generation, and how its tokens come about.
#[derive(Default)]
pub struct GenerateOptions<'a> {
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<u32>,
    /// Asked after each chunk of the prompt but the last: whether to stop before there is a token.
    pub cancelled: Option<&'a dyn Fn() -> bool>,
    /// Chooses tokens; `None`: [`Greedy`].
    pub sampler: Option<&'a mut dyn Sample>,
    /// Guesses tokens, which changes the speed and nothing else; `None`: no guesses.
    pub drafter: Option<&'a mut dyn Drafter>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model ended its answer with an end-of-generation token.
    Eog,
    /// `max_tokens` were generated.
    Length,
    /// The context is full.
    Context,
    /// The answer is complete: its constraint allows nothing more.
    Grammar,
    /// The caller asked to stop.
    Cancelled,
}

impl Stop {
    /// The word for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Stop::Eog => "eog",
            Stop::Length => "length",
            Stop::Context => "context",
            Stop::Grammar => "grammar",
            Stop::Cancelled => "cancelled",
        }
    }
}

/// What was generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Generated ids, an end token included.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub stop: Stop,
    /// What guessing did; the one thing here that depends on the machine.
    pub drafts: DraftStats,
}

/// Appends `prompt` to the session and continues it.
///
/// `is_stop` tells end-of-generation tokens; `on_token` sees each token as it is chosen, together with the
/// logits it was chosen from (unless the sampler needs none), and may stop the generation. In the end the session holds all tokens but the
/// last.
pub fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    options: GenerateOptions<'_>,
    is_stop: &dyn Fn(u32) -> bool,
    on_token: &mut dyn FnMut(u32, &[f32]) -> ControlFlow<()>,
) -> Result<Completion, EngineError> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    engine.check(session, 0)?;
    let mut greedy = Greedy;
    let sampler = options.sampler.unwrap_or(&mut greedy);
    let mut drafter = options.drafter;
    let mut generation = Generation::new([session.tokens(), prompt].concat(), options.max_tokens);
    let budget = Budget {
        rows: engine.chunk_rows() as usize,
        outputs: engine.max_outputs() as usize,
        guesses: Some(Load { rows: 0, tokens: 0 }),
    };
    let stop = loop {
        if let Some(stop) = generation.end(engine, sampler)? {
            break stop;
        }
        let turn = generation.plan(engine, session, budget, sampler, drafter.as_deref_mut())?;
        let mut end = Ok(None);
        let look = generation.look(engine, session, &turn, sampler, engine.most_runs(1, drafter.is_some()));
        let part = Part { session: &mut *session, tokens: &turn.tokens, first_output: turn.first_output };
        engine.step(&mut [part], look, &mut |_, row, output| {
            if !matches!(end, Ok(None)) {
                return;
            }
            let bits = output.as_ref().map_or(&[][..], |output| output.logits_for(sampler));
            end = generation.take(&turn, row, output, sampler).and_then(|token| {
                let Some(token) = token else { return Ok(None) };
                let flow = on_token(token, bits);
                generation.end_at(token, is_stop, sampler, flow)
            });
        })?;
        generation.settle(&turn, session);
        engine.store_pages(session)?;
        if let Some(stop) = end? {
            break stop;
        }
        if turn.outputs() == 0 && options.cancelled.is_some_and(|cancelled| cancelled()) {
            break Stop::Cancelled;
        }
    };
    Ok(Completion { token_ids: generation.generated().to_vec(), stop, drafts: generation.stats() })
}
