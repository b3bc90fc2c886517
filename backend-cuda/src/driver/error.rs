//! What the driver answers, as errors.

use cudarc::driver::sys::CUresult;
use unisonic_gpu::machine::MachineError;

use super::library::Version;

/// Why there is no CUDA device to open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// The library cannot be opened.
    #[error(
        "there is no CUDA driver here: its library ({}) cannot be opened; for an NVIDIA GPU install NVIDIA's driver, version \
         470 or newer (in a container, pass the driver through with the NVIDIA container toolkit)",
        LIBRARY
    )]
    NoLibrary,
    /// The library lacks a function.
    #[error(
        "the CUDA driver's library ({}) has no function `{function}`: it is too old, or not NVIDIA's; install NVIDIA's \
         driver, version 470 or newer",
        LIBRARY
    )]
    NoFunction {
        /// The first that is missing.
        function: &'static str,
    },
    /// The driver is too old.
    #[error(
        "the CUDA driver is too old: it is for CUDA {found}, and CUDA {} is needed; install NVIDIA's driver, version 470 or \
         newer",
        Version::OLDEST
    )]
    OldDriver {
        /// What it is for.
        found: Version,
    },
    /// There is a driver, and no GPU.
    #[error(
        "the CUDA driver finds no GPU: see whether `nvidia-smi` lists one, and whether CUDA_VISIBLE_DEVICES hides it"
    )]
    NoDevice,
    /// There is no GPU of this number.
    #[error("there is no CUDA device {index}; there are {count}, counted from 0")]
    NoSuchDevice {
        /// As asked for.
        index: u32,
        /// How many there are.
        count: u32,
    },
    /// The GPU is older than all that kernels are made for.
    #[error(
        "{name} has compute capability {}.{}, and 6.1 (GeForce GTX 10) or newer is needed; use another device",
        capability.0,
        capability.1
    )]
    OldDevice {
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// The driver failed.
    #[error(
        "the CUDA driver does not work: {call} failed: {reason}; see whether `nvidia-smi` works, and start the machine again \
         if the driver was updated"
    )]
    Broken {
        /// What was asked for.
        call: String,
        /// What the driver said.
        reason: String,
    },
}

#[cfg(windows)]
const LIBRARY: &str = "nvcuda.dll";
#[cfg(not(windows))]
const LIBRARY: &str = "libcuda.so.1";

impl From<MachineError> for NoCuda {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Driver { call, reason } | MachineError::Lost { call, reason } => {
                NoCuda::Broken { call, reason }
            }
            error => NoCuda::Broken { call: "opening the device".to_owned(), reason: error.to_string() },
        }
    }
}

/// An error unless the driver succeeded. [`super::context::Context::check`] also remembers losses.
pub fn check(call: &str, result: CUresult) -> Result<(), MachineError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let (call, reason) = (call.to_owned(), reason(result));
    Err(if loses_the_context(result) {
        MachineError::Lost { call, reason }
    } else {
        MachineError::Driver { call, reason }
    })
}

/// The name and number of a result.
pub fn reason(result: CUresult) -> String {
    format!("{result:?} ({})", result as u32)
}

/// Whether nothing that the context does counts after a result (CUDA driver API, `CUresult`: "the process is left in an
/// inconsistent state", and what says that the device or the context is gone).
fn loses_the_context(result: CUresult) -> bool {
    use CUresult as R;
    matches!(
        result,
        R::CUDA_ERROR_NOT_INITIALIZED
            | R::CUDA_ERROR_DEINITIALIZED
            | R::CUDA_ERROR_DEVICE_UNAVAILABLE
            | R::CUDA_ERROR_INVALID_CONTEXT
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | R::CUDA_ERROR_CONTAINED
            | R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | R::CUDA_ERROR_SYSTEM_NOT_READY
            | R::CUDA_ERROR_MPS_RPC_FAILURE
            | R::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | R::CUDA_ERROR_EXTERNAL_DEVICE
            | R::CUDA_ERROR_UNKNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_the_context_undefined_is_a_loss() {
        use CUresult as R;
        let lost = [
            (R::CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
            (R::CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED (719)"),
            (R::CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT (702)"),
            (R::CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE (214)"),
            (R::CUDA_ERROR_CONTAINED, "CUDA_ERROR_CONTAINED (226)"),
            (R::CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE (46)"),
            (R::CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN (999)"),
        ];
        for (result, expected) in lost {
            let found = check("cuStreamSynchronize", result);
            let is_expected = matches!(&found, Err(MachineError::Lost { call, reason })
                if call == "cuStreamSynchronize" && reason == expected);
            assert!(is_expected, "{found:?}");
        }
    }

    #[test]
    fn other_errors_are_errors_of_one_call() {
        use CUresult as R;
        let others = [
            R::CUDA_ERROR_INVALID_VALUE,
            R::CUDA_ERROR_OUT_OF_MEMORY,
            R::CUDA_ERROR_INVALID_PTX,
            R::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            R::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            R::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            R::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        ];
        for result in others {
            let found = check("cuX", result);
            assert!(matches!(&found, Err(MachineError::Driver { .. })), "{found:?}");
        }
        assert!(check("cuX", R::CUDA_SUCCESS).is_ok());
        let error = check("cuX", R::CUDA_ERROR_INVALID_VALUE).map_err(|error| error.to_string());
        assert_eq!(error, Err("cuX failed: CUDA_ERROR_INVALID_VALUE (1)".to_owned()));
    }

    #[test]
    fn messages_say_what_to_do() {
        let messages = [
            (NoCuda::NoLibrary, vec!["install NVIDIA's driver", "470"]),
            (NoCuda::NoFunction { function: "cuGraphUpload" }, vec!["`cuGraphUpload`", "470"]),
            (
                NoCuda::OldDriver { found: Version { major: 10, minor: 2 } },
                vec!["CUDA 10.2", "CUDA 11.4", "470"],
            ),
            (NoCuda::NoDevice, vec!["nvidia-smi", "CUDA_VISIBLE_DEVICES"]),
            (NoCuda::NoSuchDevice { index: 3, count: 1 }, vec!["device 3", "there are 1"]),
            (
                NoCuda::OldDevice { name: "Tesla K80".to_owned(), capability: (3, 7) },
                vec!["Tesla K80", "3.7", "6.1"],
            ),
        ];
        for (error, parts) in messages {
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
}
