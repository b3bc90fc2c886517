//! One sequence on its way from prompt to end, whoever runs its rows.

use std::ops::ControlFlow;

use unisonic_core::plan::PAGE_TOKENS;

use super::{Sample, Stop};
use crate::draft::{Acceptance, Confidence, DraftStats, Drafter, Load, MAX_VERIFY_ROWS, width};
use crate::step::{Look, Output};
use crate::{Engine, EngineError, Session};

/// What is known of a sequence: its tokens, which may be more than its session holds. All after those is yet to be run, be
/// it the rest of a prompt, the last token, or what a session has lost.
pub(crate) struct Generation {
    tokens: Vec<u32>,
    prompt_len: usize,
    max_tokens: Option<u32>,
    acceptance: Acceptance,
}

/// Room for one sequence in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// At least 1.
    pub rows: usize,
    pub outputs: usize,
    /// What the others do, if guesses may be made.
    pub guesses: Option<Load>,
}

/// Rows of one sequence in one step: tokens that are certain, and guesses after them.
#[derive(Debug)]
pub(crate) struct Turn {
    pub tokens: Vec<u32>,
    /// Index into `tokens` of the first whose logits are wanted.
    pub first_output: usize,
    /// Number of tokens that are certain.
    certain: usize,
    /// Tokens in the session before.
    base: usize,
    confidence: Option<Confidence>,
}

/// Who knows what may come.
struct Guessers<'a> {
    sampler: &'a mut dyn Sample,
    drafter: &'a mut dyn Drafter,
}

impl Turn {
    /// Rows with logits.
    pub(crate) fn outputs(&self) -> usize {
        self.tokens.len().saturating_sub(self.first_output)
    }
}

impl Generation {
    /// Of a prompt: all tokens of the sequence so far.
    pub(crate) fn new(prompt: Vec<u32>, max_tokens: Option<u32>) -> Self {
        Self { prompt_len: prompt.len(), tokens: prompt, max_tokens, acceptance: Acceptance::default() }
    }

