//! What all GPU backends share: from a plan to replayed launches.
//!
//! A backend implements [`machine::Machine`], a thin layer over its driver; [`device::GpuDevice`] makes a
//! [`unisonic_core::plan::Device`] of it: has the plan lowered, puts weights into memory, records launches for the shapes
//! of batches that come, and replays them. [`interpreter`] is a machine without hardware.
//!
//! Start reading at [`machine`], then [`device`]; `program.rs` has a run, `recordings.rs` and `shapes.rs` what is replayed
//! for which batch, `areas.rs` device memory, `images.rs` what is loaded into it, `cost.rs` what launches have to move;
//! [`hazards`] says which launches have to wait for others, [`pacing`] which are submitted together.

mod areas;
mod cost;
pub mod device;
pub mod hazards;
mod images;
mod in_order;
pub mod interpreter;
pub mod machine;
pub mod pacing;
mod pages;
mod program;
mod recordings;
mod shapes;
mod shared;
