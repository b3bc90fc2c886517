//! Streams, in which work is done one piece after the other, and events, which say how far one is.

use std::ffi::c_uint;
use std::sync::Arc;

use cudarc::driver::sys;
use unisonic_gpu::machine::MachineError;

use super::context::Context;
use super::library::elapsed_time;
use super::pinned::Pinned;

/// A stream.
pub struct Stream {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: the driver API may be called from any thread with any stream; nothing else is behind the pointer.
unsafe impl Send for Stream {}
// SAFETY: as above, and from several threads at once.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that waits for no other.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, MachineError> {
        context.enter()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the context is current; the stream is written to a pointer of its type.
        let result = unsafe { sys::cuStreamCreate(&mut stream, flags) };
        context.check("cuStreamCreate", result)?;
        Ok(Arc::new(Self { context: context.clone(), stream }))
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// For calls of the driver, as long as this lives.
    pub fn raw(&self) -> sys::CUstream {
        self.stream
    }

    /// Waits until all that was put in is done. Errors of what was done come out here.
    pub fn synchronize(&self) -> Result<(), MachineError> {
        self.context.enter()?;
        // SAFETY: the stream lives.
        let result = unsafe { sys::cuStreamSynchronize(self.stream) };
        self.context.check("cuStreamSynchronize", result)
    }

    /// Puts in a copy of the first `len_bytes` of pinned memory to device memory.
    ///
    /// # Safety
    /// The device memory has that length from `to` on; until the copy is done neither is freed and the pinned
    /// memory is not written. If the stream is being captured, that holds for each launch of the graph.
    pub unsafe fn copy_to_device(
        &self,
        to: u64,
        from: &Pinned,
        len_bytes: usize,
    ) -> Result<(), MachineError> {
        assert!(len_bytes <= from.len_bytes(), "{len_bytes} of {} bytes", from.len_bytes());
        self.context.enter()?;
        // SAFETY: the pinned memory is as long, and the caller vouches for the rest.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.address(0), len_bytes, self.stream) };
        self.context.check("cuMemcpyHtoDAsync", result)
    }

    /// Puts in a copy of device memory to pinned memory, `offset_bytes` from its beginning.
    ///
    /// # Safety
    /// The device memory has that length from `from` on; until the copy is done neither is freed and the
    /// pinned memory is neither read nor written. If the stream is being captured, that holds for each launch
    /// of the graph.
    pub unsafe fn copy_to_host(
        &self,
        to: &Pinned,
        offset_bytes: usize,
        from: u64,
        len_bytes: usize,
    ) -> Result<(), MachineError> {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= to.len_bytes()), "{offset_bytes} + {len_bytes} bytes");
        self.context.enter()?;
        // SAFETY: the pinned memory is as long, and the caller vouches for the rest.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.address(offset_bytes), from, len_bytes, self.stream) };
        self.context.check("cuMemcpyDtoHAsync", result)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was created once. What is still in it goes on to its end.
        self.context.give_back("cuStreamDestroy", || unsafe { sys::cuStreamDestroy_v2(self.stream) });
    }
}

/// A place in a stream that can be waited for.
pub struct Event {
    context: Arc<Context>,
    event: sys::CUevent,
}

// SAFETY: the driver API may be called from any thread with any event; nothing else is behind the pointer.
unsafe impl Send for Event {}

impl Event {
    /// An event that is nowhere yet: waiting for it does not wait.
    pub fn new(context: &Arc<Context>) -> Result<Self, MachineError> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// One that says when the stream came to it.
    pub fn timed(context: &Arc<Context>) -> Result<Self, MachineError> {
        Self::with_flags(context, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with_flags(context: &Arc<Context>, flags: sys::CUevent_flags) -> Result<Self, MachineError> {
        context.enter()?;
        let flags = flags as c_uint;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; the event is written to a pointer of its type.
        let result = unsafe { sys::cuEventCreate(&mut event, flags) };
        context.check("cuEventCreate", result)?;
        Ok(Self { context: context.clone(), event })
    }

    /// Puts it behind all that is in a stream of the same context.
    pub fn record(&mut self, stream: &Stream) -> Result<(), MachineError> {
        self.context.enter()?;
        // SAFETY: both live.
        let result = unsafe { sys::cuEventRecord(self.event, stream.raw()) };
        self.context.check("cuEventRecord", result)
    }

    /// As [`Event::record`]; where the stream is being captured, each launch of the graph stamps the event.
    pub fn stamp(&self, stream: &Stream) -> Result<(), MachineError> {
        self.context.enter()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream lives; the status is written to a place of its type.
        let result = unsafe { sys::cuStreamIsCapturing(stream.raw(), &mut status) };
        self.context.check("cuStreamIsCapturing", result)?;
        let is_captured = status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        let flags = if is_captured {
            sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL
        } else {
            sys::CUevent_record_flags::CU_EVENT_RECORD_DEFAULT
        };
        // SAFETY: both live.
        let result = unsafe { sys::cuEventRecordWithFlags(self.event, stream.raw(), flags as c_uint) };
        self.context.check("cuEventRecordWithFlags", result)
    }

    /// Nanoseconds from another timed event to this, both of which the stream has come to.
    pub fn since_ns(&self, other: &Self) -> Result<u64, MachineError> {
        self.context.enter()?;
        let call = "cuEventElapsedTime";
        let elapsed_time = elapsed_time().ok_or_else(|| MachineError::Driver {
            call: call.to_owned(),
            reason: "the driver does not have it".to_owned(),
        })?;
        let mut milliseconds = 0.0;
        // SAFETY: both live; the time is written to a place of its type.
        let result = unsafe { elapsed_time(&mut milliseconds, other.event, self.event) };
        self.context.check(call, result)?;
        Ok((f64::from(milliseconds) * 1e6).round() as u64)
    }

    /// Waits until the stream has come to it.
    pub fn wait(&self) -> Result<(), MachineError> {
        self.context.enter()?;
        // SAFETY: the event lives.
        let result = unsafe { sys::cuEventSynchronize(self.event) };
        self.context.check("cuEventSynchronize", result)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was created once; the driver keeps it for what still waits for it.
        self.context.give_back("cuEventDestroy", || unsafe { sys::cuEventDestroy_v2(self.event) });
    }
}
