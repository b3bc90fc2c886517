//! Continuous batching: many requests share the steps of an engine, and none can see the others.
//!
//! A [`Scheduler`] is driven by its owner, one [`Scheduler::step`] after the other; it has no thread and no clock. In a step
//! each running request has rows: a piece of its prompt, or its last token with guesses after it. Logits of a row
//! depend on its own sequence only, so which requests meet in a step, in what pieces, in what order and on which
//! pages changes no bit of an answer. Therefore a request may also be set aside when pages run out: it comes back later
//! and goes on as if nothing had happened.
//!
//! `rows` divides a step among the requests, `job` is a request with its state, `scheduler` drives them.

mod job;
mod rows;
mod scheduler;

use std::sync::Arc;

use crate::draft::{DraftStats, Drafter};
use crate::{Completion, EngineError, Sample};

pub use scheduler::Scheduler;

/// A prompt to continue.
pub struct Request {
    /// Token ids; at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<u32>,
    /// Only requests of the same salt share keys and values.
    pub salt: Vec<u8>,
    /// Chooses the tokens.
    pub sampler: Box<dyn Sample>,
    /// Guesses tokens; `None`: no guesses.
    pub drafter: Option<Box<dyn Drafter>>,
    /// Tells end-of-generation tokens.
    pub is_stop: Arc<dyn Fn(u32) -> bool + Send + Sync>,
}

/// Names a request of a scheduler: later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happens to a request.
#[derive(Debug)]
pub enum Event<'a> {
    /// A token was chosen.
    Token {
        /// Whose.
        id: RequestId,
        /// The token.
        token: u32,
        /// The logits that it was chosen from; none if the sampler needs none.
        logits: &'a [f32],
    },
    /// The request has come to its end.
    Done {
        /// Which.
        id: RequestId,
        /// All that was generated.
        completion: Completion,
    },
    /// The request cannot go on.
    Failed {
        /// Which.
        id: RequestId,
        /// Why; the others go on.
        error: EngineError,
    },
}

/// How far a request that runs has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProgress {
    /// Which.
    pub id: RequestId,
    /// Tokens whose keys and values are there, of prompt and answer.
    pub known_tokens: usize,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// What guessing has done.
    pub drafts: DraftStats,
}

/// How many requests a scheduler takes.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleLimits {
    /// Requests that run at a time; the others wait. At least 1.
    pub max_running: usize,
    /// Requests that wait; more are refused.
    pub max_queued: usize,
}

impl Default for ScheduleLimits {
    fn default() -> Self {
        Self { max_running: 64, max_queued: 256 }
    }
}

/// Why a request is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too many wait already.
    #[error("{max_queued} requests are waiting, which is the most; try again when some have been answered")]
    QueueFull {
        /// The limit.
        max_queued: usize,
    },
    /// It could never run.
    #[error(transparent)]
    Request(#[from] EngineError),
}
