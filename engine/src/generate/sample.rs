//! How a token is chosen.

use unisonic_core::numerics::sampling::most_likely;

use crate::EngineError;

/// Chooses tokens. A choice is a function of the logits and the tokens before it, of nothing else: so it is the same
/// whether the logits came one row at a time or many, and a guess is right exactly if it is what is chosen.
pub trait Sample: Send {
    /// The token that follows `before`, all tokens of the sequence so far, whose last one gave these logits.
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError>;
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
