//! Weights of a plan: what they are, and how every device reads them.
//!
//! [`load_weight`] is the one place where bytes of a file become numbers: it checks the length and the range contract
//! (docs/numerics.md "Range contract"), so that a device never meets a value that the arithmetic is not defined for.

use crate::format::blocks::{BadBlock, BlockFormat, check_row, expand_floats};
use crate::numerics::range::{OutOfRange, check_vector};
use crate::numerics::w16::{W16Row, quantize_w16, w16_plane_len, w16_scales_len};

/// How the elements of a weight enter the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Quantised blocks, used as the exact integers they hold.
    Block(BlockFormat),
    /// A float matrix, turned into W16 when it is loaded (docs/numerics.md "Linear layer").
    W16(FloatSource),
    /// f32 values of a norm or bias.
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

impl FloatSource {
    /// Bytes of an element.
    pub fn len_bytes(self) -> usize {
        match self {
            FloatSource::F32 => 4,
            FloatSource::F16 | FloatSource::BF16 => 2,
        }
    }
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

impl Weight {
    /// Bytes of a row in the file; a row of blocks is whole blocks.
    pub fn row_len_bytes(&self) -> usize {
        let cols = self.cols as usize;
        match self.encoding {
            Encoding::Block(format) => cols / format.elems() * format.len_bytes(),
            Encoding::W16(source) | Encoding::F32(source) => cols * source.len_bytes(),
        }
    }
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
    /// The file holds more or fewer bytes than the plan expects.
    #[error(
        "tensor `{tensor}`: {found} bytes, but {expected} were expected for {rows} rows of {cols}; the file is damaged, \
         so fetch it again"
    )]
    Length {
        /// Name of the tensor.
        tensor: String,
        /// Bytes in the file.
        found: usize,
        /// Bytes of the shape.
        expected: u64,
        /// Rows of the shape.
        rows: u32,
        /// Length of a row.
        cols: u32,
    },
    /// A block breaks the range contract.
    #[error("tensor `{tensor}`, row {row}, {block}")]
    Block {
        /// Name of the tensor.
        tensor: String,
        /// Row.
        row: usize,
        /// Block and what is wrong with it.
        block: BadBlock,
    },
    /// An element of a vector breaks the range contract.
    #[error("tensor `{tensor}`, {element}")]
    Element {
        /// Name of the tensor.
        tensor: String,
        /// Element and what is wrong with it.
        element: OutOfRange,
    },
}

/// A weight in memory, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadedWeight {
    /// Rows of quantised blocks, as the file holds them.
    Blocks {
        /// Format of all rows.
        format: BlockFormat,
        /// All rows, one after the other.
        bytes: Vec<u8>,
    },
    /// Rows of a float matrix as W16.
    W16(W16Matrix),
    /// Values of a vector.
    F32(Vec<f32>),
}

/// A float matrix as W16: planes padded to a multiple of 32 a row, one scale for each 32 elements.
#[derive(Clone, Debug, PartialEq)]
pub struct W16Matrix {
    cols: usize,
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl W16Matrix {
    /// One row.
    pub fn row(&self, row: usize) -> W16Row<'_> {
        let (planes, scales) = (w16_plane_len(self.cols), w16_scales_len(self.cols));
        let plane = row * planes..(row + 1) * planes;
        W16Row {
            high: &self.high[plane.clone()],
            low: &self.low[plane],
            scales: &self.scales[row * scales..(row + 1) * scales],
        }
    }

    fn from_floats(weight: &Weight, source: FloatSource, bytes: &[u8]) -> Result<Self, WeightError> {
        let (rows, cols) = (weight.rows as usize, weight.cols as usize);
        let (planes, scales) = (w16_plane_len(cols), w16_scales_len(cols));
        let mut matrix = Self {
            cols,
            high: vec![0; rows * planes],
            low: vec![0; rows * planes],
            scales: vec![0.0; rows * scales],
        };
        let mut floats = Vec::new();
        for (row, bytes) in bytes.chunks_exact(weight.row_len_bytes()).enumerate() {
            expand_floats(source, bytes, &mut floats);
            let plane = row * planes..(row + 1) * planes;
            quantize_w16(
                &floats,
                &mut matrix.high[plane.clone()],
                &mut matrix.low[plane],
                &mut matrix.scales[row * scales..(row + 1) * scales],
            )
            .map_err(|block| WeightError::Block { tensor: weight.tensor.clone(), row, block })?;
        }
        Ok(matrix)
    }
}

/// Reads a weight of a plan and checks it.
pub fn load_weight(source: &dyn WeightSource, weight: &Weight) -> Result<LoadedWeight, WeightError> {
    let bytes = source.read(&weight.tensor)?;
    let row_len_bytes = weight.row_len_bytes();
    let expected = u64::from(weight.rows) * row_len_bytes as u64;
    if bytes.len() as u64 != expected {
        let Weight { rows, cols, .. } = *weight;
        return Err(WeightError::Length {
            tensor: weight.tensor.clone(),
            found: bytes.len(),
            expected,
            rows,
            cols,
        });
    }
    match weight.encoding {
        Encoding::Block(format) => {
            for (row, bytes) in bytes.chunks_exact(row_len_bytes).enumerate() {
                check_row(format, bytes).map_err(|block| WeightError::Block {
                    tensor: weight.tensor.clone(),
                    row,
                    block,
                })?;
            }
            Ok(LoadedWeight::Blocks { format, bytes })
        }
        Encoding::W16(source) => W16Matrix::from_floats(weight, source, &bytes).map(LoadedWeight::W16),
        Encoding::F32(source) => {
            let mut values = Vec::with_capacity(weight.cols as usize);
            expand_floats(source, &bytes, &mut values);
            check_vector(&values)
                .map_err(|element| WeightError::Element { tensor: weight.tensor.clone(), element })?;
            Ok(LoadedWeight::F32(values))
        }
    }
}
