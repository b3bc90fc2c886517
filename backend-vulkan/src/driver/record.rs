//! Launches recorded into command buffers.
//!
//! The first command buffer begins with the copy of inputs and workgroup counts out of mapped memory, the last one ends with the
//! copy of results into mapped memory; between them is each launch, after a barrier where it touches what another since the
//! last barrier wrote, or writes what that touched: what does not depend on each other runs side by side. They are submitted
//! in order to one queue, so that barriers hold across them. Which launches share a command buffer,
//! [`unisonic_gpu::pacing`] says.

use std::ops::Range;
use std::sync::Arc;

use ash::vk;
use unisonic_core::kir::abi::ALIGN_BYTES;
use unisonic_core::launch::Workgroups;
use unisonic_gpu::hazards::{Access, Hazards};
use unisonic_gpu::machine::{Dispatch, MachineError, Span, Work};
use unisonic_gpu::pacing::Pacing;

use super::constants::{Constants, Groups, PerTile, Record, check_groups};
use super::device::Device;
use super::error::misuse;
use super::machine::VulkanMachine;
use super::memory::{Buffer, Mapped};
use super::run::Submissions;
use super::timing::Stamps;
use super::upload::Uploader;

type MachineDispatch = Dispatch<VulkanMachine>;
type MachineSpan = Span<VulkanMachine>;

/// What a run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The copy of the inputs.
    WithInputs,
    /// What the run before it, in the same queue, left as inputs.
    Again,
}

/// Launches that can be run again and again.
pub struct Recording {
    /// Goes first: waits until nothing runs.
    pub(super) submissions: Submissions,
    /// For runs after another, once there was one.
    pub(super) again: Option<Submissions>,
    /// Inputs, then workgroups of launches per tile.
    pub(super) staging: Option<Mapped>,
    pub(super) readback: Option<Mapped>,
    pub(super) inputs_len: usize,
    /// What the last run gave back, where reading it in mapped memory would be slow.
    pub(super) results: Vec<u32>,
    /// Whether the last run has ended well: nothing writes to mapped memory.
    pub(super) has_results: bool,
    /// In the order of the commands.
    pub(super) per_tile: Vec<PerTile>,
    pub(super) stamps: Option<Stamps>,
    /// Which launches a submission has.
    pub(super) pacing: Pacing,
    /// What the command buffers do, and use.
    work: Work<VulkanMachine>,
    /// For each launch whether a barrier has to be before it.
    waits: Vec<bool>,
    constants: Constants,
    /// Where the constants are.
    buffer: Buffer,
}

impl Recording {
    /// Records launches.
    pub(super) fn new(
        device: &Arc<Device>,
        uploader: &mut Uploader,
        work: &Work<VulkanMachine>,
    ) -> Result<Self, MachineError> {
        Self::with_stamps(device, uploader, work, None)
    }

