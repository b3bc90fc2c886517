//! From tokens to tokens: sessions over paged KV, chunked prefill, decoding, and the text around them.
//!
//! - [`Engine`]: a model loaded on a device; [`Session`]: one sequence of tokens with its KV pages.
//! - [`kv`]: pages of keys and values, and the prefix tree by which new sequences reuse those of earlier
//!   ones.
//! - [`generate`](generate()): continuation of a prompt; [`score`]: teacher-forced log-probabilities.
//! - [`constraint`]: answers that follow a JSON schema or a grammar.
//! - [`draft`]: speculation, tokens that are guessed and then checked in one step.
//! - [`schedule`]: many requests on one engine.
//! - [`SavedSession`]: a sequence in a file, to be continued by another process on any device.
//! - [`receipt`]: a result with what it takes to recompute it.
//! - [`StopStrings`]: texts that end an answer.
//! - [`graph`]: parts of models, and models of one's own, run over rows.
//! - [`tokenizer`]: text to ids and back; [`chat`]: chat templates.
//! - [`tune`](mod@tune): which forms of kernels are fast on a device.
//!
//! The engine sees a device only through `core::plan::Device`, and nothing here can change a bit of the
//! result: how rows are cut into batches, which pages they use and who else is running are all invisible to
//! the arithmetic.
//!
//! Start reading at [`Engine::extend`].

pub mod chat;
pub mod constraint;
mod digest;
pub mod draft;
mod engine;
mod error;
mod generate;
pub mod graph;
pub mod kv;
mod pages;
pub mod receipt;
pub mod sampling;
mod saved;
pub mod schedule;
mod score;
mod session;
mod step;
mod stop_strings;
pub mod tokenizer;
pub mod tune;

pub use digest::{Digest, NotADigest};
pub use engine::{Clock, DEFAULT_CONTEXT_LEN, Engine, EngineOptions};
pub use error::EngineError;
pub use generate::{Completion, GenerateOptions, Greedy, GreedyTokens, Sample, Stop, generate};
pub use saved::{SavedSession, SavedSessionError};
pub use score::{Score, score};
pub use session::Session;
pub use stop_strings::{Passed, StopStrings};
