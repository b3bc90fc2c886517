//! What all GPU backends share: from a plan to replayed launches.
//!
//! A backend implements [`machine::Machine`], a thin layer over its driver; [`device::GpuDevice`] makes a
//! [`unisonic_core::plan::Device`] of it: has the plan lowered, puts weights into memory, records launches for the shapes
//! of batches that come, and replays them. [`interpreter`] is a machine without hardware.
//!
//! Start reading at [`machine`].

pub mod machine;
