//! Submissions: how what was recorded runs.
//!
//! Who waits sleeps most of the time that the last run took, then asks again and again for a moment: a thread that wakes up
//! is tens of microseconds late, which is much of the time of a small model's step.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::MachineError;

use super::constants::commands;
use super::device::Device;
use super::enumerate::DeviceKind;
use super::error::misuse;
use super::record::{Begin, Recording};

/// How long at most the fence is asked again and again.
const MOST_POLLING: Duration = Duration::from_millis(1);

/// Command buffers, and the fence at the end of what runs.
pub struct Submissions {
    device: Arc<Device>,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
    fence: vk::Fence,
    /// How long the last wait was.
    last_wait: Duration,
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
        let (device, fence, last_wait) = (device.clone(), vk::Fence::null(), Duration::ZERO);
        let mut made = Self { device, pool, commands: vec![], fence, last_wait };
        let count = u32::try_from(count).map_err(|_| misuse("recording", format!("{count} submissions")))?;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(count);
        // SAFETY: as above.
        let commands = unsafe { made.device.raw.allocate_command_buffers(&info) };
        made.commands = made.device.health.of("vkAllocateCommandBuffers", commands)?;
        // SAFETY: as above.
        let fence = unsafe { made.device.raw.create_fence(&vk::FenceCreateInfo::default(), None) };
        made.fence = made.device.health.of("vkCreateFence", fence)?;
        Ok(made)
    }

    /// A command buffer.
    pub fn commands(&self, number: usize) -> vk::CommandBuffer {
        self.commands[number]
    }

    /// Submits command buffers, these or others of the device, and does not wait. If that fails, nothing runs any more.
    pub fn submit(&mut self, commands: &[vk::CommandBuffer]) -> Result<(), MachineError> {
        self.device.health.check("vkQueueSubmit")?;
        // SAFETY: what was submitted with the fence has ended (`wait`).
        let reset = unsafe { self.device.raw.reset_fences(&[self.fence]) };
        self.device.health.of("vkResetFences", reset)?;
        self.submit_to_queue(commands).inspect_err(|_| self.settle())
    }

    fn submit_to_queue(&self, commands: &[vk::CommandBuffer]) -> Result<(), MachineError> {
        let submits = [vk::SubmitInfo::default().command_buffers(commands)];
        let mut queue = self.device.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut queue.left {
            Some(0) => {
                return Err(self.device.health.lose("vkQueueSubmit", "it was to be lost here, for a test"));
            }
            Some(left) => *left -= 1,
            None => (),
        }
        // SAFETY: the command buffers are recorded, and do not run or may do so more than once at a time; what they use is held
        // by who has them; the queue is locked.
        let submitted = unsafe { self.device.raw.queue_submit(queue.raw, &submits, self.fence) };
        self.device.health.of("vkQueueSubmit", submitted)
    }

    /// Waits for what was submitted last. If that fails, nothing runs any more, or the device is lost.
    pub fn wait(&mut self) -> Result<(), MachineError> {
        self.device.health.check("vkWaitForFences")?;
        let began = Instant::now();
        let waited = self.wait_for_fence(began);
        self.last_wait = began.elapsed();
        waited.map_err(|error| match error {
            vk::Result::TIMEOUT => {
                let seconds = self.device.run_timeout.as_secs_f32();
                self.device.hang("vkWaitForFences", &format!("it did not end within {seconds} seconds"))
            }
            error => {
                let error = self.device.health.failed("vkWaitForFences", error);
                self.settle();
                error
            }
        })
    }

    fn wait_for_fence(&self, began: Instant) -> Result<(), vk::Result> {
        let raw = &self.device.raw;
        let sleep = |most: Duration| {
            let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
            // SAFETY: the fence is the device's.
            unsafe { raw.wait_for_fences(&[self.fence], true, most_ns) }
        };
        // A software device needs the processor for what is waited for.
        if self.device.features.kind != DeviceKind::Software {
            let most_sleeping = self.last_wait / 4 * 3;
            match sleep(most_sleeping) {
                Err(vk::Result::TIMEOUT) => (),
                waited => return waited,
            }
            while began.elapsed() < most_sleeping + MOST_POLLING {
                // SAFETY: the fence is the device's.
                if unsafe { raw.get_fence_status(self.fence) }? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        sleep(self.device.run_timeout.saturating_sub(began.elapsed()))
    }

    /// After an error: waits until nothing runs that was submitted. A device that cannot do that is lost.
    fn settle(&self) {
        if self.device.health.hangs() {
            return;
        }
        let queue = self.device.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is the device's, and locked.
        if let Err(error) = unsafe { self.device.raw.queue_wait_idle(queue.raw) } {
            let _ = self.device.health.lose("vkQueueWaitIdle", &error.to_string());
        }
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        if self.device.health.hangs() {
            return;
        }
        // SAFETY: nothing runs: who submits waits before it lets go. Each is destroyed once; the pool frees its command
        // buffers, and null handles are ignored.
        unsafe {
            self.device.raw.destroy_fence(self.fence, None);
            self.device.raw.destroy_command_pool(self.pool, None);
        }
    }
}

impl Recording {
    /// Runs the recording once, as [`unisonic_gpu::machine::Machine::run_kept`] says.
    pub(super) fn run(
        &mut self,
        device: &Arc<Device>,
        inputs: &[u8],
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        if !self.submissions.is_of(device) {
            return Err(misuse("running", "it was recorded for another device".to_owned()));
        }
        self.has_results = false;
        if inputs.len() != self.inputs_len {
            let (found, expected) = (inputs.len(), self.inputs_len);
            return Err(misuse(
                "running",
                format!("{found} bytes of inputs, where {expected} were recorded"),
            ));
        }
        let commands = commands(&self.per_tile, tiles, device.features.limits.groups)?;
        // A device that hangs may still read what was written before.
        device.health.check("running")?;
        self.cut(device, tiles)?;
        if let Some(staging) = &mut self.staging {
            staging.write(0, inputs);
            staging.write(inputs.len(), &commands);
        }
        if runs > 1 && self.pacing.fits(runs, tiles) {
            self.run_together(device, tiles, runs)?;
        } else {
            (0..runs.max(1)).try_for_each(|run| self.run_once(device, tiles, run > 0))?;
        }
        if let Some(readback) = self.readback.as_ref().filter(|readback| !readback.is_cached()) {
            readback.read(bytemuck::cast_slice_mut(&mut self.results));
        }
        self.has_results = true;
        Ok(())
    }

    /// A run by itself; where it comes after another, with what that left as inputs.
    fn run_once(
        &mut self,
        device: &Arc<Device>,
        tiles: TileCounts,
        is_again: bool,
    ) -> Result<(), MachineError> {
        for number in 0..self.pacing.pieces().len() {
            let commands = match is_again {
                true => self.again(device)?.commands(number),
                false => self.submissions.commands(number),
            };
            let launches = self.pacing.pieces()[number].len();
            let took = self.submit(device, &[commands], launches)?;
            self.pacing.took(number, tiles, took);
        }
        Ok(())
    }

    /// Runs that fit into one submission.
    fn run_together(
        &mut self,
        device: &Arc<Device>,
        tiles: TileCounts,
        runs: u32,
    ) -> Result<(), MachineError> {
        let again = self.again(device)?.commands(0);
        let later = std::iter::repeat_n(again, runs as usize - 1);
        let commands: Vec<_> = [self.submissions.commands(0)].into_iter().chain(later).collect();
        let launches = self.pacing.pieces()[0].len() * runs as usize;
        let took = self.submit(device, &commands, launches)?;
        self.pacing.took(0, tiles, took / runs);
        Ok(())
    }

    /// Submits so many launches and waits for them; how long they took.
    fn submit(
        &mut self,
        device: &Arc<Device>,
        commands: &[vk::CommandBuffer],
        launches: usize,
    ) -> Result<Duration, MachineError> {
        let began = Instant::now();
        self.submissions.submit(commands)?;
        self.submissions.wait()?;
        Ok(device.count_submission(launches, began.elapsed()))
    }

    /// The command buffers of a run after another.
    fn again(&mut self, device: &Arc<Device>) -> Result<&Submissions, MachineError> {
        let again = match self.again.take() {
            Some(again) => again,
            None => {
                let pieces = self.pacing.pieces();
                let again = Submissions::new(device, pieces.len())?;
                self.record(device, &again, pieces, Begin::Again)?;
                again
            }
        };
        Ok(self.again.insert(again))
    }

    /// Records anew where launches are to be shared out otherwise.
    fn cut(&mut self, device: &Arc<Device>, tiles: TileCounts) -> Result<(), MachineError> {
        let Some(pieces) = self.pacing.cut(tiles) else { return Ok(()) };
        let submissions = Submissions::new(device, pieces.len())?;
        self.record(device, &submissions, &pieces, Begin::WithInputs)?;
        (self.submissions, self.again) = (submissions, None);
        tracing::debug!(submissions = pieces.len(), "recorded");
        self.pacing.set(pieces);
        Ok(())
    }

    /// As [`unisonic_gpu::machine::Machine::results`].
    pub(super) fn results(&self) -> &[u32] {
        match &self.readback {
            _ if !self.has_results => &[],
            Some(readback) if readback.is_cached() => readback.words(),
            _ => &self.results,
        }
    }
}

impl Submissions {
    /// Whether they are of a device.
    fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(device, &self.device)
    }
}
