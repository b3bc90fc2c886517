//! The tuner: measures the rows of a model's hot kernels on its device, and keeps what it found.
//!
//! A device without kernels ([`Device::hardware`](unisonic_core::plan::Device::hardware) is none) has nothing
//! to measure. What a row is, and why none can change a bit, says [`unisonic_planner::tune`]. Start reading
//! at [`tune()`]; [`TuningTable`] is what it fills, as text that people can read and carry to another
//! computer with the same device.

mod kernels;
mod measure;
mod table;

pub use measure::{TuneOptions, TuneProgress, TuneReport, TunedStep, tune};
pub use table::{Measured, TableDevice, TableError, TuningTable};
