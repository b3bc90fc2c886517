//! How a GPU holds the operands of a linear layer: planes of words in the order in which matrix instructions
//! take them.
//!
//! [`activation`] has the layout of an A16 buffer, [`region`] which parts of it a weight format reads,
//! [`digits`] one of them; [`weight`] has the layout of a matrix, [`pack`] makes it from rows of a file.
//!
//! **Fragments.** A matrix instruction works on a cluster of 32 invocations; invocation `4g + t` (g 0..7, t
//! 0..3) holds, of a product of 16 weight rows, 8 columns and 32 elements k, four words of weights,
//! *registers* p: p0 is row g and elements `4t..4t+3`, p1 row g + 8 and the same elements, p2 row g and
//! elements `16+4t..`, p3 row g + 8 and those; and two words of activations, column g: elements `4t..` and
//! `16+4t..`. The first element of four lies in the low bits.
//!
//! Start reading at [`activation::ActivationLayout`].

pub mod activation;
pub mod digits;
pub mod pack;
pub mod region;
pub mod weight;

use weight::WeightFormat;

use crate::kir::abi::MAX_OBJECT_LEN;

/// Rows and widths that a layout cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// There is nothing to lay out.
    #[error("{rows} rows of {width} elements: a layout holds at least one of each")]
    Empty {
        /// Rows.
        rows: usize,
        /// Elements of a row.
        width: usize,
    },
    /// Not whole blocks.
    #[error("{format} rows are whole blocks of {align} elements, not {width}")]
    Width {
        /// Format.
        format: WeightFormat,
        /// Elements of a row.
        width: usize,
        /// Elements of a block.
        align: usize,
    },
    /// Kernels index with 32 bits.
    #[error(
        "{rows} rows of {width} elements have more than the {MAX_OBJECT_LEN} words that kernels number; a matrix has to be \
         split, a batch to have fewer rows"
    )]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Elements of a row.
        width: usize,
    },
}
