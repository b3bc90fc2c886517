//! Linear layers, `out = [add +] snap(acc [+ bias])` (`core::numerics::linear`, `core::numerics::w16`), for all formats that
//! `core::planes` lays out.
//!
//! [`split_k()`] is for few rows, [`tiled()`] and [`half_staged()`] for many. Formats differ in `integers.rs` (from planes to registers) and
//! `scales.rs`; `totals.rs` is the arithmetic of a superblock, `output.rs` what becomes of a sum. Start reading at
//! [`linear()`].

mod half_staged;
mod integers;
mod operands;
mod output;
mod scales;
mod split_k;
mod staged;
mod tiled;
mod totals;

use unisonic_core::launch::Hardware;
use unisonic_core::planes::activation::ActivationLayout;
use unisonic_core::planes::weight::WeightLayout;

use super::GridKernel;
pub use half_staged::{HalfStaged, half_staged};
pub use operands::Operands;
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

/// Rows from which a tile of the result has work for a workgroup.
const TILED_ROWS: u32 = 32;

/// The linear layer in the form and tuning that are fast on a device: for many rows [`tiled()`] where copies are
/// asynchronous, else [`half_staged()`], where the device has what that takes; otherwise [`split_k()`].
pub fn linear(
    weights: WeightLayout,
    x: ActivationLayout,
    epilogue: Epilogue,
    hardware: &Hardware,
) -> GridKernel {
    if x.rows() >= TILED_ROWS {
        if hardware.caps.copy_async
            && let Some(tuning) = Tiled::new(weights, x, hardware)
        {
            return tiled(weights, x, epilogue, tuning);
        }
        if let Some(tuning) = HalfStaged::new(weights, x, hardware) {
            return half_staged(weights, x, epilogue, tuning);
        }
    }
    split_k(weights, x, epilogue, SplitK::new(weights, x, hardware))
}

#[cfg(test)]
mod tests;
