//! Devices that run on the CPU.
//!
//! - [`scalar`]: the oracle. Runs each step of a plan through `core::numerics`, one function after the other.
//! - [`native`]: the fast device. The same steps on vectors and threads, equal to the oracle bit for bit.

pub mod float_state;
mod isa;
mod memory;
pub mod native;
mod pool;
mod rope_rows;
pub mod scalar;
mod simd;
