//! What can go wrong with a graph of the caller.

use unisonic_core::plan::DeviceError;
use unisonic_planner::PlanError;

use crate::EngineError;

/// An error of loading or running a graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Of planning, the device, or the sequence.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Rows that are not what the graph takes.
    #[error("the graph takes {expected}, but {tokens} token ids and {values} values were given")]
    Rows {
        /// What it takes.
        expected: String,
        /// Token ids that were given.
        tokens: usize,
        /// Values that were given.
        values: usize,
    },
    /// A tensor of the caller that cannot be used.
    #[error("tensor `{tensor}` has {found} values for the dimensions {dims:?}, but must be given {expected}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// Its dimensions, the length of a row first.
        dims: Vec<u64>,
        /// Its values.
        found: usize,
        /// What would be right.
        expected: String,
    },
}

impl From<PlanError> for GraphError {
    fn from(error: PlanError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<DeviceError> for GraphError {
    fn from(error: DeviceError) -> Self {
        Self::Engine(error.into())
    }
}
