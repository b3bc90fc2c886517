//! Greedy continuation of a prompt.

use std::ops::ControlFlow;

use unisonic_core::numerics::sampling::most_likely;

use crate::{Engine, EngineError, Session};

/// Limits of a generation.
#[derive(Clone, Copy, Default)]
pub struct GenerateOptions<'a> {
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<u32>,
    /// Asked after each chunk of the prompt but the last: whether to stop before there is a token.
    pub cancelled: Option<&'a dyn Fn() -> bool>,
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
}

/// Appends `prompt` to the session and continues it greedily: the largest logit, ties to the lower id.
///
/// `is_stop` tells end-of-generation tokens; `on_token` sees each token as it is chosen, together with the logits it
/// was chosen from, and may stop the generation.
pub fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions<'_>,
    is_stop: &dyn Fn(u32) -> bool,
    on_token: &mut dyn FnMut(u32, &[f32]) -> ControlFlow<()>,
) -> Result<Completion, EngineError> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    let mut token_ids = Vec::new();
    let mut pending = prompt.to_vec();
    let reached_limit = |generated: &[u32]| {
        let max = options.max_tokens?;
        (generated.len() >= max as usize).then_some(Stop::Length)
    };
    let stop = loop {
        // A generated token needs a place in the context as well; a prompt that leaves none is the caller's error.
        if session.tokens().len() + pending.len() >= engine.context_len() as usize {
            if token_ids.is_empty() {
                return Err(EngineError::ContextOverflow {
                    needed: session.tokens().len() + pending.len() + 1,
                    context_len: engine.context_len(),
                    trained_len: engine.plan().context_len,
                });
            }
            break reached_limit(&token_ids).unwrap_or(Stop::Context);
        }
        if let Some(stop) = reached_limit(&token_ids) {
            break stop;
        }
        if !extend_to_last_chunk(engine, session, &mut pending, options)? {
            break Stop::Cancelled;
        }
        let mut chosen = (0, ControlFlow::Continue(()));
        engine.extend(session, &pending, pending.len() - 1, &mut |_, logits| {
            // A vocabulary is never empty.
            let token = most_likely(logits).unwrap_or_default();
            chosen = (token, on_token(token, logits));
        })?;
        let (token, flow) = chosen;
        token_ids.push(token);
        if is_stop(token) {
            break Stop::Eog;
        }
        if flow.is_break() {
            break Stop::Cancelled;
        }
        pending = vec![token];
    };
    Ok(Completion { token_ids, stop })
}

/// Runs all chunks of `pending` but the last, which stays in it; false if the caller asked to stop.
fn extend_to_last_chunk(
    engine: &mut Engine,
    session: &mut Session,
    pending: &mut Vec<u32>,
    options: &GenerateOptions<'_>,
) -> Result<bool, EngineError> {
    let chunk_rows = engine.chunk_rows() as usize;
    while pending.len() > chunk_rows {
        engine.extend(session, &pending[..chunk_rows], chunk_rows, &mut |_, _| {})?;
        pending.drain(..chunk_rows);
        if options.cancelled.is_some_and(|cancelled| cancelled()) {
            return Ok(false);
        }
    }
    Ok(true)
}
