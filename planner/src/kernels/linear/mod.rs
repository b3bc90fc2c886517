//! Linear layers, `out = [add +] snap(acc [+ bias])` (`core::numerics::linear`, `core::numerics::w16`), for all formats that
//! `core::planes` lays out.
//!
//! [`split_k()`] is for few rows, [`tiled()`] for many. Formats differ in `integers.rs` (from planes to registers) and
//! `scales.rs`; `totals.rs` is the arithmetic of a superblock, `output.rs` what becomes of a sum. Start reading at
//! [`split_k()`].

mod integers;
mod operands;
mod output;
mod scales;
mod split_k;
mod staged;
mod tiled;
mod totals;

pub use operands::{Operands, Region};
pub use output::{Epilogue, Output, Residual};
pub use split_k::{SplitK, split_k};
pub use tiled::{Tiled, tiled};

/// How a cluster of 32 invocations multiplies 16 weight rows with activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Matrix instructions: both planes of 4 rows at once.
    Matrix,
    /// `dot4`, a row after the other: for devices without matrix instructions, and few rows.
    Dot4,
}

#[cfg(test)]
mod tests;
