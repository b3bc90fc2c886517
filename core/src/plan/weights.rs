//! Weights of a plan: what they are, and how every device reads them.

use crate::format::blocks::BlockFormat;

/// How the elements of a weight enter the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Quantised blocks, used as the exact integers they hold.
    Block(BlockFormat),
    /// A float matrix, turned into W16 when it is loaded (docs/numerics.md "Linear layer").
    W16(FloatSource),
    /// f32 values: norms, biases, RoPE factors and (expanded from whatever is stored) MoE routers.
    F32(FloatSource),
}

/// Stored type of a float tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatSource {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
}

/// A tensor that the plan uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Name in the file.
    pub tensor: String,
    /// How it enters the arithmetic.
    pub encoding: Encoding,
    /// Number of rows; 1 for a vector.
    pub rows: u32,
    /// Length of a row.
    pub cols: u32,
}

/// Where the bytes of tensors come from: a GGUF file, or a test.
pub trait WeightSource {
    /// The bytes of a tensor as the file holds them, all rows.
    fn read(&self, tensor: &str) -> Result<Vec<u8>, ReadError>;
}

/// A tensor could not be read; says which, from where and why.
#[derive(Debug, thiserror::Error)]
#[error("tensor `{tensor}`: {reason}")]
pub struct ReadError {
    /// Name of the tensor.
    pub tensor: String,
    /// What happened, such as a file that became shorter.
    pub reason: String,
}

/// A weight that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// Its bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}
