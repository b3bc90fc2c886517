//! A Vulkan device as a [`unisonic_gpu::machine::Machine`]: the driver is found and opened at run time.
//!
//! [`enumerate`] lists devices, with what each lacks; [`open`] opens one. Nothing is assumed that can be asked for:
//! `features.rs` asks, and makes of the answers what kernels may hold and what the device is opened with.
//!
//! # How launches run
//!
//! Buffers have device addresses, so that no descriptor and no range limit is in the way. A recording ([`Recording`]) is a
//! list of command buffers: copy the inputs, run every launch, with barriers between those of which one needs what
//! another leaves, copy the results. What a launch is given is pushed by the command buffer, or its address is, in
//! one device buffer (`constants.rs`). A run writes the inputs into mapped memory, submits, waits for a fence, and allocates
//! nothing. One command buffer has all launches, unless they would take so long that a driver could think that they hang: then
//! there are several, a submission each ([`unisonic_gpu::pacing`]). They are recorded anew when that changes, after the
//! first run and hardly ever again.
//!
//! # What is believed
//!
//! Nothing that can be tried: at the first use of a device probes ask whether it computes as specified (`self_test.rs`). What
//! fails is not used, or the device is not. What no probe would find is in a table (`known_faults.rs`).
//!
//! # Who owns what
//!
//! Every handle holds the device (`device.rs`), which goes last, after it is idle; the device holds the instance, and that the
//! loader's library. So anything may be dropped in any order. A device that was lost stays lost (`error.rs`).
//!
//! Start reading at `machine.rs`, then `record.rs`.

mod constants;
mod device;
mod enumerate;
mod error;
mod features;
mod instance;
mod kept;
mod known_faults;
mod limits;
mod loader;
mod machine;
mod memory;
mod options;
mod pipeline;
mod probe;
mod record;
mod run;
mod self_test;
mod statistics;
mod timing;
mod upload;
mod validation;

pub use device::Submitted;
pub use enumerate::{DeviceKind, Found, enumerate, enumerate_with};
pub use error::OpenError;
pub use known_faults::{KNOWN_FAULTS, KnownFault, Off, known_faults};
pub use loader::NoVulkan;
pub use machine::{SwitchedOff, VulkanMachine, open};
pub use memory::Buffer;
pub use options::{OpenOptions, Without};
pub use pipeline::Pipeline;
pub use record::Recording;
pub use self_test::{Fault, SelfTest, Shader};
pub use unisonic_shaders::Needs;
