//! A machine as a device: loads plans.

use std::sync::Arc;

use unisonic_core::launch::{GROUP_PAGES, Hardware, Lower, Lowered, Memory, Shape};
use unisonic_core::plan::{Device, DeviceError, DeviceInfo, Limits, Plan, Program, Progress, WeightSource};

use crate::areas::{Areas, check_fits};
use crate::images;
use crate::machine::Machine;
use crate::program::GpuProgram;
use crate::recordings::Recordings;
use crate::shared::SharedMachine;

/// How far the kernels of a shape of batches are: they are compiled when the first such batch comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileProgress {
    /// Kernels that are there; begins with 0.
    pub done: usize,
    /// Kernels that were not there before.
    pub total: usize,
}

/// Is told how far compiling is.
pub type OnCompile = dyn Fn(CompileProgress) + Send + Sync;

/// A GPU that loads plans.
pub struct GpuDevice<M: Machine> {
    machine: SharedMachine<M>,
    lower: Arc<dyn Lower>,
    on_compile: Arc<OnCompile>,
    picks: bool,
}

impl<M: Machine> GpuDevice<M> {
    /// A device that has plans lowered by `lower`.
    pub fn new(machine: M, lower: Arc<dyn Lower>) -> Self {
        Self { machine: SharedMachine::new(machine), lower, on_compile: Arc::new(|_| ()), picks: true }
    }

    /// The same, and `on_compile` is told how far compiling is.
    pub fn on_compile(self, on_compile: Arc<OnCompile>) -> Self {
        Self { on_compile, ..self }
    }

    /// The same, and its programs leave picking tokens to the host.
    pub fn without_picks(self) -> Self {
        Self { picks: false, ..self }
    }

    /// Asks the machine something, while nobody else uses it.
    pub fn ask<T>(&self, question: impl FnOnce(&M) -> T) -> T {
        self.machine.ask(question)
    }
}

impl<M: Machine + 'static> Device for GpuDevice<M> {
    fn info(&self) -> DeviceInfo {
        self.machine.info()
    }

    fn hardware(&self) -> Option<Hardware> {
        self.machine.call(|machine| Ok(machine.hardware())).ok()
    }

    fn driver(&self) -> Option<String> {
        self.machine.call(|machine| Ok(machine.driver_version())).ok().flatten()
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
        let (machine, lowered): (_, Arc<dyn Lowered>) = (self.machine.clone(), lowered.into());
        let on_compile = Arc::clone(&self.on_compile);
        let recordings = Recordings::new(machine.clone(), Arc::clone(&lowered), areas, on_compile);
        Ok(Box::new(GpuProgram::new(plan, limits, machine, lowered, recordings, self.picks)))
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
