//! A GPU as a [`Machine`]: what the other files do, put together.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use unisonic_cache::Cache;
use unisonic_core::kir::Kernel;
use unisonic_core::launch::Hardware;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::{DeviceInfo, PROFILE};
use unisonic_gpu::machine::{CompileCounts, Machine, MachineError, Times, Work};

use super::context::Context;
use super::enumerate::{Found, find};
use super::error::NoCuda;
use super::library::{LAUNCH_WITH_ATTRIBUTES, has};
use super::memory::{Account, Buffer, free_bytes};
use super::module::{Compiler, CudaKernel};
use super::recording::Recording;
use super::stream::Stream;
use super::timing;
use super::upload::Upload;
use crate::ptx::Target;

/// Limits to open a GPU with. None of them changes a bit of any result.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Says that there are at most so many multiprocessors, at least 1: a large GPU stands in for a smaller one in what is
    /// chosen for it. Kernels still run on all.
    pub multiprocessors: Option<u32>,
    /// Most device memory that may be allocated; more is [`MachineError::OutOfMemory`].
    pub memory_limit_bytes: Option<u64>,
    /// Where compiled kernels are kept for the next start.
    pub cache: Option<Arc<Cache>>,
    /// What the GPU has and is not to be used.
    pub without: Without,
}

/// What is not used although the GPU has it, as if it were an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Launches that begin before those before them have ended.
    pub dependent_launches: bool,
    /// Asking for more weights than fit registers while those before them go on.
    pub prefetch: bool,
}

/// Opens the GPU of a number.
///
/// # Errors
/// Those of [`super::enumerate`]; if there is no such GPU or it is too old; if it cannot be used.
pub fn open(index: u32, options: OpenOptions) -> Result<CudaMachine, NoCuda> {
    let (device, found) = find(index)?;
    let mut without = options.without;
    without.dependent_launches |= !has(LAUNCH_WITH_ATTRIBUTES);
    let target = found.target(without)?;
    let mut hardware = found.hardware(target);
    if let Some(limit) = options.multiprocessors {
        hardware.multiprocessors = hardware.multiprocessors.min(limit.max(1));
    }
    let context = Context::new(device)?;
    let stream = Stream::new(&context)?;
    let upload = RefCell::new(Upload::new(&stream)?);
    let (major, minor) = found.compute_capability;
    let compiler = Compiler {
        target,
        prefetches: !without.prefetch,
        hardware,
        version: found.driver,
        gpu: format!("{} ({major}.{minor})", found.name),
        cache: options.cache,
        counts: Cell::default(),
    };
    Ok(CudaMachine {
        found,
        compiler,
        account: Account::new(options.memory_limit_bytes),
        upload,
        stream,
        context,
    })
}

/// An NVIDIA GPU. Its handles may outlive it.
pub struct CudaMachine {
    found: Found,
    compiler: Compiler,
    account: Arc<Account>,
    upload: RefCell<Upload>,
    stream: Arc<Stream>,
    context: Arc<Context>,
}

impl CudaMachine {
    /// The GPU.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// What kernels are emitted for.
    pub fn target(&self) -> Target {
        self.compiler.target
    }

    /// How it came to its kernels.
    pub fn compile_counts(&self) -> CompileCounts {
        self.compiler.counts.get()
    }
}

impl Machine for CudaMachine {
    type Buffer = Buffer;
    type Kernel = CudaKernel;
    type Recording = Recording;

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: format!("cuda:{}", self.found.index),
            name: self.found.name.clone(),
            profile: PROFILE.to_owned(),
            threads: None,
        }
    }

    fn driver_version(&self) -> Option<String> {
        Some(format!("CUDA {}", self.found.driver))
    }

    fn hardware(&self) -> Hardware {
        self.compiler.hardware
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.context, &self.account)
    }

    fn allocate(&self, len_bytes: u64, what: &str) -> Result<Buffer, MachineError> {
        Buffer::new(&self.stream, &self.account, len_bytes, what)
    }

    /// Returns when the bytes have been read; errors of the copy itself come out of a later call.
    fn upload(&self, to: &Buffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        self.context.still_there()?;
        self.upload.borrow_mut().copy(to, offset_bytes, bytes)
    }

    fn compile(&self, kernel: &Kernel) -> Result<CudaKernel, MachineError> {
        self.context.still_there()?;
        self.compiler.compile(&self.context, kernel)
    }

    /// The caller holds that kernels touch nothing outside their spans.
    fn record(&self, work: &Work<Self>) -> Result<Recording, MachineError> {
        Recording::new(&self.stream, work)
    }

    /// `inputs` has the length that was recorded.
    fn run_kept(
        &self,
        recording: &mut Recording,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        recording.run(inputs, tiles, runs)
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
        timing::time(&self.stream, work, inputs, tiles, repetitions).map(Some)
    }
}
