//! A machine without hardware: the kernel interpreter over host memory.
//!
//! It proves launches where there is no GPU: what a GPU would do silently (elements out of bounds, races, two objects of a
//! launch that overlap) is an error here that names the kernel and the statement. Fresh memory is full of bits that are no
//! number, so that what reads it before it was written does not go unseen.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisonic_core::kir::abi::{ALIGN_BYTES, READABLE_LEN_BYTES, addressed};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::is_legal;
use unisonic_core::kir::{Kernel, verify};
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::launch::{Hardware, Workgroups};
use unisonic_core::plan::{DeviceInfo, PROFILE};

use crate::machine::{Dispatch, Machine, MachineError, Span, Work};

/// Statements times invocations of a launch: more than any kernel needs, and an end for one that has none.
const FUEL: u64 = 1 << 44;
/// What fresh memory holds.
const FRESH: u8 = 0xFF;

/// The interpreter, made to look like some hardware.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterMachine {
    /// What it pretends to be: kernels have only operations of this.
    pub hardware: Hardware,
}

/// Host memory.
#[derive(Clone, Debug)]
pub struct HostBuffer(Arc<Mutex<Vec<u8>>>);

impl HostBuffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Launches, and what they gave back.
pub struct InterpreterRecording {
    work: Work<InterpreterMachine>,
    results: Vec<u32>,
}

impl Machine for InterpreterMachine {
    type Buffer = HostBuffer;
    type Kernel = Arc<Kernel>;
    type Recording = InterpreterRecording;

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: "interpreter".into(),
            name: "kernel interpreter".into(),
            profile: PROFILE.into(),
            threads: Some(1),
        }
    }

    fn hardware(&self) -> Hardware {
        self.hardware
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn allocate(&self, len_bytes: u64, what: &str) -> Result<HostBuffer, MachineError> {
        let out_of_memory =
            || MachineError::OutOfMemory { what: what.to_owned(), needed_bytes: len_bytes, free_bytes: None };
        let mut bytes = vec![];
        let len = usize::try_from(len_bytes).map_err(|_| out_of_memory())?;
        bytes.try_reserve_exact(len).map_err(|_| out_of_memory())?;
        bytes.resize(len, FRESH);
        Ok(HostBuffer(Arc::new(Mutex::new(bytes))))
    }

    fn upload(&self, to: &HostBuffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        let mut to = to.lock();
        let len = to.len();
        let start = usize::try_from(offset_bytes).ok();
        let to = start.and_then(|start| to.get_mut(start..)?.get_mut(..bytes.len()));
        let to =
            to.ok_or_else(|| refused("upload", format!("{} bytes at {offset_bytes} of {len}", bytes.len())))?;
        to.copy_from_slice(bytes);
        Ok(())
    }

    fn compile(&self, kernel: &Kernel) -> Result<Arc<Kernel>, MachineError> {
        let refuse = |reason: String| MachineError::Kernel { kernel: kernel.name.clone(), reason };
        let faults: Vec<_> = verify(kernel).iter().map(ToString::to_string).collect();
        if !faults.is_empty() {
            return Err(refuse(faults.join("; ")));
        }
        if !is_legal(kernel, &self.hardware.caps) {
            return Err(refuse("it has operations that the device lacks".to_owned()));
        }
        let shared = kernel.objects.iter().map(|object| match object.space {
            Space::Shared { len } => 4 * u64::from(len),
            _ => 0,
        });
        let shared_len_bytes: u64 = shared.sum();
        if shared_len_bytes > u64::from(self.hardware.shared_len_bytes) {
            return Err(refuse(format!("{shared_len_bytes} bytes of shared memory")));
        }
        if kernel.workgroup > self.hardware.workgroup {
            return Err(refuse(format!("workgroups of {}", kernel.workgroup)));
        }
        Ok(Arc::new(kernel.clone()))
    }

    fn record(&self, work: &Work<Self>) -> Result<InterpreterRecording, MachineError> {
        let spans = work.dispatches.iter().flat_map(|dispatch| &dispatch.spans);
        for span in spans.chain([&work.inputs]).chain(&work.results) {
            check_span(span)?;
        }
        work.dispatches.iter().try_for_each(check_dispatch)?;
        Ok(InterpreterRecording { work: work.clone(), results: vec![] })
    }

    fn run_kept(
        &self,
        recording: &mut InterpreterRecording,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        let InterpreterRecording { work, results } = recording;
        self.upload(&work.inputs.buffer, work.inputs.offset_bytes, inputs)?;
        for _ in 0..runs.max(1) {
            work.dispatches.iter().try_for_each(|dispatch| dispatch.run(tiles))?;
        }
        let found: Vec<u8> = work.results.iter().flat_map(|span| span.read(0)).collect();
        *results = found.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        Ok(())
    }

    fn results(recording: &InterpreterRecording) -> &[u32] {
        &recording.results
    }
}

