//! What executes plans.

use std::sync::Arc;

use super::{Batch, BatchError, Plan, PlanFault, RunProfile, WeightError, WeightSource};
use crate::launch::{Hardware, LowerError};

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the weights' tensors that are on the device.
    pub loaded_bytes: u64,
    /// Bytes of the weights' tensors.
    pub total_bytes: u64,
}

/// Is told how far loading is.
pub type Progress<'a> = dyn Fn(LoadProgress) + Sync + 'a;

/// A device that can load plans. Opening one is the business of `unisonic-devices`.
pub trait Device: Send {
    /// What this device is.
    fn info(&self) -> DeviceInfo;

    /// What its kernels are made for; none for a device that runs the steps of plans itself.
    fn hardware(&self) -> Option<Hardware> {
        None
    }

    /// The driver and its version, where there is one: what was measured under one says nothing of another.
    fn driver(&self) -> Option<String> {
        None
    }

    /// Loads the weights of a plan and prepares to run it; calls `progress` as it goes on, from any thread,
    /// never two at a time. Later runs allocate no device memory: caches and buffers are as large as `limits`
    /// says from the start.
    fn load(
        &self,
        plan: Arc<Plan>,
        weights: &dyn WeightSource,
        limits: Limits,
        progress: &Progress<'_>,
    ) -> Result<Box<dyn Program>, DeviceError>;
}

/// A loaded plan with its KV pages.
pub trait Program: Send {
    /// The plan.
    fn plan(&self) -> &Plan;

    /// What runs it. A device may run a plan in another way than its first choice, and says so here.
    fn device(&self) -> &DeviceInfo;

    /// Runs the rows of a batch. Returns the first broken range contract of each row that has one: such a row
    /// has no meaning and must not be used; the others are untouched by it.
    fn run(&mut self, batch: &Batch<'_>) -> Result<Vec<RangeFlag>, DeviceError>;

    /// Logits of output row `output` (index into [`Batch::outputs`]) of the last run, or what the plan gives in their
    /// place: [`Plan::output_width`] values.
    ///
    /// # Panics
    /// If the last run had no such output row: a bug of the caller.
    fn logits(&self, output: usize) -> &[f32];

    /// Runs a batch `runs` times without going back to the host: after a run, the most likely token of each row (the largest
    /// logit, of equals the lowest id) is the row's token at the next position. There are no logits afterwards. None if this
    /// program cannot, and then nothing has changed.
    ///
    /// More than one run needs a batch that [`Batch::check_runs`] takes, with pages up to the last position, and is at
    /// most [`Program::max_runs`]; the tokens that it gives back may be of fewer runs, down to one.
    fn pick(&mut self, batch: &Batch<'_>, runs: u32) -> Result<Option<Picks>, DeviceError> {
        let _ = (batch, runs);
        Ok(None)
    }

    /// Most runs of [`Program::pick`] for a batch with so many rows; 0 if it cannot.
    fn max_runs(&self, rows: usize) -> u32 {
        let _ = rows;
        0
    }

    /// Copies KV page `from` to page `to`, in all layers; false if this program cannot, and then nothing has
    /// changed. Both are below [`Limits::kv_pages`]. It saves running at most 63 tokens again where a
    /// sequence leaves another in the middle of a page.
    fn copy_page(&mut self, from: u32, to: u32) -> Result<bool, DeviceError> {
        let _ = (from, to);
        Ok(false)
    }

    /// Appends the content of KV page `page` to `to`, in the layout of [`KvLayer`](super::KvLayer); false if
    /// this program cannot, and then nothing was appended. Of slots that no row has written the content has
    /// no meaning.
    fn read_page(&mut self, page: u32, to: &mut Vec<u8>) -> Result<bool, DeviceError> {
        let _ = (page, to);
        Ok(false)
    }

    /// Replaces the content of KV page `page` by `from`, which a program of the same plan and profile has
    /// read, on whatever device; false if this program cannot, or the length is not that of its pages, and
    /// then nothing has changed.
    fn write_page(&mut self, page: u32, from: &[u8]) -> Result<bool, DeviceError> {
        let _ = (page, from);
        Ok(false)
    }

    /// Runs a batch some times as [`Program::run`] does, and times each launch with the device's clock. There
    /// are no logits afterwards.
    ///
    /// # Errors
    /// Those of a run; [`DeviceError::NoClock`] if launches cannot be timed.
    fn profile(&mut self, batch: &Batch<'_>, repetitions: u32) -> Result<RunProfile, DeviceError> {
        let _ = (batch, repetitions);
        Err(DeviceError::NoClock { device: self.device().id.clone() })
    }
}

/// What [`Program::pick`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picks {
    /// The most likely tokens: `[run][output row]`.
    pub tokens: Vec<u32>,
    /// The first broken range contract of each row of the first run that has one. No row of a later run has one: runs
    /// before such a row are all that is given back.
    pub flags: Vec<RangeFlag>,
}

/// A row whose values left the range in which the arithmetic is defined (docs/numerics.md "Range contract").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFlag {
    /// Row of the batch.
    pub row: u32,
    /// Index of the first step of the plan that flagged it.
    pub step: u32,
}

/// What a device is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// As given to `--device`.
    pub id: String,
    /// Hardware or implementation.
    pub name: String,
    /// The arithmetic: [`super::PROFILE`], or the name of a diagnostic that is not u1.
    pub profile: String,
    /// Threads of the host that run plans; none where other hardware does.
    pub threads: Option<u32>,
}

/// How much a program must be ready for. None of these can change a bit of any result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// KV pages of [`super::PAGE_TOKENS`] tokens, shared by all sequences.
    pub kv_pages: u32,
    /// Most rows of a batch.
    pub max_rows: u32,
    /// Most output rows of a batch.
    pub max_outputs: u32,
}

/// Why a device could not load or run.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanFault),
    /// A weight is missing, damaged or out of range.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The batch cannot be run.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Not enough memory.
    #[error(
        "{device}: {what} needs {needed_bytes} bytes, which could not be allocated; load with a shorter context or a \
         smaller model"
    )]
    OutOfMemory {
        /// Which device.
        device: String,
        /// What the memory was for.
        what: String,
        /// How much.
        needed_bytes: u64,
    },
    /// Known before anything is allocated: the device's memory cannot hold the program.
    #[error(
        "{device}: the model, its KV cache and its buffers need {needed_bytes} bytes of device memory, but {free_bytes} \
         are free; {}", advice(*.fitting_tokens)
    )]
    TooLarge {
        /// Which device.
        device: String,
        /// All that would be allocated.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
        /// The longest context that would fit, in tokens of all sequences together; none if not even one page
        /// would.
        fitting_tokens: Option<u64>,
    },
    /// The device has no kernels for the plan.
    #[error("{device}: {error}; use another device")]
    Lower {
        /// Which device.
        device: String,
        /// What it has no kernels for.
        error: LowerError,
    },
    /// The device does not time launches.
    #[error("{device} has no clock for single launches; use a CUDA or Vulkan device")]
    NoClock {
        /// Which device.
        device: String,
    },
    /// The device's driver failed.
    #[error("{device}: {message}")]
    Machine {
        /// Which device.
        device: String,
        /// What failed, why, and what to do.
        message: String,
        /// Whether the device can no longer be used; every later call says so too.
        lost: bool,
    },
}

fn advice(fitting_tokens: Option<u64>) -> String {
    match fitting_tokens {
        Some(tokens) => format!("a context of at most {tokens} tokens would fit"),
        None => "no context would fit, so use a smaller model or another device".to_owned(),
    }
}
