//! Guessing by a smaller model.

use std::sync::{Arc, Mutex, PoisonError};

use unisonic_core::numerics::sampling::most_likely;

use super::{Confidence, Drafter};
use crate::{Engine, EngineError, Session};

/// Guesses the tokens that another model finds most probable. The other model may serve many sequences, one at a time.
pub struct ModelDrafter {
    engine: Arc<Mutex<Engine>>,
    salt: Vec<u8>,
    session: Option<Session>,
    /// Whether the model has failed; then there are no more guesses.
    failed: bool,
}

impl ModelDrafter {
    /// For one sequence of a model with `vocab_len` tokens, which have to be the other model's too.
    pub fn new(engine: Arc<Mutex<Engine>>, vocab_len: u32, salt: &[u8]) -> Result<Self, EngineError> {
        let found = engine.lock().unwrap_or_else(PoisonError::into_inner).plan().vocab_len;
        if found != vocab_len {
            return Err(EngineError::Option {
                option: "the draft model's vocabulary",
                found: format!("{found} tokens"),
                expected: format!("the same as the model's, which has {vocab_len}"),
            });
        }
        Ok(Self { engine, salt: salt.to_vec(), session: None, failed: false })
    }
}

impl Drafter for ModelDrafter {
    fn look(&mut self, _tokens: &[u32]) -> Option<Confidence> {
        (!self.failed).then_some(Confidence::MODEL)
    }

    fn draft(&mut self, tokens: &[u32], width: usize, draft: &mut Vec<u32>) {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = guess(&mut engine, &mut self.session, &self.salt, tokens, width, draft) {
            tracing::warn!(%error, "the draft model failed; going on without it");
            self.failed = true;
        }
    }

    fn seconds_per_token(&self) -> f64 {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).costs().seconds(1)
    }
}

/// Brings the session to `tokens` and continues it greedily.
fn guess(
    engine: &mut Engine,
    session: &mut Option<Session>,
    salt: &[u8],
    tokens: &[u32],
    width: usize,
    draft: &mut Vec<u32>,
) -> Result<(), EngineError> {
    let room = (engine.context_len() as usize).saturating_sub(tokens.len());
    let width = width.min(room);
    if width == 0 {
        return Ok(());
    }
    let session = match session {
        Some(session) => session,
        None => session.insert(engine.session_for(salt, tokens)?),
    };
    let held = session.tokens().iter().zip(tokens).take_while(|(held, token)| held == token).count();
    session.truncate(held.min(tokens.len().saturating_sub(1)));
    let mut pending = tokens[session.tokens().len()..].to_vec();
    for _ in 0..width {
        let mut next = None;
        engine.extend(session, &pending, pending.len() - 1, &mut |_, logits| next = most_likely(logits))?;
        let Some(next) = next else { break };
        draft.push(next);
        pending = vec![next];
    }
    Ok(())
}
