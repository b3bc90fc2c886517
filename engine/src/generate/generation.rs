//! One sequence on its way from prompt to end, whoever runs its rows.

use unisonic_core::plan::PAGE_TOKENS;

use super::{Sample, Stop};
use crate::draft::{Acceptance, Confidence, DraftStats, Drafter, Load, MAX_VERIFY_ROWS, width};
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

    /// The rows of the next step, for which the session then has pages. There are none if the only row left needs an output
    /// and none is to be had.
    pub(crate) fn plan(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        budget: Budget,
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
            self.guess(engine, session, &mut turn, drafter, load, most);
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
        drafter: &mut (dyn Drafter + '_),
        load: Load,
        most: usize,
    ) {
        if most == 0 {
            return;
        }
        let Some(confidence) = drafter.look(&self.tokens) else { return };
        let rate = self.acceptance.rate(confidence);
        let mut width = width(rate, most, load, engine.costs(), drafter.seconds_per_token());
        let len = turn.base + turn.certain;
        if engine.reserve(session, len + width).is_err() {
            // Guesses take no page from others.
            width = width.min(session.pages.pages().len() * PAGE_TOKENS as usize - len);
        }
        if width == 0 {
            return;
        }
        drafter.draft(&self.tokens, width, &mut turn.tokens);
        let vocab_len = engine.plan().vocab_len;
        let guesses = turn.tokens[turn.certain..].iter().take(width);
        let good = guesses.take_while(|&&token| token < vocab_len).count();
        turn.tokens.truncate(turn.certain + good);
        turn.confidence = (good > 0).then_some(confidence);
    }

    /// Chooses the token after a row of a turn, unless the row is a guess that has not come true. Rows come in order; none
    /// after an end token or an error.
    pub(crate) fn take(
        &mut self,
        turn: &Turn,
        row: usize,
        logits: Result<&[f32], EngineError>,
        sampler: &mut (dyn Sample + '_),
    ) -> Result<Option<u32>, EngineError> {
        if self.tokens.get(turn.base + row) != Some(&turn.tokens[row]) {
            return Ok(None);
        }
        let logits = logits?;
        if turn.base + row + 1 != self.tokens.len() {
            return Ok(None);
        }
        let token = sampler.sample(logits, &self.tokens)?;
        self.tokens.push(token);
        Ok(Some(token))
    }

    /// Ends a turn: the session forgets what did not come true, and a last token is never in it.
    pub(crate) fn settle(&mut self, turn: &Turn, session: &mut Session) {
        session.truncate(self.tokens.len() - 1);
        let chosen = self.tokens.len().saturating_sub(turn.base + turn.certain);
        if chosen > 0 && turn.outputs() > 0 {
            self.acceptance.stats.steps += 1;
            if let Some(confidence) = turn.confidence {
                self.acceptance.record(confidence, turn.tokens.len() - turn.certain, chosen - 1);
            }
        }
    }
}
