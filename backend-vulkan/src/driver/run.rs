//! Submissions: how what was recorded runs.

use std::sync::{Arc, PoisonError};

use ash::vk;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::MachineError;

use super::constants::commands;
use super::device::Device;
use super::error::misuse;
use super::record::Recording;

/// Command buffers that are submitted in order, and the fence at their end.
pub struct Submissions {
    device: Arc<Device>,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
    fence: vk::Fence,
}

impl Submissions {
    /// So many command buffers, each of which can be recorded again.
    pub fn new(device: &Arc<Device>, count: usize) -> Result<Self, MachineError> {
        let family = device.features.queue_family.unwrap_or_default();
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER;
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family).flags(flags);
        // SAFETY: the structures live through the calls, here and below; what was made is destroyed with the value.
        let pool = unsafe { device.raw.create_command_pool(&info, None) };
        let pool = device.health.of("vkCreateCommandPool", pool)?;
        let mut made = Self { device: device.clone(), pool, commands: vec![], fence: vk::Fence::null() };
        let count = u32::try_from(count).map_err(|_| misuse("recording", format!("{count} submissions")))?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(count);
        // SAFETY: as above.
        let commands = unsafe { device.raw.allocate_command_buffers(&info) };
        made.commands = device.health.of("vkAllocateCommandBuffers", commands)?;
        // SAFETY: as above.
        let fence = unsafe { device.raw.create_fence(&vk::FenceCreateInfo::default(), None) };
        made.fence = device.health.of("vkCreateFence", fence)?;
        Ok(made)
    }

    /// A command buffer.
    pub fn commands(&self, number: usize) -> vk::CommandBuffer {
        self.commands[number]
    }

    /// Submits all, and does not wait. If that fails, nothing runs any more.
    pub fn submit(&mut self) -> Result<(), MachineError> {
        self.device.health.check("vkQueueSubmit")?;
        // SAFETY: what was submitted with the fence has ended (`wait`).
        let reset = unsafe { self.device.raw.reset_fences(&[self.fence]) };
        self.device.health.of("vkResetFences", reset)?;
        for number in 0..self.commands.len() {
            if let Err(error) = self.submit_one(number) {
                self.settle();
                return Err(error);
            }
        }
        Ok(())
    }

    fn submit_one(&self, number: usize) -> Result<(), MachineError> {
        let commands = [self.commands[number]];
        let submits = [vk::SubmitInfo::default().command_buffers(&commands)];
        let is_last = number + 1 == self.commands.len();
        let fence = if is_last { self.fence } else { vk::Fence::null() };
        let mut queue = self.device.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut queue.left {
            Some(0) => {
                return Err(self.device.health.lose("vkQueueSubmit", "it was to be lost here, for a test"));
            }
            Some(left) => *left -= 1,
            None => (),
        }
        // SAFETY: the command buffers are recorded and do not run; what they use is held by who has them; the queue is locked.
        let submitted = unsafe { self.device.raw.queue_submit(queue.raw, &submits, fence) };
        self.device.health.of("vkQueueSubmit", submitted)
    }

    /// Waits for what was submitted last. If that fails, nothing runs any more.
    pub fn wait(&mut self) -> Result<(), MachineError> {
        // SAFETY: the fence is the device's. There is no time after which a launch counts as one that hangs: the driver knows
        // better, and then says that the device is lost.
        let waited = unsafe { self.device.raw.wait_for_fences(&[self.fence], true, u64::MAX) };
        waited.map_err(|error| {
            let error = self.device.health.failed("vkWaitForFences", error);
            self.settle();
            error
        })
    }

    /// After an error: waits until nothing runs that was submitted. A device that cannot do that is lost.
    fn settle(&self) {
        let queue = self.device.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is the device's, and locked.
        if let Err(error) = unsafe { self.device.raw.queue_wait_idle(queue.raw) } {
            let _ = self.device.health.lose("vkQueueWaitIdle", &error.to_string());
        }
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        // SAFETY: nothing runs: who submits waits before it lets go. Each is destroyed once; the pool frees its command
        // buffers, and null handles are ignored.
        unsafe {
            self.device.raw.destroy_fence(self.fence, None);
            self.device.raw.destroy_command_pool(self.pool, None);
        }
    }
}

impl Recording {
    /// Runs the recording once, as [`unisonic_gpu::machine::Machine::run`] says.
    pub(super) fn run(
        &mut self,
        device: &Arc<Device>,
        inputs: &[u8],
        tiles: TileCounts,
        results: &mut [u8],
    ) -> Result<(), MachineError> {
        if !self.submissions.is_of(device) {
            return Err(misuse("running", "it was recorded for another device".to_owned()));
        }
        if (inputs.len(), results.len()) != (self.inputs_len, self.results_len) {
            let (found, expected) = ([inputs.len(), results.len()], [self.inputs_len, self.results_len]);
            return Err(misuse(
                "running",
                format!("{found:?} bytes of inputs and results, where {expected:?} were recorded"),
            ));
        }
        let commands = commands(&self.per_tile, tiles, device.features.limits.groups)?;
        if let Some(staging) = &mut self.staging {
            staging.write(0, inputs);
            staging.write(inputs.len(), &commands);
        }
        self.submissions.submit()?;
        self.submissions.wait()?;
        if let Some(readback) = &self.readback {
            readback.read(results);
        }
        Ok(())
    }
}

impl Submissions {
    /// Whether they are of a device.
    fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(device, &self.device)
    }
}