    /// Records launches with timestamps between them, made for as many.
    pub(super) fn with_stamps(
        device: &Arc<Device>,
        uploader: &mut Uploader,
        work: &Work<VulkanMachine>,
        stamps: Option<Stamps>,
    ) -> Result<Self, MachineError> {
        device.health.check("recording")?;
        check(device, work)?;
        let constants = constants(work);
        let commands_len = constants.commands_len_bytes();
        let buffer_len_bytes = constants.commands_at() + commands_len as u64;
        let buffer = Buffer::new(
            device,
            buffer_len_bytes,
            vk::BufferUsageFlags::INDIRECT_BUFFER,
            "the records of launches",
        )?;
        uploader.upload(&buffer, 0, &constants.bytes)?;
        let inputs_len = len(work.inputs.len_bytes, "inputs")?;
        let results_len_bytes =
            work.results.iter().try_fold(0_u64, |sum, span| sum.checked_add(span.len_bytes));
        let results_len = len(results_len_bytes.unwrap_or(u64::MAX), "results")?;
        let staged_len = inputs_len.saturating_add(commands_len);
        let some = |len: usize| (len > 0).then_some(len);
        let staging =
            some(staged_len).map(|len| Mapped::staging(device, len, "the inputs of launches")).transpose()?;
        let readback = some(results_len)
            .map(|len| Mapped::readback(device, len, "the results of launches"))
            .transpose()?;
        let is_copied = readback.as_ref().is_some_and(|readback| !readback.is_cached());
        let results = if is_copied { vec![0; results_len / 4] } else { vec![] };
        let pacing = Pacing::new(work.dispatches.iter().map(|dispatch| dispatch.workgroups));
        let recording = Self {
            submissions: Submissions::new(device, pacing.pieces().len())?,
            again: None,
            staging,
            readback,
            inputs_len,
            results,
            has_results: false,
            per_tile: constants.per_tile.clone(),
            stamps,
            pacing,
            work: work.clone(),
            waits: waits(work),
            constants,
            buffer,
        };
        tracing::debug!(
            launches = work.dispatches.len(),
            barriers = recording.waits.iter().filter(|&&waits| waits).count(),
            "recorded"
        );
        let pieces = recording.pacing.pieces();
        recording.record(device, &recording.submissions, pieces, Begin::WithInputs)?;
        Ok(recording)
    }

    /// Records command buffers that do all of the work, each with some of the launches.
    pub(super) fn record(
        &self,
        device: &Device,
        submissions: &Submissions,
        pieces: &[Range<usize>],
        begin: Begin,
    ) -> Result<(), MachineError> {
        let recorder = Recorder { device, recording: self };
        for (number, piece) in pieces.iter().enumerate() {
            let (first, is_last) = ((number == 0).then_some(begin), number + 1 == pieces.len());
            recorder.piece(submissions.commands(number), piece, first, is_last)?;
        }
        Ok(())
    }
}

/// For each launch whether a barrier has to be before it.
fn waits(work: &Work<VulkanMachine>) -> Vec<bool> {
    let mut hazards = Hazards::default();
    let of = |dispatch: &MachineDispatch| {
        let accesses = dispatch.spans.iter().zip(dispatch.kernel.writes()).map(|(span, &writes)| {
            let start = span.buffer.address() + span.offset_bytes;
            Access { start, end: start + span.len_bytes, writes }
        });
        hazards.needs_barrier(accesses)
    };
    work.dispatches.iter().map(of).collect()
}

fn constants(work: &Work<VulkanMachine>) -> Constants {
    let mut constants = Constants::default();
    for dispatch in &work.dispatches {
        let addresses = dispatch.spans.iter().map(|span| span.buffer.address() + span.offset_bytes);
        constants.push(addresses, &dispatch.params, dispatch.kernel.pushes_record());
        constants.share(dispatch.workgroups, dispatch.kernel.name());
    }
    constants
}

fn len(len_bytes: u64, what: &str) -> Result<usize, MachineError> {
    usize::try_from(len_bytes).map_err(|_| misuse("recording", format!("{len_bytes} bytes of {what}")))
}

/// Everything that a caller may have got wrong, before the driver sees it.
fn check(device: &Arc<Device>, work: &Work<VulkanMachine>) -> Result<(), MachineError> {
    for dispatch in &work.dispatches {
        check_dispatch(device, dispatch)?;
    }
    let of = |span: &MachineSpan, what| {
        span.buffer.check(device, span.offset_bytes, span.len_bytes, "recording", what)
    };
    of(&work.inputs, "the inputs")?;
    work.results.iter().try_for_each(|span| of(span, "a result"))
}