impl Span<InterpreterMachine> {
    /// Its bytes, and as many behind them as there are up to `more`.
    fn read(&self, more: u64) -> Vec<u8> {
        let bytes = self.buffer.lock();
        let start = self.offset_bytes as usize;
        let end = start + (self.len_bytes + more) as usize;
        bytes[start..end.min(bytes.len())].to_vec()
    }

    fn write(&self, bytes: &[u8]) {
        let start = self.offset_bytes as usize;
        self.buffer.lock()[start..][..bytes.len()].copy_from_slice(bytes);
    }

    fn overlaps(&self, other: &Self) -> bool {
        let end = |span: &Self| span.offset_bytes + span.len_bytes;
        let is_apart = end(self) <= other.offset_bytes || end(other) <= self.offset_bytes;
        self.buffer.is(&other.buffer) && !is_apart
    }
}

impl Dispatch<InterpreterMachine> {
    fn run(&self, tiles: TileCounts) -> Result<(), MachineError> {
        let spaces = || addressed(&self.kernel).map(|id| self.kernel.objects[id.index()].space);
        let buffers = spaces().zip(&self.spans).map(|(space, span)| {
            // Only what is read may be read beyond its end.
            let padding = span.len_bytes.next_multiple_of(READABLE_LEN_BYTES) - span.len_bytes;
            span.read(if space.is_writable() { 0 } else { padding })
        });
        let groups = match self.workgroups {
            Workgroups::Fixed(groups) => groups,
            Workgroups::PerTile(rows, groups) => groups * tiles.of(rows),
        };
        let mut launch =
            Launch { groups, params: self.params.clone(), buffers: buffers.collect(), fuel: FUEL };
        run(&self.kernel, &mut launch).map_err(|trap| self.refused(trap.to_string()))?;
        for ((space, span), bytes) in spaces().zip(&self.spans).zip(&launch.buffers) {
            if space.is_writable() {
                span.write(bytes);
            }
        }
        Ok(())
    }

    fn refused(&self, reason: String) -> MachineError {
        refused(&format!("kernel `{}`", self.kernel.name), reason)
    }
}

fn refused(call: &str, reason: String) -> MachineError {
    MachineError::Driver { call: call.to_owned(), reason }
}

fn check_span(span: &Span<InterpreterMachine>) -> Result<(), MachineError> {
    let Span { ref buffer, offset_bytes, len_bytes } = *span;
    let len = buffer.lock().len() as u64;
    let is_inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= len);
    if is_inside && offset_bytes.is_multiple_of(ALIGN_BYTES) {
        return Ok(());
    }
    Err(refused("record", format!("{len_bytes} bytes at {offset_bytes} of a buffer of {len}")))
}

/// As many spans and parameters as the kernel has, and nothing written that another object shows.
fn check_dispatch(dispatch: &Dispatch<InterpreterMachine>) -> Result<(), MachineError> {
    let kernel = &dispatch.kernel;
    let objects: Vec<_> = addressed(kernel).map(|id| &kernel.objects[id.index()]).collect();
    if objects.len() != dispatch.spans.len() || kernel.params.len() != dispatch.params.len() {
        let (spans, params) = (dispatch.spans.len(), dispatch.params.len());
        return Err(dispatch.refused(format!("launched with {spans} objects and {params} parameters")));
    }
    for (i, object) in objects.iter().enumerate().filter(|(_, object)| object.space.is_writable()) {
        let others = (0..objects.len()).filter(|&other| other != i);
        let overlaps = |&other: &usize| dispatch.spans[i].overlaps(&dispatch.spans[other]);
        if let Some(other) = others.into_iter().find(overlaps) {
            let (name, other) = (&object.name, &objects[other].name);
            return Err(dispatch.refused(format!("`{name}`, which it writes, overlaps `{other}`")));
        }
    }
    Ok(())
}
