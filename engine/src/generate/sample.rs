//! How a token is chosen.

use unisonic_core::numerics::sampling::most_likely;

use crate::EngineError;

/// Chooses tokens. A choice is a function of the logits and the tokens before it, of nothing else: so it is the same
/// whether the logits came one row at a time or many, and a guess is right exactly if it is what is chosen.
pub trait Sample: Send {
    /// The token that follows `before`, all tokens of the sequence so far, whose last one gave these logits.
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError>;

    /// Whether logits are looked at. If not, each choice is that of [`Greedy`], and who is told of the token is given no
    /// logits: they may stay on the device, which may run several steps before it hands tokens over.
    fn needs_logits(&self) -> bool {
        true
    }

    /// Whether the answer ends with `tokens`, all tokens of the sequence so far, because nothing may follow.
    fn is_complete(&mut self, _tokens: &[u32]) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// How many of these guesses of what follows `tokens` may be chosen at all. Changes the speed and nothing else.
    fn possible(&mut self, _tokens: &[u32], guesses: &[u32]) -> usize {
        guesses.len()
    }

    /// Guesses of what has to follow `tokens`. Changes the speed and nothing else.
    fn forced(&mut self, _tokens: &[u32]) -> Vec<u32> {
        Vec::new()
    }
}

/// The largest logit; of equals the lowest id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl Sample for Greedy {
    fn sample(&mut self, logits: &[f32], _before: &[u32]) -> Result<u32, EngineError> {
        // A vocabulary is never empty.
        Ok(most_likely(logits).unwrap_or_default())
    }
}

/// As [`Greedy`], for callers that do not look at logits.
#[derive(Clone, Copy, Debug, Default)]
pub struct GreedyTokens;

impl Sample for GreedyTokens {
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError> {
        Greedy.sample(logits, before)
    }

    fn needs_logits(&self) -> bool {
        false
    }
}