fn check_dispatch(device: &Arc<Device>, dispatch: &MachineDispatch) -> Result<(), MachineError> {
    let kernel = &dispatch.kernel;
    let call = format!("the launch of `{}`", kernel.name());
    if !kernel.is_of(device) {
        return Err(misuse(&call, "it was compiled for another device".to_owned()));
    }
    let (spans, params) = (dispatch.spans.len(), dispatch.params.len());
    if (spans, params) != (kernel.writes().len(), kernel.params()) {
        let (addresses, wanted) = (kernel.writes().len(), kernel.params());
        let reason = format!("{spans} spans and {params} parameters, where it has {addresses} and {wanted}");
        return Err(misuse(&call, reason));
    }
    for (number, span) in dispatch.spans.iter().enumerate() {
        let what = format!("span {number}");
        span.buffer.check(device, span.offset_bytes, span.len_bytes, &call, &what)?;
        if !span.offset_bytes.is_multiple_of(ALIGN_BYTES) {
            return Err(misuse(
                &call,
                format!("{what} begins at {}, no multiple of {ALIGN_BYTES}", span.offset_bytes),
            ));
        }
    }
    match dispatch.workgroups {
        Workgroups::Fixed(groups) => {
            check_groups(groups.into(), kernel.name(), device.features.limits.groups).map(drop)
        }
        Workgroups::PerTile(..) => Ok(()),
    }
}

/// Records the command buffers of a recording.
struct Recorder<'a> {
    device: &'a Device,
    recording: &'a Recording,
}

/// What launches read and write, and who reads commands.
const KERNELS: vk::PipelineStageFlags = vk::PipelineStageFlags::COMPUTE_SHADER;

