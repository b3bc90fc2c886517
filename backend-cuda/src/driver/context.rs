//! The state that all handles of a machine share: the GPU's primary context, and whether it is lost.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use unisonic_gpu::machine::MachineError;

use super::error;

/// The primary context of a GPU, which is held until this is dropped.
pub struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    lost: OnceLock<Loss>,
}

/// How the context was lost.
struct Loss {
    call: String,
    reason: String,
}

// SAFETY: the driver API may be called from any thread with any context; nothing else is behind the pointer.
unsafe impl Send for Context {}
// SAFETY: as above, and from several threads at once.
unsafe impl Sync for Context {}

impl Context {
    /// Takes hold of a GPU that the driver, which was started, has named.
    pub fn new(device: sys::CUdevice) -> Result<Arc<Self>, MachineError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the device is one that the driver named; the context is written to a pointer of its type.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) };
        error::check("cuDevicePrimaryCtxRetain", result)?;
        Ok(Arc::new(Self { device, context, lost: OnceLock::new() }))
    }

    /// Makes it current in this thread; an error if it is lost. Comes before every call of the driver.
    pub fn enter(&self) -> Result<(), MachineError> {
        self.still_there()?;
        // SAFETY: the context is held.
        let result = unsafe { sys::cuCtxSetCurrent(self.context) };
        self.check("cuCtxSetCurrent", result)
    }

    /// An error if it is lost.
    pub fn still_there(&self) -> Result<(), MachineError> {
        let lost = |loss: &Loss| MachineError::Lost { call: loss.call.clone(), reason: loss.reason.clone() };
        self.lost.get().map_or(Ok(()), |loss| Err(lost(loss)))
    }

    /// An error unless a call succeeded; remembers if that means that the context is lost.
    pub fn check(&self, call: &str, result: sys::CUresult) -> Result<(), MachineError> {
        let checked = error::check(call, result);
        if let Err(MachineError::Lost { call, reason }) = &checked {
            // The first loss is the one that is told of.
            let _ = self.lost.set(Loss { call: call.clone(), reason: reason.clone() });
        }
        checked
    }

    /// For `drop`: gives something back, unless the context is lost; then it is left to the end of the context.
    pub fn give_back(&self, call: &str, give_back: impl FnOnce() -> sys::CUresult) {
        if self.enter().is_ok() && self.check(call, give_back()).is_err() {
            tracing::warn!("{call} failed while something was given back");
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and no handle is left: all of them hold this. A lost context too may be released,
        // which frees what was not given back.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        if let Err(error) = error::check("cuDevicePrimaryCtxRelease", result) {
            tracing::debug!("{error}");
        }
    }
}
