//! A machine as a device: loads plans.

use std::sync::Arc;

use unisonic_core::launch::{GROUP_PAGES, Lower, Memory, Shape};
use unisonic_core::plan::{Device, DeviceError, DeviceInfo, Limits, Plan, Program, Progress, WeightSource};

use crate::areas::{Areas, check_fits};
use crate::images;
use crate::machine::Machine;
use crate::program::GpuProgram;
use crate::shared::SharedMachine;

/// A GPU that loads plans.
pub struct GpuDevice<M: Machine> {
    machine: SharedMachine<M>,
    lower: Arc<dyn Lower>,
}

impl<M: Machine> GpuDevice<M> {
    /// A device that has plans lowered by `lower`.
    pub fn new(machine: M, lower: Arc<dyn Lower>) -> Self {
        Self { machine: SharedMachine::new(machine), lower }
    }
}

impl<M: Machine + 'static> Device for GpuDevice<M> {
    fn info(&self) -> DeviceInfo {
        self.machine.info()
    }

    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError> {
        plan.check()?;
        let device = self.machine.info().id;
        let (hardware, free_bytes) =
            self.machine.call(|machine| Ok((machine.hardware(), machine.free_bytes())))?;
        let lowered = self
            .lower
            .lower(Arc::clone(&plan), limits, hardware)
            .map_err(|error| DeviceError::Lower { device: device.clone(), error })?;
        let memory = lowered.memory();
        assert_serves(memory, limits);
        check_fits(&device, memory, &plan, limits, free_bytes)?;
        let areas = Areas::allocate(&self.machine, &plan, memory)?;
        images::load(&plan, weights, &memory.images, &areas, progress)?;
        Ok(Box::new(GpuProgram::new(plan, limits, self.machine.clone(), lowered.into(), areas)))
    }
}

/// What choosing shapes relies on.
///
/// # Panics
/// If the lowering is not for all batches up to the limits: a bug of the lowering.
fn assert_serves(memory: &Memory, limits: Limits) {
    let Limits { kv_pages, max_rows, max_outputs } = limits;
    let asked =
        Shape { rows: max_rows, outputs: max_outputs.min(max_rows), groups: kv_pages.div_ceil(GROUP_PAGES) };
    assert!(memory.largest.holds(asked), "lowered for {:?}, but {limits:?} were asked for", memory.largest);
}
