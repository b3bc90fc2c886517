//! The interpreter, watched: counts what it is asked for, and fails when it is told to.

use std::sync::{Arc, Mutex};

use unisonic_core::kir::Kernel;
use unisonic_core::launch::Hardware;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::DeviceInfo;
use unisonic_gpu::interpreter::{HostBuffer, InterpreterMachine, InterpreterRecording};
use unisonic_gpu::machine::{Dispatch, Machine, MachineError, Span, Work};

/// What a machine was asked for, and what it is to do.
#[derive(Default)]
pub struct Watch {
    pub allocated_bytes: u64,
    pub compiled: Vec<String>,
    pub recorded: u32,
    /// Recordings that are not dropped.
    pub alive: u32,
    pub runs: u32,
    /// What the driver says it has.
    pub free_bytes: Option<u64>,
    /// How the next run ends.
    pub fail: Option<MachineError>,
}

/// A watched machine.
pub struct Watched(pub Arc<Mutex<Watch>>);

/// A recording that is missed when it is gone.
pub struct Recording(InterpreterRecording, Arc<Mutex<Watch>>);

impl Drop for Recording {
    fn drop(&mut self) {
        self.1.lock().unwrap().alive -= 1;
    }
}

const INNER: InterpreterMachine = InterpreterMachine { hardware: Hardware::LEAST };

impl Machine for Watched {
    type Buffer = HostBuffer;
    type Kernel = Arc<Kernel>;
    type Recording = Recording;

    fn info(&self) -> DeviceInfo {
        DeviceInfo { id: "watched".into(), ..INNER.info() }
    }

    fn hardware(&self) -> Hardware {
        INNER.hardware()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.lock().unwrap().free_bytes
    }

    fn allocate(&self, len_bytes: u64, what: &str) -> Result<HostBuffer, MachineError> {
        self.0.lock().unwrap().allocated_bytes += len_bytes;
        INNER.allocate(len_bytes, what)
    }

    fn upload(&self, to: &HostBuffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        INNER.upload(to, offset_bytes, bytes)
    }

    fn compile(&self, kernel: &Kernel) -> Result<Arc<Kernel>, MachineError> {
        self.0.lock().unwrap().compiled.push(kernel.name.clone());
        INNER.compile(kernel)
    }

    fn record(&self, work: &Work<Self>) -> Result<Recording, MachineError> {
        let dispatches = work.dispatches.iter().map(|dispatch| Dispatch {
            kernel: Arc::clone(&dispatch.kernel),
            spans: dispatch.spans.iter().map(inner).collect(),
            params: dispatch.params.clone(),
            workgroups: dispatch.workgroups,
        });
        let work = Work {
            dispatches: dispatches.collect(),
            inputs: inner(&work.inputs),
            results: work.results.iter().map(inner).collect(),
        };
        let work = INNER.record(&work)?;
        let mut watch = self.0.lock().unwrap();
        watch.recorded += 1;
        watch.alive += 1;
        Ok(Recording(work, Arc::clone(&self.0)))
    }

    fn results(recording: &Recording) -> &[u32] {
        InterpreterMachine::results(&recording.0)
    }

    fn run_kept(
        &self,
        recording: &mut Recording,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        let mut watch = self.0.lock().unwrap();
        watch.runs += 1;
        match watch.fail.take() {
            Some(error) => Err(error),
            None => INNER.run_kept(&mut recording.0, inputs, tiles, runs),
        }
    }
}

fn inner(span: &Span<Watched>) -> Span<InterpreterMachine> {
    Span { buffer: span.buffer.clone(), offset_bytes: span.offset_bytes, len_bytes: span.len_bytes }
}
