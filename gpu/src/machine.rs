//! What a driver has to do for us.
//!
//! All of it may be called from one thread at a time. An error of the kind [`MachineError::Lost`] is for ever: whoever sees
//! it uses the machine no more.

use unisonic_core::kir::Kernel;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::launch::{Hardware, Workgroups};
use unisonic_core::plan::DeviceInfo;

/// A GPU.
pub trait Machine: Send {
    /// A handle to device memory, which is freed with the last handle; recordings hold handles too.
    type Buffer: Clone + Send;
    /// A handle to a kernel, ready to run.
    type Kernel: Clone + Send;
    /// Launches that can be run again and again.
    type Recording: Send;

    /// What it is, for people.
    fn info(&self) -> DeviceInfo;

    /// The driver and its version, where there is one.
    fn driver_version(&self) -> Option<String> {
        None
    }

    /// What it offers kernels.
    fn hardware(&self) -> Hardware;

    /// Bytes of device memory that can still be had, if the driver says.
    fn free_bytes(&self) -> Option<u64>;

    /// Device memory that begins at a multiple of [`unisonic_core::kir::abi::ALIGN_BYTES`]. `what` is for messages.
    fn allocate(&self, len_bytes: u64, what: &str) -> Result<Self::Buffer, MachineError>;

    /// Copies bytes to device memory; they are there for every later run.
    fn upload(&self, to: &Self::Buffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError>;

    /// Compiles a kernel that verifies and is legal for [`Machine::hardware`].
    fn compile(&self, kernel: &Kernel) -> Result<Self::Kernel, MachineError>;

    /// Prepares launches.
    fn record(&self, work: &Work<Self>) -> Result<Self::Recording, MachineError>;

    /// Runs a recording: `inputs` goes to where [`Work::inputs`] says, all launches run, one after the other, `runs` times (at
    /// least once), then the recording has what lies at [`Work::results`].
    fn run_kept(
        &self,
        recording: &mut Self::Recording,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError>;

    /// The words of [`Work::results`], one after the other, as the last run left them; they mean nothing after one that
    /// failed.
    fn results(recording: &Self::Recording) -> &[u32];

    /// Runs it once, and copies the results.
    fn run(
        &self,
        recording: &mut Self::Recording,
        inputs: &[u8],
        tiles: TileCounts,
        results: &mut [u8],
    ) -> Result<(), MachineError> {
        self.run_kept(recording, inputs, tiles, 1)?;
        let found: &[u8] = bytemuck::cast_slice(Self::results(recording));
        if found.len() != results.len() {
            let reason = format!("there is room for {} bytes of {}", results.len(), found.len());
            return Err(MachineError::Driver { call: "giving back results".to_owned(), reason });
        }
        results.copy_from_slice(found);
        Ok(())
    }

    /// Runs launches some times as recordings run, and says what each took by the device's clock; none without one.
    fn time(
        &self,
        work: &Work<Self>,
        inputs: &[u8],
        tiles: TileCounts,
        repetitions: u32,
    ) -> Result<Option<Vec<Times>>, MachineError> {
        let _ = (work, inputs, tiles, repetitions);
        Ok(None)
    }
}

/// Nanoseconds of a run, by the device's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the beginning of the first launch to the end of the last, where nothing but they runs.
    pub whole_ns: u64,
    /// Between two stamps without a launch between them.
    pub empty_ns: u64,
    /// From the stamp before each launch to the one after it.
    pub launches_ns: Vec<u64>,
}

impl Times {
    /// Of a run that took so long, and of one with two stamps before all launches and one after each.
    pub fn of_stamps(whole_ns: u64, stamps_ns: &[u64]) -> Self {
        let mut between = stamps_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let empty_ns = between.next().unwrap_or(0);
        Self { whole_ns, empty_ns, launches_ns: between.collect() }
    }
}

/// How a machine came to its kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileCounts {
    /// Compiled by the driver.
    pub compiled: u64,
    /// Kept from an earlier start.
    pub kept: u64,
}

/// What [`Machine::record`] prepares.
pub struct Work<M: Machine + ?Sized> {
    /// Launches, one after the other: each sees all that those before it wrote.
    pub dispatches: Vec<Dispatch<M>>,
    /// Where the inputs of a run go.
    pub inputs: Span<M>,
    /// What a run gives back.
    pub results: Vec<Span<M>>,
}

/// A launch over buffers.
pub struct Dispatch<M: Machine + ?Sized> {
    /// The kernel.
    pub kernel: M::Kernel,
    /// For each addressed object of the kernel, in order; the offset is a multiple of 256.
    pub spans: Vec<Span<M>>,
    /// Words of the parameters, in order.
    pub params: Vec<u32>,
    /// How many workgroups; per tile a multiple of what [`Machine::run`] is told.
    pub workgroups: Workgroups,
}

/// Part of a buffer.
pub struct Span<M: Machine + ?Sized> {
    /// Buffer.
    pub buffer: M::Buffer,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

// Handles are cloned, machines need not be.

impl<M: Machine + ?Sized> Clone for Work<M> {
    fn clone(&self) -> Self {
        let Self { dispatches, inputs, results } = self;
        Self { dispatches: dispatches.clone(), inputs: inputs.clone(), results: results.clone() }
    }
}

impl<M: Machine + ?Sized> Clone for Dispatch<M> {
    fn clone(&self) -> Self {
        let Self { ref kernel, ref spans, ref params, workgroups } = *self;
        Self { kernel: kernel.clone(), spans: spans.clone(), params: params.clone(), workgroups }
    }
}

impl<M: Machine + ?Sized> Clone for Span<M> {
    fn clone(&self) -> Self {
        let Self { ref buffer, offset_bytes, len_bytes } = *self;
        Self { buffer: buffer.clone(), offset_bytes, len_bytes }
    }
}

/// What a driver could not do.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// There is not enough device memory.
    #[error("not enough device memory: {needed_bytes} bytes for {what}{}", free(*.free_bytes))]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much.
        needed_bytes: u64,
        /// How much there is, if the driver says.
        free_bytes: Option<u64>,
    },
    /// The driver refused a kernel.
    #[error("the driver does not take the kernel `{kernel}`: {reason}")]
    Kernel {
        /// Its name.
        kernel: String,
        /// What the driver said.
        reason: String,
    },
    /// The driver failed; another try may succeed.
    #[error("{call} failed: {reason}")]
    Driver {
        /// What was asked for.
        call: String,
        /// What the driver said.
        reason: String,
    },
    /// The device is gone, or in a state from which only a new process gets it out. Nothing that it says counts.
    #[error(
        "the device was lost in {call}: {reason}; start again, and if it happens again look at the driver's log"
    )]
    Lost {
        /// What was asked for.
        call: String,
        /// What the driver said.
        reason: String,
    },
}

fn free(free_bytes: Option<u64>) -> String {
    free_bytes.map_or(String::new(), |free| format!(", of which {free} are free"))
}
