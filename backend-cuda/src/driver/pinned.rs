//! Host memory that the device copies from and to by itself.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys;
use unisonic_gpu::machine::MachineError;

use super::stream::Stream;

/// Host memory that the device reads and writes by itself, while the host does something else.
pub struct Pinned {
    stream: Arc<Stream>,
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: it is owned memory; the driver frees it from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Zeros. All copies from and to it go through the stream.
    pub fn new(stream: &Arc<Stream>, len_bytes: usize) -> Result<Self, MachineError> {
        let context = stream.context();
        context.enter()?;
        let call = format!("cuMemHostAlloc of {len_bytes} bytes of host memory");
        let size = len_bytes.max(1);
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; the address is written to a place of its type.
        let result = unsafe { sys::cuMemHostAlloc(&mut start, size, 0) };
        context.check(&call, result)?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(MachineError::Driver { call, reason: "it gave no address".to_owned() });
        };
        // SAFETY: it is as long, and nobody else has it.
        unsafe { start.write_bytes(0, size) };
        Ok(Self { stream: stream.clone(), start, len_bytes })
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// For copies of the driver.
    ///
    /// # Panics
    /// If it is not in the memory.
    pub fn address(&self, offset_bytes: usize) -> *mut c_void {
        assert!(offset_bytes <= self.len_bytes, "{offset_bytes} of {} bytes", self.len_bytes);
        // SAFETY: the offset is within the allocation or at its end.
        unsafe { self.start.add(offset_bytes) }.as_ptr().cast()
    }

    /// What is in it.
    ///
    /// # Safety
    /// No copy to it is under way.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: it is as long and was filled with zeros; the caller says that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes) }
    }

    /// What is in it.
    ///
    /// # Safety
    /// No copy from or to it is under way.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: it is as long and was filled with zeros; the caller says that nobody else reads or writes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // What might still copy from or to it ends first. Without that it is left to the end of the context.
        if self.stream.synchronize().is_ok() {
            let start = self.start.as_ptr().cast();
            // SAFETY: it was allocated once, and nothing uses it any more.
            self.stream.context().give_back("cuMemFreeHost", || unsafe { sys::cuMemFreeHost(start) });
        }
    }
}