    /// All tokens: the prompt and what was generated.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt_len..]
    }

    pub(crate) fn stats(&self) -> DraftStats {
        self.acceptance.stats
    }

    /// Whether the sequence has come to an end by its length. A generated token needs a place in the context as well; a
    /// prompt that leaves none is the caller's error.
    pub(crate) fn limit(&self, engine: &Engine) -> Result<Option<Stop>, EngineError> {
        let generated = self.generated().len();
        let enough = self.max_tokens.is_some_and(|max| generated >= max as usize);
        if self.tokens.len() < engine.context_len() as usize {
            return Ok(enough.then_some(Stop::Length));
        }
        if generated == 0 {
            return Err(EngineError::ContextOverflow {
                needed: self.tokens.len() + 1,
                context_len: engine.context_len(),
                trained_len: engine.plan().context_len,
            });
        }
        Ok(Some(if enough { Stop::Length } else { Stop::Context }))
    }

    /// Whether the sequence has come to an end before its next step.
    pub(crate) fn end(
        &self,
        engine: &Engine,
        sampler: &mut (dyn Sample + '_),
    ) -> Result<Option<Stop>, EngineError> {
        if let Some(stop) = self.limit(engine)? {
            return Ok(Some(stop));
        }
        // Later ends are seen as they come.
        let complete = self.generated().is_empty() && sampler.is_complete(&self.tokens)?;
        Ok(complete.then_some(Stop::Grammar))
    }

    /// Whether the sequence ends with the token that was just chosen; `flow` is what its caller says to it.
    pub(crate) fn end_at(
        &self,
        token: u32,
        is_stop: &dyn Fn(u32) -> bool,
        sampler: &mut (dyn Sample + '_),
        flow: ControlFlow<()>,
    ) -> Result<Option<Stop>, EngineError> {
        if is_stop(token) {
            return Ok(Some(Stop::Eog));
        }
        if sampler.is_complete(&self.tokens)? {
            return Ok(Some(Stop::Grammar));
        }
        Ok(flow.is_break().then_some(Stop::Cancelled))
    }

    /// The rows of the next step, for which the session then has pages. There are none if the only row left needs an output
    /// and none is to be had.
    pub(crate) fn plan(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        budget: Budget,
        sampler: &mut (dyn Sample + '_),
        drafter: Option<&mut (dyn Drafter + '_)>,
    ) -> Result<Turn, EngineError> {
        // What the session loses by this is still in `tokens`.
        engine.own_tail(session)?;
        let base = session.tokens().len();
        let pending = self.tokens.len() - base;
        let certain = pending.min(budget.rows).min(if budget.outputs == 0 { pending - 1 } else { pending });
        engine.reserve(session, base + certain)?;
        let tokens = self.tokens[base..base + certain].to_vec();
        let mut turn = Turn { tokens, first_output: pending - 1, certain, base, confidence: None };
        if certain == pending
            && let (Some(drafter), Some(others)) = (drafter, budget.guesses)
        {
            let load = Load { rows: others.rows + certain, tokens: others.tokens + 1 };
            let most = self.most_guesses(engine, &budget, certain);
            self.guess(engine, session, &mut turn, Guessers { sampler, drafter }, load, most);
        }
        Ok(turn)
    }

    /// Guesses that plain decoding could run as well if they came true.
    fn most_guesses(&self, engine: &Engine, budget: &Budget, certain: usize) -> usize {
        let context = (engine.context_len() as usize).saturating_sub(self.tokens.len() + 1);
        let wanted = self
            .max_tokens
            .map_or(usize::MAX, |max| (max as usize).saturating_sub(self.generated().len() + 1));
        let rows = (budget.rows - certain).min(budget.outputs - 1).min(MAX_VERIFY_ROWS - 1);
        rows.min(context).min(wanted)
    }

    fn guess(
        &self,
        engine: &mut Engine,
        session: &mut Session,
        turn: &mut Turn,
        guessers: Guessers<'_>,
        load: Load,
        most: usize,
    ) {
        if most == 0 {
            return;
        }
        let Guessers { sampler, drafter } = guessers;
        let mut guesses = sampler.forced(&self.tokens);
        let forced = !guesses.is_empty();
        let confidence = if forced { Some(Confidence::FORCED) } else { drafter.look(&self.tokens) };
        let Some(confidence) = confidence else { return };
        let rate = self.acceptance.rate(confidence);
        let seconds_per_token = if forced { 0.0 } else { drafter.seconds_per_token() };
        let mut width = width(rate, most, load, engine.costs(), seconds_per_token);
        let len = turn.base + turn.certain;
        if engine.reserve(session, len + width).is_err() {
            // Guesses take no page from others.
            width = width.min(session.pages.pages().len() * PAGE_TOKENS as usize - len);
        }
        if width == 0 {
            return;
        }
        if !forced {
            drafter.draft(&self.tokens, width, &mut guesses);
        }
        let vocab_len = engine.plan().vocab_len;
        let good = guesses.iter().take(width).take_while(|&&token| token < vocab_len).count();
        let good = sampler.possible(&self.tokens, &guesses[..good]);
        turn.tokens.extend_from_slice(&guesses[..good]);
        turn.confidence = (good > 0).then_some(confidence);
    }

    /// How the next step may look at what comes of a turn, in at most so many runs; the session then has pages for them.
    pub(crate) fn look(
        &self,
        engine: &Engine,
        session: &mut Session,
        turn: &Turn,
        sampler: &(dyn Sample + '_),
        most_runs: u32,
    ) -> Look {
        if sampler.needs_logits() || turn.outputs() == 0 {
            return Look::AtLogits;
        }
        let last = self.tokens.len();
        let context = (engine.context_len() as usize).saturating_sub(last);
        let wanted = self.max_tokens.map_or(usize::MAX, |max| (max as usize) - self.generated().len());
        let runs = context.min(wanted).min(most_runs as usize).max(1);
        let alone = turn.tokens.len() == 1;
        let mut fits = |runs: usize| engine.reserve(session, turn.base + runs).is_ok();
        Look::AtTokens { runs: if alone && runs > 1 && fits(runs) { runs as u32 } else { 1 } }
    }

    /// Chooses the token after a row of a turn, unless the row is a guess that has not come true. Rows come in order; none
    /// after an end token or an error. Rows past the tokens of the turn are those of later runs.
    pub(crate) fn take(
        &mut self,
        turn: &Turn,
        row: usize,
        output: Result<Output<'_>, EngineError>,
        sampler: &mut (dyn Sample + '_),
    ) -> Result<Option<u32>, EngineError> {
        let was_guessed_wrong =
            |token: &u32| self.tokens.get(turn.base + row).is_none_or(|came| came != token);
        if turn.tokens.get(row).is_some_and(was_guessed_wrong) {
            return Ok(None);
        }
        let output = output?;
        if turn.base + row + 1 != self.tokens.len() {
            return Ok(None);
        }
        let token = match output {
            Output::Logits(logits) => sampler.sample(logits, &self.tokens)?,
            Output::Token(token) => token,
        };
        self.tokens.push(token);
        Ok(Some(token))
    }

    /// Ends a turn: the session forgets what did not come true, and a last token is never in it.
    pub(crate) fn settle(&mut self, turn: &Turn, session: &mut Session) {
        session.truncate(self.tokens.len() - 1);
        let chosen = self.tokens.len().saturating_sub(turn.base + turn.certain);
        if chosen > 0 && turn.outputs() > 0 {
            // Without guesses, a step a token, also where several ran one after the other.
            self.acceptance.stats.steps += if turn.confidence.is_some() { 1 } else { chosen as u64 };
            if let Some(confidence) = turn.confidence {
                self.acceptance.record(confidence, turn.tokens.len() - turn.certain, chosen - 1);
            }
        }
    }
}
