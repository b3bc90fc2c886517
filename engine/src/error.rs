//! What can go wrong between a file and its answer.

use std::path::PathBuf;

use unisonic_core::plan::DeviceError;
use unisonic_planner::PlanError;

use crate::constraint::ConstraintError;
use crate::sampling::SamplerError;

/// An error of loading or running a model.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model cannot be planned: an architecture, tensor or key that is not supported or not right.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Options of sampling that are not right, or nothing to choose from.
    #[error(transparent)]
    Sampling(#[from] SamplerError),
    /// A constraint that is not right, or a grammar that failed.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// A session of another engine, whose pages hold nothing here.
    #[error("the session belongs to another engine; extend it with the engine that made it")]
    ForeignSession,
    /// More tokens than the context holds.
    #[error(
        "context overflow: the sequence would be {needed} tokens long, but the context holds {context_len} \
         (the model was made for {trained_len}); shorten the prompt or load with a longer context"
    )]
    ContextOverflow {
        /// Tokens of the sequence with what was to be added.
        needed: usize,
        /// Limit of this engine.
        context_len: u32,
        /// Limit of the model.
        trained_len: u32,
    },
    /// All KV pages belong to other sessions.
    #[error(
        "out of KV pages: {needed} more are needed, but only {free} of {total} are not in use; end another session \
         first"
    )]
    OutOfPages {
        /// Pages that the call needs.
        needed: usize,
        /// Pages that no session uses.
        free: usize,
        /// Pages of the engine.
        total: usize,
    },
    /// The folder of pages cannot be made or read.
    #[error("cannot keep KV pages in {}: {problem}; give a folder that can be written, or none", path.display())]
    KvDir {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        problem: std::io::Error,
    },
    /// Values outside the range in which the arithmetic is defined.
    #[error(
        "numeric range exceeded at position {position} in step `{step}`: the model's values there are too large or \
         not numbers; its weights are damaged or it needs another arithmetic than {profile}"
    )]
    Range {
        /// Position of the row.
        position: u32,
        /// Label of the step, with its layer.
        step: String,
        /// Profile of the device.
        profile: String,
    },
    /// A prompt without a single token.
    #[error("the prompt is empty: there is no token to continue from; give a text, or token ids")]
    EmptyPrompt,
    /// Options that contradict the model or each other.
    #[error("{option} is {found}, but must be {expected}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
}
