//! Devices that run on the CPU.
//!
//! - [`scalar`]: the oracle. Runs each step of a plan through `core::numerics`, one function after the other.

pub mod scalar;
