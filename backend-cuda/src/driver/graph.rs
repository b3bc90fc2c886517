//! Work of fixed size as one thing that the driver starts: a CUDA graph, captured from a stream.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use unisonic_gpu::machine::MachineError;

use super::context::Context;
use super::stream::Stream;

/// An instantiated graph.
pub struct Graph {
    context: Arc<Context>,
    graph: sys::CUgraphExec,
}

// SAFETY: the driver API may be called from any thread with a graph that no other thread uses meanwhile; nothing else is
// behind the pointer.
unsafe impl Send for Graph {}

impl Graph {
    /// What `enqueue` puts into the stream, which is not done but recorded.
    pub fn capture(
        stream: &Stream,
        enqueue: impl FnOnce() -> Result<(), MachineError>,
    ) -> Result<Self, MachineError> {
        let context = stream.context();
        context.enter()?;
        // Calls that other threads may make meanwhile are none of this capture's business.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        let result = unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) };
        context.check("cuStreamBeginCapture", result)?;
        let enqueued = enqueue();
        context.enter()?;
        let mut captured = ptr::null_mut();
        // SAFETY: the stream lives and is being captured; the graph is written to a pointer of its type.
        let result = unsafe { sys::cuStreamEndCapture(stream.raw(), &mut captured) };
        // What came first is what is told.
        let ended = enqueued.and(context.check("cuStreamEndCapture", result));
        let instantiated = ended.and_then(|()| Self::instantiate(context, captured));
        if !captured.is_null() {
            // SAFETY: the capture made it, and an instantiated graph does not need it.
            context.give_back("cuGraphDestroy", || unsafe { sys::cuGraphDestroy(captured) });
        }
        let graph = instantiated?;
        graph.upload(stream)?;
        Ok(graph)
    }

    fn instantiate(context: &Arc<Context>, captured: sys::CUgraph) -> Result<Self, MachineError> {
        context.enter()?;
        let mut graph = ptr::null_mut();
        // SAFETY: the captured graph lives; the instantiated one is written to a pointer of its type.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut graph, captured, 0) };
        context.check("cuGraphInstantiate", result)?;
        Ok(Self { context: context.clone(), graph })
    }

    /// Brings it to the device, so that the first launch takes no longer than others.
    fn upload(&self, stream: &Stream) -> Result<(), MachineError> {
        // SAFETY: both live.
        let result = unsafe { sys::cuGraphUpload(self.graph, stream.raw()) };
        self.context.check("cuGraphUpload", result)?;
        stream.synchronize()
    }

    /// Puts all of it into a stream.
    ///
    /// # Safety
    /// What was captured may be done now: all that it touches lives until the stream is done with it, and it is not dropped
    /// before.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), MachineError> {
        self.context.enter()?;
        // SAFETY: both live, and the caller vouches for the rest.
        let result = unsafe { sys::cuGraphLaunch(self.graph, stream.raw()) };
        self.context.check("cuGraphLaunch", result)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it was instantiated once, and what was launched of it is done.
        self.context.give_back("cuGraphExecDestroy", || unsafe { sys::cuGraphExecDestroy(self.graph) });
    }
}
