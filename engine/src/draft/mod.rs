//! Speculation: guesses of the next tokens, run in one batch and kept as far as they come true.
//!
//! - [`Drafter`]: guesses. [`NgramDrafter`] looks up what followed the last tokens before, [`ModelDrafter`] asks a
//!   smaller model.
//! - [`StepCosts`] and [`Acceptance`]: from them follows how many tokens are worth guessing ([`width`]).
//!
//! A guess is kept only if it is the token that the sampler chooses from the logits before it, and these are the bits
//! they would have been without the guess: every choice here is one of speed. [`crate::generate()`] has the checking.

mod acceptance;
mod costs;
mod model;
mod ngram;
mod suffixes;
mod width;

pub use acceptance::{Acceptance, Confidence, DraftStats};
pub use costs::{ROW_BUCKETS, StepCosts};
pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub use width::{Load, width};

/// Most rows of a sequence that are checked in one step: the last token, and up to 63 guesses.
pub const MAX_VERIFY_ROWS: usize = 64;

/// Guesses the next tokens of one sequence.
pub trait Drafter: Send {
    /// How sure a guess of what follows `tokens` would be; none if there is nothing to guess. `tokens` is the sequence so
    /// far, and begins with the one of the call before, unless [`Drafter::restart`] was called since.
    fn look(&mut self, tokens: &[u32]) -> Option<Confidence>;

    /// The next sequence need not begin with the one of the call before.
    fn restart(&mut self) {}

    /// Appends up to `width` tokens that may follow `tokens`, which it has just looked at. What it appends has to be ids of
    /// the vocabulary.
    fn draft(&mut self, tokens: &[u32], width: usize, draft: &mut Vec<u32>);

    /// What guessing one token takes, in seconds.
    fn seconds_per_token(&self) -> f64 {
        0.0
    }
}
