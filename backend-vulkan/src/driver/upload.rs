//! Bytes on their way to device memory.
//!
//! Through two mapped buffers in turn: while the device copies out of one, the host fills the other. Nobody waits for the last
//! copy: what is submitted later comes after it.

use std::sync::Arc;

use ash::vk;
use unisonic_core::kir::abi::ALIGN_BYTES;
use unisonic_gpu::machine::MachineError;

use super::device::Device;
use super::memory::{Buffer, Mapped};
use super::record::barrier;
use super::run::Submissions;

/// A buffer on the way, where the device takes so long ones.
const SLOT_LEN_BYTES: usize = 16 << 20;

/// Copies bytes to device memory.
pub struct Uploader {
    device: Arc<Device>,
    slots: [Option<Slot>; 2],
    next: usize,
}

struct Slot {
    submissions: Submissions,
    staging: Mapped,
    /// Where the copy goes that runs.
    to: Option<Buffer>,
}

impl Uploader {
    /// Takes no memory before something is uploaded.
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), slots: [None, None], next: 0 }
    }

    /// Copies bytes. They are there for whatever is submitted later.
    pub fn upload(&mut self, to: &Buffer, offset_bytes: u64, bytes: &[u8]) -> Result<(), MachineError> {
        to.check(&self.device, offset_bytes, bytes.len() as u64, "the upload", "the target")?;
        let mut at = offset_bytes;
        let most = self.device.features.limits.allocation_len_bytes / ALIGN_BYTES * ALIGN_BYTES;
        let slot_len = usize::try_from(most.max(ALIGN_BYTES)).unwrap_or(usize::MAX).min(SLOT_LEN_BYTES);
        for chunk in bytes.chunks(slot_len) {
            let slot = &mut self.slots[self.next];
            self.next = 1 - self.next;
            let slot = match slot {
                Some(slot) => slot,
                None => slot.insert(Slot::new(&self.device, slot_len)?),
            };
            slot.copy(&self.device, to, at, chunk)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }
}

impl Slot {
    fn new(device: &Arc<Device>, len: usize) -> Result<Self, MachineError> {
        Ok(Self {
            submissions: Submissions::new(device, 1)?,
            staging: Mapped::staging(device, len, "uploads")?,
            to: None,
        })
    }

    fn copy(
        &mut self,
        device: &Device,
        to: &Buffer,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), MachineError> {
        self.wait()?;
        device.health.check("vkBeginCommandBuffer")?;
        self.staging.write(0, bytes);
        let (commands, raw) = (self.submissions.commands(0), &device.raw);
        let region = vk::BufferCopy { src_offset: 0, dst_offset: offset_bytes, size: bytes.len() as u64 };
        // SAFETY: what the command buffer did has ended; it is recorded from beginning to end, of buffers of this device that are
        // long enough and held until it has ended.
        unsafe {
            let begin =
                vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
            device.health.of("vkBeginCommandBuffer", raw.begin_command_buffer(commands, &begin))?;
            raw.cmd_copy_buffer(commands, self.staging.raw(), to.raw(), &[region]);
            let all = (
                vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::TRANSFER,
                vk::AccessFlags::SHADER_READ
                    | vk::AccessFlags::SHADER_WRITE
                    | vk::AccessFlags::TRANSFER_READ
                    | vk::AccessFlags::TRANSFER_WRITE,
            );
            barrier(
                device,
                commands,
                (vk::PipelineStageFlags::TRANSFER, vk::AccessFlags::TRANSFER_WRITE),
                all,
            );
            device.health.of("vkEndCommandBuffer", raw.end_command_buffer(commands))?;
        }
        self.submissions.submit(&[self.submissions.commands(0)])?;
        self.to = Some(to.clone());
        Ok(())
    }

    /// Waits for the copy that runs, if there is one.
    fn wait(&mut self) -> Result<(), MachineError> {
        // Whatever comes of it, it runs no more.
        let to = self.to.take();
        let waited = if to.is_some() { self.submissions.wait() } else { Ok(()) };
        drop(to);
        waited
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::error!("an upload failed: {error}");
        }
    }
}
