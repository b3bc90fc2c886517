//! The one place that lists the backends: which devices there are, and how to open one by name.
//!
//! Start reading at [`open`].

use unisonic_core::plan::Device;
use unisonic_cpu::native::CpuDevice;
pub use unisonic_cpu::native::MAX_THREADS;
use unisonic_cpu::scalar::{Arithmetic, ScalarDevice};

/// What to open beside the device's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Keep V exact: a diagnostic arithmetic that is not u1, for sharp comparisons with other runtimes.
    pub exact_v: bool,
    /// Threads of a CPU device, 1 to [`MAX_THREADS`]; one for each processor if not given.
    pub threads: Option<usize>,
}

/// A device that cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No device has this name.
    #[error("there is no device `{id}`; this build knows: {known}")]
    Unknown {
        /// As given.
        id: String,
        /// Names that can be given.
        known: String,
    },
}

/// Names that [`open`] accepts.
pub const KNOWN: &[&str] = &["cpu", "cpu-scalar"];

/// Opens a device by the name that `--device` takes.
pub fn open(id: &str, options: OpenOptions) -> Result<Box<dyn Device>, OpenError> {
    match id {
        "cpu" => {
            if options.exact_v {
                return Ok(Box::new(ScalarDevice::new(Arithmetic::ExactV)));
            }
            let device = CpuDevice::new();
            Ok(Box::new(options.threads.map_or(device, |threads| device.with_threads(threads))))
        }
        "cpu-scalar" => {
            let arithmetic = if options.exact_v { Arithmetic::ExactV } else { Arithmetic::U1 };
            Ok(Box::new(ScalarDevice::new(arithmetic)))
        }
        _ => Err(OpenError::Unknown { id: id.into(), known: KNOWN.join(", ") }),
    }
}
