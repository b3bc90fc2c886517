//! The machine: what the rest of the driver makes together.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};

use unisonic_core::kir::Kernel;
use unisonic_core::launch::Hardware;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::{DeviceInfo, PROFILE};
use unisonic_gpu::machine::{CompileCounts, Machine, MachineError, Times, Work};
use unisonic_shaders::Needs;

use super::device::{Device, Submitted};
use super::error::OpenError;
use super::features::Features;
use super::instance::Instance;
use super::known_faults::{Off, known_faults};
use super::memory::Buffer;
use super::options::OpenOptions;
use super::pipeline::{Code, Pipeline};
use super::probe;
use super::record::Recording;
use super::self_test::{SelfTest, Shader, modes, run_shader, self_test};
use super::timing;
use super::upload::Uploader;
use crate::spirv::{Target, emit, uses_subgroups};

/// A Vulkan device, opened.
pub struct VulkanMachine {
    index: usize,
    target: Target,
    self_test: SelfTest,
    switched_off: Vec<SwitchedOff>,
    uploader: RefCell<Uploader>,
    device: Arc<Device>,
}

/// What a device has and is used without, since it is not as specified or not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchedOff {
    /// What.
    pub what: &'static str,
    /// Why.
    pub reason: String,
}

/// Opens a device by its number among [`super::enumerate`]'s.
pub fn open(index: usize, options: &OpenOptions) -> Result<VulkanMachine, OpenError> {
    let instance = Instance::new(options.loader.as_deref(), options.validation)?;
    let devices = instance.physical_devices()?;
    let physical = *devices.get(index).ok_or(OpenError::NoDevice { index, count: devices.len() })?;
    let features = Features::of(&instance, physical, options.without);
    let missing = features.missing();
    if !missing.is_empty() {
        return Err(OpenError::Lacks { name: features.name, missing });
    }
    let mut target = features.target();
    let device = Device::open(instance, physical, features, options)?;
    let mut uploader = Uploader::new(&device);
    let self_test = self_test(&device, &mut uploader, &target, &options.wrong_probes)?;
    let mut switched_off = vec![];
    if !options.any_arithmetic {
        switched_off = without_faults(&device, &mut target, &self_test)?;
        without_known_faults(&device, &mut target, &mut switched_off);
    }
    let has_faults = |needs| self_test.faults.iter().any(|fault| fault.of == needs);
    let may_multiply = target.subgroup_size > 1 && !is_known(&device, Off::Matrices);
    if device.features.matrices
        && may_multiply
        && !has_faults(Needs::Matrices)
        && !has_faults(Needs::Subgroups)
    {
        let reason = match probe::matrix_order(&device, &mut uploader) {
            Err(error @ MachineError::Lost { .. }) => return Err(error.into()),
            Err(error) => error.to_string(),
            Ok(order) => {
                target.matrix = order;
                "which invocation holds which words of a matrix is not as kernels need it".to_owned()
            }
        };
        if target.matrix.is_none() {
            tracing::warn!("matrices are not used: {reason}");
            switched_off.push(SwitchedOff { what: "matrices", reason });
        }
    }
    // It holds what it copied to last.
    drop(uploader);
    device.begin_faults(options);
    tracing::debug!(
        name = device.features.name,
        driver = device.features.driver,
        ?target,
        "opened vulkan:{index}"
    );
    Ok(VulkanMachine {
        index,
        target,
        self_test,
        switched_off,
        uploader: RefCell::new(Uploader::new(&device)),
        device,
    })
}

/// Switches off what a device does not do as specified, and says what; an error if it cannot do without.
fn without_faults(
    device: &Device,
    target: &mut Target,
    self_test: &SelfTest,
) -> Result<Vec<SwitchedOff>, OpenError> {
    let features = &device.features;
    let needed = self_test.faults.iter().filter(|fault| fault.of == Needs::Nothing);
    let needed: Vec<String> = needed.map(|fault| fault.reason.clone()).collect();
    if !needed.is_empty() {
        let (name, driver) = (features.name.clone(), features.driver.clone());
        return Err(OpenError::Wrong { name, driver, faults: needed });
    }
    let mut switched_off = vec![];
    for fault in &self_test.faults {
        let (name, driver, reason) = (&features.name, &features.driver, &fault.reason);
        let what = match fault.of {
            Needs::Subgroups => {
                target.subgroup_size = 1;
                "exchanges in subgroups and matrices"
            }
            Needs::Constants => {
                target.knows_constants = false;
                "constants at compile time"
            }
            Needs::IntegerDot => {
                target.integer_dot = false;
                "packed dot products"
            }
            Needs::Matrices | Needs::Nothing => "matrices",
        };
        if fault.of == Needs::Constants {
            // Hardly slower, and nothing that anybody can do about it.
            tracing::info!("{name} ({driver}) does without {what}: {reason}");
        } else {
            tracing::warn!("{name} ({driver}) does without {what}, which makes it slower: {reason}");
        }
        switched_off.push(SwitchedOff { what, reason: reason.clone() });
    }
    Ok(switched_off)
}

