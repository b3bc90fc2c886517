//! Teacher-forced scoring: how probable a model finds a given text.

use unisonic_core::numerics::probability::log_probability;
use unisonic_core::numerics::sampling::most_likely;

use crate::{Engine, EngineError};

/// What the model thought of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability given all tokens before it.
    pub logprob: f32,
    /// The token that the model found most probable.
    pub argmax: u32,
}

/// Scores `ids[1..]`, each given all before it: `logprob = logit - log_sum_exp(logits)`, -inf for an id outside the
/// vocabulary. Runs in a session of its own;
/// `progress(tokens done)` is called as it goes on.
pub fn score(
    engine: &mut Engine,
    ids: &[u32],
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Score>, EngineError> {
    let Some((_, context)) = ids.split_last() else { return Ok(Vec::new()) };
    let mut scores = Vec::with_capacity(context.len());
    let mut session = engine.session();
    engine.extend(&mut session, context, 0, &mut |index, logits| {
        let token = ids[index + 1];
        let logprob = log_probability(logits, token).unwrap_or(f32::NEG_INFINITY);
        scores.push(Score { token, logprob, argmax: most_likely(logits).unwrap_or_default() });
        progress(index + 1);
    })?;
    Ok(scores)
}