impl Recorder<'_> {
    /// A command buffer.
    fn piece(
        &self,
        commands: vk::CommandBuffer,
        dispatches: &Range<usize>,
        first: Option<Begin>,
        is_last: bool,
    ) -> Result<(), MachineError> {
        let (raw, health) = (&self.device.raw, &self.device.health);
        // SAFETY: it does not run yet; the command buffer is recorded once, here, from beginning to end, of things that the
        // recording holds or is, and that `check` has found to be of this device and long enough.
        unsafe {
            // Later runs may all be in one submission.
            let begin =
                vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
            health.of("vkBeginCommandBuffer", raw.begin_command_buffer(commands, &begin))?;
            match first {
                Some(Begin::WithInputs) => self.copy_inputs(commands),
                Some(Begin::Again) => self.barrier_between_runs(commands),
                None => (),
            }
            if first.is_some() {
                self.recording.stamps.iter().for_each(|stamps| stamps.begin(commands));
            }
            let mut bound = vk::Pipeline::null();
            for index in dispatches.clone() {
                if self.recording.waits[index] {
                    self.barrier_between(commands);
                }
                self.dispatch(commands, index, &mut bound);
                self.recording.stamps.iter().for_each(|stamps| stamps.after(commands, index));
            }
            if is_last {
                self.copy_results(commands);
            }
            health.of("vkEndCommandBuffer", raw.end_command_buffer(commands))
        }
    }

    unsafe fn copy_inputs(&self, commands: vk::CommandBuffer) {
        let Some(staging) = &self.recording.staging else { return };
        let Recording { work, constants, buffer, .. } = self.recording;
        let inputs = &work.inputs;
        let copies = [
            (inputs.buffer.raw(), 0, inputs.offset_bytes, inputs.len_bytes),
            (buffer.raw(), inputs.len_bytes, constants.commands_at(), constants.commands_len_bytes() as u64),
        ];
        for (to, src_offset, dst_offset, size) in copies.into_iter().filter(|copy| copy.3 > 0) {
            let region = vk::BufferCopy { src_offset, dst_offset, size };
            // SAFETY: as in `piece`; the staging buffer is as long as both copies.
            unsafe { self.device.raw.cmd_copy_buffer(commands, staging.raw(), to, &[region]) };
        }
        let reads = vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE;
        let to = (
            KERNELS | vk::PipelineStageFlags::DRAW_INDIRECT | vk::PipelineStageFlags::TRANSFER,
            reads | vk::AccessFlags::INDIRECT_COMMAND_READ | vk::AccessFlags::TRANSFER_READ,
        );
        // SAFETY: as in `piece`.
        unsafe {
            barrier(
                self.device,
                commands,
                (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE),
                to,
            )
        };
    }

    /// After a run, whose results have been copied.
    unsafe fn barrier_between_runs(&self, commands: vk::CommandBuffer) {
        let from = (KERNELS | vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::SHADER_WRITE);
        let to = (KERNELS, vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE);
        // SAFETY: as in `piece`.
        unsafe { barrier(self.device, commands, from, to) };
    }

    unsafe fn barrier_between(&self, commands: vk::CommandBuffer) {
        let to = (KERNELS, vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE);
        // SAFETY: as in `piece`.
        unsafe { barrier(self.device, commands, (KERNELS, vk::AccessFlags::SHADER_WRITE), to) };
    }

    unsafe fn dispatch(&self, commands: vk::CommandBuffer, index: usize, bound: &mut vk::Pipeline) {
        let Recording { work, constants, buffer, .. } = self.recording;
        let dispatch = &work.dispatches[index];
        let (raw, pipeline) = (&self.device.raw, dispatch.kernel.raw());
        let address;
        let pushed: &[u8] = match &constants.records[index] {
            Record::Pushed(record) => record,
            Record::At(offset) => {
                address = (buffer.address() + offset).to_le_bytes();
                &address
            }
        };
        // SAFETY: as in `piece`; the layout is that of all pipelines, and commands lie in the buffer, at multiples of 4.
        unsafe {
            if *bound != pipeline {
                raw.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline);
                *bound = pipeline;
            }
            let stage = vk::ShaderStageFlags::COMPUTE;
            // Nothing is pushed for a kernel without objects and parameters.
            if !pushed.is_empty() {
                raw.cmd_push_constants(commands, self.device.layout, stage, 0, pushed);
            }
            match constants.groups(dispatch.workgroups) {
                Groups::Fixed(groups) => raw.cmd_dispatch(commands, groups, 1, 1),
                Groups::At(offset) => raw.cmd_dispatch_indirect(commands, buffer.raw(), offset),
            }
        }
    }

    unsafe fn copy_results(&self, commands: vk::CommandBuffer) {
        let Some(readback) = &self.recording.readback else { return };
        let from = (KERNELS, vk::AccessFlags::SHADER_WRITE);
        let to = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_READ);
        // SAFETY: as in `piece`.
        unsafe { barrier(self.device, commands, from, to) };
        let mut dst_offset = 0;
        for span in self.recording.work.results.iter().filter(|span| span.len_bytes > 0) {
            let region = vk::BufferCopy { src_offset: span.offset_bytes, dst_offset, size: span.len_bytes };
            // SAFETY: as in `piece`; the read-back buffer is as long as all results.
            unsafe {
                self.device.raw.cmd_copy_buffer(commands, span.buffer.raw(), readback.raw(), &[region])
            };
            dst_offset += span.len_bytes;
        }
        let from = (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE);
        let to = (vk::PipelineStageFlags::HOST, vk::AccessFlags::HOST_READ);
        // SAFETY: as in `piece`.
        unsafe { barrier(self.device, commands, from, to) };
    }
}

/// Makes what some stages wrote visible to others.
///
/// # Safety
/// The command buffer is being recorded.
pub unsafe fn barrier(
    device: &Device,
    commands: vk::CommandBuffer,
    from: (vk::PipelineStageFlags, vk::AccessFlags),
    to: (vk::PipelineStageFlags, vk::AccessFlags),
) {
    let memory = [vk::MemoryBarrier::default().src_access_mask(from.1).dst_access_mask(to.1)];
    let none = vk::DependencyFlags::empty();
    // SAFETY: the caller's promise; the structures live through the call.
    unsafe { device.raw.cmd_pipeline_barrier(commands, from.0, to.0, none, &memory, &[], &[]) };
}
