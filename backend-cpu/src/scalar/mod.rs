//! The scalar device: a plan, read literally.
//!
//! Every step calls the function of `core::numerics` that defines it, row by row, on one thread. It is slow, and it is
//! what every other device is compared with: simple comes before everything else here.
//!
//! Start reading at `program.rs` (the loop over steps); `steps.rs`, `linear.rs` and `attention.rs` hold the steps,
//! `buffers.rs` and `kv.rs` what they work on.

mod attention;
mod buffers;
mod kv;
mod linear;
mod program;
mod steps;

use std::sync::Arc;

use unisonic_core::numerics::exact_v;
use unisonic_core::plan::{Device, DeviceError, DeviceInfo, Limits, PROFILE, Plan, Program, WeightSource};

/// Which arithmetic the device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Profile u1.
    U1,
    /// A diagnostic: as u1, but attention weights and values stay f32. It takes the largest rounding out of a
    /// comparison with another runtime's arithmetic, so that mistakes of wiring and dequantisation stand out.
    ExactV,
}

impl Arithmetic {
    /// The name that outputs carry.
    pub fn profile(self) -> &'static str {
        match self {
            Arithmetic::U1 => PROFILE,
            Arithmetic::ExactV => exact_v::PROFILE,
        }
    }
}

/// The scalar device.
#[derive(Clone, Copy, Debug)]
pub struct ScalarDevice {
    arithmetic: Arithmetic,
}

impl ScalarDevice {
    /// A device of this arithmetic.
    pub fn new(arithmetic: Arithmetic) -> Self {
        Self { arithmetic }
    }
}

impl Device for ScalarDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: "cpu".into(),
            name: "CPU, scalar reference".into(),
            profile: self.arithmetic.profile().into(),
        }
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &dyn Fn(usize, usize),
    ) -> Result<Box<dyn Program>, DeviceError> {
        let program = program::ScalarProgram::load(self.arithmetic, plan, weights, limits, progress)?;
        Ok(Box::new(program))
    }
}

#[cfg(test)]
mod tests;
