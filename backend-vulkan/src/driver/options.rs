//! How a device is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unisonic_cache::Cache;

/// How a device is opened. No option changes a bit of a result.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The loader's library; none for the one that the system finds.
    pub loader: Option<PathBuf>,
    /// Whether the Khronos validation layer watches every call. What it says goes to the log as errors, and to
    /// [`super::VulkanMachine::validation_messages`].
    pub validation: bool,
    /// Device memory that may be taken; none for all that there is.
    pub memory_limit_bytes: Option<u64>,
    /// The most bytes of one allocation; none for what the device takes (`maxMemoryAllocationSize`). For tests of what does
    /// not fit into one.
    pub allocation_limit_bytes: Option<u64>,
    /// What a launch counts as having taken, whatever it took: for tests of how launches are shared out to submissions
    /// ([`unisonic_gpu::pacing`]).
    pub launch_time: Option<Duration>,
    /// A submission that takes longer counts as one that hangs, and the device as lost; none for
    /// [`OpenOptions::RUN_TIMEOUT`].
    pub run_timeout: Option<Duration>,
    /// Where compiled pipelines, and what was found of the device, are kept for the next start.
    pub cache: Option<Arc<Cache>>,
    /// What is not used though the device has it.
    pub without: Without,
    /// Whether the driver is asked what it makes of kernels ([`super::Pipeline::statistics`]): for those who write kernels.
    pub statistics: bool,
    /// The device counts as lost once it has taken so many submissions after it was opened: for tests of what happens then.
    pub lost_after_submissions: Option<u64>,
    /// After so many pieces of memory were had since the device was opened, there is none for one, as if all were taken: for
    /// tests of what happens then.
    pub no_memory_after_allocations: Option<u64>,
    /// Whether a device is opened whatever it computes, with nothing of it switched off: for those who test drivers.
    pub any_arithmetic: bool,
    /// Names of probes whose results count as wrong: for tests of what happens then.
    pub wrong_probes: Vec<&'static str>,
}

impl OpenOptions {
    /// Longer than any submission takes, on a processor too. Drivers of GPUs have watches of their own, of seconds.
    pub const RUN_TIMEOUT: Duration = Duration::from_secs(600);
}

/// What of a device is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Without {
    /// Exchanges in subgroups.
    pub subgroups: bool,
    /// Packed dot products.
    pub integer_dot: bool,
    /// Matrix products.
    pub matrices: bool,
}
