//! What a driver could not do, and whether the device is still there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::prelude::VkResult;
use ash::vk;
use unisonic_gpu::machine::MachineError;

use super::loader::NoVulkan;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no Vulkan.
    #[error(transparent)]
    NoVulkan(#[from] NoVulkan),
    /// No device has that number.
    #[error("there is no Vulkan device {index}: the devices are vulkan:0 to vulkan:{}", .count.saturating_sub(1))]
    NoDevice {
        /// The number.
        index: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The device cannot run kernels.
    #[error("the Vulkan device `{name}` cannot be used: {}; a newer driver may help", .missing.join("; "))]
    Lacks {
        /// Its name.
        name: String,
        /// What it lacks.
        missing: Vec<String>,
    },
    /// The device does not compute as specified.
    #[error(
        "the Vulkan device `{name}` cannot be used, since with its driver ({driver}) answers would be wrong: {}; use a newer \
         driver or another device",
        .faults.join("; ")
    )]
    Wrong {
        /// Its name.
        name: String,
        /// Driver, and what it says of its version.
        driver: String,
        /// What is wrong.
        faults: Vec<String>,
    },
    /// The driver failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Whether a device is still there: once lost, it is lost for ever.
#[derive(Debug, Default)]
pub struct Health {
    /// In which call.
    lost: OnceLock<String>,
    hangs: AtomicBool,
}

impl Health {
    /// An error if the device was lost before; `call` is what is about to be done.
    pub fn check(&self, call: &str) -> Result<(), MachineError> {
        match self.lost.get() {
            None => Ok(()),
            Some(first) => {
                let reason = format!("it was lost before, in {first}");
                Err(MachineError::Lost { call: call.to_owned(), reason })
            }
        }
    }

    /// The device is lost from now on.
    pub fn lose(&self, call: &str, reason: &str) -> MachineError {
        // Who comes second changes nothing.
        let _ = self.lost.set(call.to_owned());
        MachineError::Lost { call: call.to_owned(), reason: reason.to_owned() }
    }

    /// The device is lost, and may for ever use what it was given: nothing of it may be destroyed any more.
    pub fn hang(&self, call: &str, reason: &str) -> MachineError {
        self.hangs.store(true, Ordering::Relaxed);
        self.lose(call, reason)
    }

    /// Whether something may still run on the lost device.
    pub fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    /// What a call of the driver gave.
    pub fn of<T>(&self, call: &str, result: VkResult<T>) -> Result<T, MachineError> {
        result.map_err(|error| self.failed(call, error))
    }

    /// What a failed call means.
    pub fn failed(&self, call: &str, error: vk::Result) -> MachineError {
        match error {
            vk::Result::ERROR_DEVICE_LOST => self.lose(call, "the driver says VK_ERROR_DEVICE_LOST"),
            error => MachineError::Driver { call: call.to_owned(), reason: error.to_string() },
        }
    }
}

/// Whether a result says that memory ran out.
pub fn is_out_of_memory(error: vk::Result) -> bool {
    matches!(error, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY)
}

/// A caller's mistake.
pub fn misuse(call: &str, reason: String) -> MachineError {
    MachineError::Driver { call: call.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_stays_lost() {
        let health = Health::default();
        assert!(health.check("vkQueueSubmit").is_ok());
        let error = health.failed("vkWaitForFences", vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        assert!(matches!(error, MachineError::Driver { .. }), "{error}");
        assert!(health.check("vkQueueSubmit").is_ok());
        let error = health.failed("vkWaitForFences", vk::Result::ERROR_DEVICE_LOST);
        assert!(matches!(error, MachineError::Lost { .. }), "{error}");
        let later = health.check("vkQueueSubmit").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(later.contains("vkQueueSubmit: it was lost before, in vkWaitForFences"), "{later}");
    }
}
