//! Linear layers, `out = [add +] snap(acc [+ bias])` (`core::numerics::linear`, `core::numerics::w16`), for all formats that
//! `core::planes` lays out.
//!
//! [`split_k()`] is for few rows, [`tiled()`] and [`half_staged()`] for many, [`expert_linear()`] for rows with a matrix each. Formats differ in `integers.rs` (from planes to registers) and
//! `scales.rs`; `totals.rs` is the arithmetic of a superblock, `output.rs` what becomes of a sum. Start reading at
//! [`linear()`].

mod experts;
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
pub use experts::{ExpertLinear, expert_linear};
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
/// The same where there are workgroups enough.
const SPREAD_TILED_ROWS: u32 = 16;
/// Workgroups of a multiprocessor that are enough. On an H200, with the layers of a 7B model in Q4_K and Q6_K and 64 rows,
/// tiles that made 2.2 of them took 1.1 times as long as tiles that made 4.5, and tiles that made 0.4 took 1.6 to 2.3 times as
/// long as those that made 0.8 to 1.7.
const ENOUGH: u32 = 3;

/// Whether each multiprocessor has workgroups enough that others are there while some wait for loads, and that the slowest
/// one is no matter.
fn are_enough(workgroups: u32, hardware: &Hardware) -> bool {
    workgroups >= ENOUGH * hardware.multiprocessors
}

/// The first of some tiles, the largest first, that makes enough workgroups; or else the last. With each are the workgroups
/// that it makes.
fn spread<T>(tunings: impl Iterator<Item = (T, u32)>, hardware: &Hardware) -> Option<T> {
    let mut last = None;
    for (tuning, workgroups) in tunings {
        last = Some(tuning);
        if are_enough(workgroups, hardware) {
            break;
        }
    }
    last
}

/// The linear layer in the form and tuning that are fast on a device: for many rows [`tiled()`] where copies are
/// asynchronous, else [`half_staged()`], where the device has what that takes; otherwise [`split_k()`].
pub fn linear(
    weights: WeightLayout,
    x: ActivationLayout,
    epilogue: Epilogue,
    hardware: &Hardware,
) -> GridKernel {
    if x.rows() >= SPREAD_TILED_ROWS && hardware.caps.copy_async {
        let tuning = Tiled::new(weights, x, hardware);
        let is_worth_it =
            |tuning: &Tiled| x.rows() >= TILED_ROWS || are_enough(tuning.workgroups(weights, x), hardware);
        if let Some(tuning) = tuning.filter(is_worth_it) {
            return tiled(weights, x, epilogue, tuning);
        }
    }
    if x.rows() >= TILED_ROWS
        && let Some(tuning) = HalfStaged::new(weights, x, hardware)
    {
        return half_staged(weights, x, epilogue, tuning);
    }
    split_k(weights, x, epilogue, SplitK::new(weights, x, hardware))
}

#[cfg(test)]
mod tests;