/// Whether a fault of the driver is known that takes this away.
fn is_known(device: &Device, off: Off) -> bool {
    known_faults(&device.features.driver).any(|fault| fault.off == off)
}

/// Switches off what the table of known faults says, unless the self-test has done so.
fn without_known_faults(device: &Device, target: &mut Target, switched_off: &mut Vec<SwitchedOff>) {
    for fault in known_faults(&device.features.driver) {
        let (what, is_used) = match fault.off {
            Off::Constants => {
                ("constants at compile time", std::mem::replace(&mut target.knows_constants, false))
            }
            Off::Subgroups => {
                ("exchanges in subgroups and matrices", std::mem::replace(&mut target.subgroup_size, 1) > 1)
            }
            Off::IntegerDot => ("packed dot products", std::mem::replace(&mut target.integer_dot, false)),
            Off::Matrices => ("matrices", device.features.matrices),
            // Kernels do them by integer operations anyway.
            Off::HalfConversions => continue,
        };
        if is_used {
            let reason = format!("known fault {}: {}", fault.name, fault.what);
            tracing::info!("{} does without {what}: {reason}", device.features.driver);
            switched_off.push(SwitchedOff { what, reason });
        }
    }
}

impl VulkanMachine {
    /// Runs a shader over an input; the words that it wrote. For those who test drivers: it is nobody's kernel.
    pub fn run_shader(
        &self,
        shader: &Shader,
        input: &[u32],
        groups: u32,
        output_len: usize,
    ) -> Result<Vec<u32>, MachineError> {
        let shader = (shader, modes(&self.target));
        run_shader(&self.device, &mut self.uploader.borrow_mut(), shader, input, groups, output_len)
    }

    /// Workgroups that a launch may have.
    pub fn max_groups(&self) -> u32 {
        self.device.features.limits.groups
    }

    /// Whether the device may multiply matrices, whatever it was found to do.
    pub fn offers_matrices(&self) -> bool {
        self.device.features.matrices
    }

    /// What kernels are emitted for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Driver, and what it says of its version.
    pub fn driver(&self) -> &str {
        &self.device.features.driver
    }

    /// What it was found not to do as specified, which is not used.
    pub fn self_test(&self) -> &SelfTest {
        &self.self_test
    }

    /// What it is used without because of that.
    pub fn switched_off(&self) -> &[SwitchedOff] {
        &self.switched_off
    }

    /// How it came to its kernels.
    pub fn compile_counts(&self) -> CompileCounts {
        *self.device.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How launches were submitted, the probes of the self-test among them.
    pub fn submitted(&self) -> Submitted {
        self.device.submitted()
    }

    /// What the validation layer has said, where [`OpenOptions::validation`] asked for it.
    pub fn validation_messages(&self) -> Vec<String> {
        self.device.instance.validation_messages()
    }
}

impl Machine for VulkanMachine {
    type Buffer = Buffer;
    type Kernel = Pipeline;
    type Recording = Recording;

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: format!("vulkan:{}", self.index),
            name: self.device.features.name.clone(),
            profile: PROFILE.to_owned(),
            threads: None,
        }
    }

    fn driver_version(&self) -> Option<String> {
        Some(self.device.features.driver.clone())
    }

    fn hardware(&self) -> Hardware {
        self.device.features.hardware(&self.target)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.device.free_bytes(&self.device.memory())
    }

    fn allocate(&self, len_bytes: u64, what: &str) -> Result<Buffer, MachineError> {
        Buffer::new(&self.device, len_bytes, Default::default(), what)
    }

    fn upload(&self, to: &Buffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        self.uploader.borrow_mut().upload(to, offset_bytes, bytes)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Pipeline, MachineError> {
        let code = Code {
            words: emit(kernel, &self.target),
            exchanges: uses_subgroups(kernel),
            pushes_record: self.target.pushes_record(kernel),
            is_kept: true,
        };
        Pipeline::new(&self.device, kernel, &code)
    }

    fn record(&self, work: &Work<Self>) -> Result<Recording, MachineError> {
        Recording::new(&self.device, &mut self.uploader.borrow_mut(), work)
    }

    fn run_kept(
        &self,
        recording: &mut Recording,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        recording.run(&self.device, inputs, tiles, runs)
    }

    fn results(recording: &Recording) -> &[u32] {
        recording.results()
    }

    fn time(
        &self,
        work: &Work<Self>,
        inputs: &[u8],
        tiles: TileCounts,
        repetitions: u32,
    ) -> Result<Option<Vec<Times>>, MachineError> {
        timing::time(&self.device, &mut self.uploader.borrow_mut(), work, (inputs, tiles), repetitions)
    }
}
