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
use unisonic_core::plan::{
    Device, DeviceError, DeviceInfo, Limits, PROFILE, Plan, Program, Progress, WeightSource,
};

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
#[derive(Clone, Debug)]
pub struct ScalarDevice {
    arithmetic: Arithmetic,
    info: DeviceInfo,
    host_float_state: bool,
}

impl ScalarDevice {
    /// A device of this arithmetic.
    pub fn new(arithmetic: Arithmetic) -> Self {
        let info = DeviceInfo {
            id: "cpu-scalar".into(),
            name: "CPU, scalar reference".into(),
            profile: arithmetic.profile().into(),
            threads: Some(1),
        };
        Self { arithmetic, info, host_float_state: false }
    }

    /// The same, computing in the floating-point mode of the calling thread, to show that flushing subnormals to zero
    /// cannot matter. Another rounding mode would.
    pub fn in_host_float_state(self) -> Self {
        Self { host_float_state: true, ..self }
    }

    /// The same, standing in for another device, which says why.
    pub(crate) fn instead_of(self, other: DeviceInfo, why: &str) -> Self {
        let name = format!("{} ({why})", self.info.name);
        Self { info: DeviceInfo { id: other.id, name, ..self.info }, ..self }
    }
}

impl Device for ScalarDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        plan.check()?;
        let program = program::ScalarProgram::load(self, plan, weights, limits, progress)?;
        Ok(Box::new(program))
    }
}

#[cfg(test)]
mod tests;
