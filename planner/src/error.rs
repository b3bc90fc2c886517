//! Why a model has no plan.

use unisonic_core::format::{GgmlType, MetadataError};
use unisonic_core::numerics::range::OutOfRange;
use unisonic_core::plan::ReadError;

use crate::graph::Violations;
use crate::passes::PassError;

/// Why a model has no plan. Messages name the key or tensor, what was expected, what was found and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A metadata key is missing or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// An architecture that is not in the registry.
    #[error(
        "this model has the architecture `{found}`, which is not supported; supported are {supported}. Another model \
         file of one of these families will work"
    )]
    Architecture {
        /// `general.architecture`.
        found: String,
        /// Names, separated by commas.
        supported: String,
    },
    /// A hyperparameter out of its range.
    #[error(
        "metadata key `{key}` is {found}, expected {expected}; the file is damaged or made for another program"
    )]
    Hyperparameter {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// A number that the arithmetic is not defined for (docs/numerics.md "Range contract").
    #[error(
        "metadata key `{key}` is {}, but {}; the file is damaged or made for another program",
        .number.found,
        .number.expected
    )]
    Number {
        /// The key.
        key: String,
        /// Its value and what is possible.
        number: OutOfRange,
    },
    /// Something that is defined but not built yet.
    #[error("{what} is not supported yet (metadata key `{key}` is {found}); {instead}")]
    Unsupported {
        /// The feature.
        what: &'static str,
        /// The key that asks for it.
        key: String,
        /// Its value.
        found: String,
        /// What works.
        instead: String,
    },
    /// A tensor that the architecture needs.
    #[error(
        "the file has no tensor `{tensor}`, which a {architecture} model needs (shape {expected}); download or convert \
         the file again"
    )]
    MissingTensor {
        /// Its name.
        tensor: String,
        /// Architecture.
        architecture: String,
        /// Shape it should have, rows x columns.
        expected: String,
    },
    /// A tensor of another shape than the hyperparameters say.
    #[error(
        "tensor `{tensor}` has the shape {found}, but the metadata of this {architecture} model says {expected} \
         (rows x columns); the file is damaged or was converted wrongly"
    )]
    TensorShape {
        /// Its name.
        tensor: String,
        /// Architecture.
        architecture: String,
        /// Shape it should have.
        expected: String,
        /// Shape in the file.
        found: String,
    },
    /// A tensor stored in a type that the arithmetic does not know.
    #[error(
        "tensor `{tensor}` is stored as {found}, which is not supported here; use a file of the same model that has it \
         as one of {supported}"
    )]
    TensorType {
        /// Its name.
        tensor: String,
        /// Type in the file.
        found: GgmlType,
        /// Types that work.
        supported: String,
    },
    /// Tensors that the architecture does not read: the model is not what it says, and ignoring them would give
    /// wrong answers.
    #[error(
        "the file holds {count} tensors that a {architecture} model does not use, such as {examples}; it is a variant \
         that is not supported, and running it without them would give wrong answers"
    )]
    UnusedTensors {
        /// Architecture.
        architecture: String,
        /// How many.
        count: usize,
        /// The first few names.
        examples: String,
    },
    /// A RoPE factor that is not a number above 0 (docs/numerics.md "Range contract").
    #[error("tensor `{tensor}`, {factor}; the file is damaged")]
    RopeFactor {
        /// Its name.
        tensor: String,
        /// Which value, and what is wrong with it.
        factor: OutOfRange,
    },
    /// RoPE factors of another length than their tensor's entry says.
    #[error(
        "tensor `{tensor}`: {found_bytes} bytes of f32 factors, expected {expected_bytes}; the file is damaged"
    )]
    RopeFactorsLen {
        /// Its name.
        tensor: String,
        /// Four a pair.
        expected_bytes: usize,
        /// As read.
        found_bytes: usize,
    },
    /// The bytes of a tensor could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A graph of the caller that breaks rules or limits.
    #[error(transparent)]
    Graph(#[from] Violations),
    /// A tensor that a graph of the caller names, and that is not there as the graph says.
    #[error("`{node}` needs the tensor `{tensor}` as {expected}, but {found}; give it, or change the graph")]
    GraphTensor {
        /// Label of the first node that has it.
        node: String,
        /// Its name.
        tensor: String,
        /// Shape in the graph.
        expected: String,
        /// What there is.
        found: String,
    },
    /// The passes could not be run.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The passes were stopped before the graph could be lowered.
    #[error(
        "the passes were stopped after `{stop_after}`, before `{required}`, without which there is no plan"
    )]
    Stopped {
        /// The last pass.
        stop_after: String,
        /// The first required one that did not run.
        required: &'static str,
    },
}
