//! The one place that lists the backends: which devices there are, and how to open one by name.
//!
//! Start reading at [`open`]; [`list()`] is what `unisonic devices` shows.

mod features;
mod list;
mod name;

use std::sync::Arc;

use unisonic_cache::Cache;
use unisonic_core::launch::Hardware;
use unisonic_core::plan::Device;
pub use unisonic_cpu::float_state;
use unisonic_cpu::native::CpuDevice;
pub use unisonic_cpu::native::MAX_THREADS;
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};
use unisonic_gpu::device::GpuDevice;
pub use unisonic_gpu::device::{CompileProgress, OnCompile};
use unisonic_gpu::interpreter::InterpreterMachine;
use unisonic_gpu::machine::Machine;
use unisonic_planner::launches::{LaunchPasses, Lowering};
use unisonic_planner::tune::Tuning;

pub use features::{FEATURES, Feature, FeaturesOff, UnknownFeature};
pub use list::{Backend, Listed, SelfTest, Served, SwitchedOff, list};
pub use name::{DeviceName, UnknownDevice};

/// What to open beside the device's name.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Keep V exact: a diagnostic arithmetic that is not u1, for sharp comparisons with other runtimes. Only the CPU has it.
    pub exact_v: bool,
    /// Threads of a CPU device, 1 to [`MAX_THREADS`]; one for each processor if not given.
    pub threads: Option<usize>,
    /// Most memory that a GPU may be asked for; all that is free if not given.
    pub memory_limit_bytes: Option<u64>,
    /// Which passes over the launches of a GPU run.
    pub launch_passes: LaunchPasses,
    /// Which forms of kernels were found to be fast on a GPU.
    pub tuning: Tuning,
    /// What a GPU has and does without.
    pub features_off: FeaturesOff,
    /// Where what takes a GPU's driver long to make is kept for the next start.
    pub cache: Option<Arc<Cache>>,
    /// Is told how far the kernels of a GPU are.
    pub on_compile: Option<Arc<OnCompile>>,
}

/// A device that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no diagnostic arithmetic on it.
    #[error("`{0}` has no diagnostic arithmetic; --diagnostic needs --device cpu")]
    Diagnostic(DeviceName),
    /// CUDA says no.
    #[error("cannot open `{name}`: {error}")]
    Cuda {
        /// Which.
        name: DeviceName,
        /// Why.
        error: unisonic_cuda::driver::NoCuda,
    },
    /// Vulkan says no.
    #[error("cannot open `{name}`: {error}")]
    Vulkan {
        /// Which.
        name: DeviceName,
        /// Why.
        error: unisonic_vulkan::driver::OpenError,
    },
}

/// Opens a device.
pub fn open(name: DeviceName, options: OpenOptions) -> Result<Box<dyn Device>, OpenError> {
    let OpenOptions { exact_v, threads, memory_limit_bytes, features_off, .. } = options;
    match name {
        DeviceName::Cpu | DeviceName::CpuScalar if exact_v => {
            Ok(Box::new(ScalarDevice::new(Arithmetic::ExactV)))
        }
        DeviceName::Cpu => {
            let device = CpuDevice::new();
            Ok(Box::new(threads.map_or(device, |threads| device.with_threads(threads))))
        }
        DeviceName::CpuScalar => Ok(Box::new(ScalarDevice::new(Arithmetic::U1))),
        _ if exact_v => Err(OpenError::Diagnostic(name)),
        DeviceName::Interpreter => Ok(gpu(InterpreterMachine { hardware: Hardware::SM_86 }, options)),
        DeviceName::Cuda(index) => {
            let without = unisonic_cuda::driver::Without {
                dependent_launches: features_off.dependent_launches,
                prefetch: features_off.prefetch,
            };
            let cache = options.cache.clone();
            let of_cuda = unisonic_cuda::driver::OpenOptions {
                memory_limit_bytes,
                cache,
                without,
                ..Default::default()
            };
            let machine = unisonic_cuda::driver::open(index, of_cuda);
            machine.map(|machine| gpu(machine, options)).map_err(|error| OpenError::Cuda { name, error })
        }
        DeviceName::Vulkan(index) => {
            let cache = options.cache.clone();
            let of_vulkan =
                unisonic_vulkan::driver::OpenOptions { memory_limit_bytes, cache, ..Default::default() };
            let machine = unisonic_vulkan::driver::open(index as usize, &of_vulkan);
            machine.map(|machine| gpu(machine, options)).map_err(|error| OpenError::Vulkan { name, error })
        }
    }
}

fn gpu<M: Machine + 'static>(machine: M, options: OpenOptions) -> Box<dyn Device> {
    let device =
        GpuDevice::new(machine, Arc::new(Lowering { passes: options.launch_passes, tuning: options.tuning }));
    let device = if options.features_off.device_picks { device.without_picks() } else { device };
    Box::new(match options.on_compile {
        Some(on_compile) => device.on_compile(on_compile),
        None => device,
    })
}
