//! What each launch takes, by timestamps before and after it.

use std::sync::Arc;

use ash::vk;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{MachineError, Times, Work};

use super::device::{Clock, Device};
use super::machine::VulkanMachine;
use super::record::Recording;
use super::upload::Uploader;

/// Which timestamps a recording has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampsAt {
    /// Before the first launch and after the last.
    Ends,
    /// Twice before the first launch, and after each.
    Each,
}

/// The timestamps of a recording.
pub struct Stamps {
    device: Arc<Device>,
    clock: Clock,
    at: StampsAt,
    pool: vk::QueryPool,
    launches: usize,
}

impl Stamps {
    /// For so many launches; none where the device has no clock.
    pub fn new(device: &Arc<Device>, at: StampsAt, launches: usize) -> Result<Option<Self>, MachineError> {
        let Some(clock) = device.clock() else { return Ok(None) };
        let mut stamps = Self { device: device.clone(), clock, at, pool: vk::QueryPool::null(), launches };
        let count = stamps.count();
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count as u32);
        // SAFETY: the structure lives through the call; what was made is destroyed with the value.
        let pool = unsafe { device.raw.create_query_pool(&info, None) };
        stamps.pool = device.health.of("vkCreateQueryPool", pool)?;
        Ok(Some(stamps))
    }

    fn count(&self) -> usize {
        match self.at {
            StampsAt::Ends => 2,
            StampsAt::Each => self.launches + 2,
        }
    }

    /// Records what comes before the first launch.
    ///
    /// # Safety
    /// The command buffer is being recorded, and is submitted before those with the other stamps.
    pub unsafe fn begin(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller's promise; the pool has as many queries.
        unsafe { self.device.raw.cmd_reset_query_pool(commands, self.pool, 0, self.count() as u32) };
        for query in 0..if self.at == StampsAt::Each { 2 } else { 1 } {
            // SAFETY: as above.
            unsafe { self.stamp(commands, query) };
        }
    }

    /// Records what comes after a launch.
    ///
    /// # Safety
    /// As for [`Stamps::begin`].
    pub unsafe fn after(&self, commands: vk::CommandBuffer, launch: usize) {
        let query = match self.at {
            StampsAt::Ends if launch + 1 == self.launches => 1,
            StampsAt::Ends => return,
            StampsAt::Each => launch as u32 + 2,
        };
        // SAFETY: the caller's promise.
        unsafe { self.stamp(commands, query) };
    }

    unsafe fn stamp(&self, commands: vk::CommandBuffer, query: u32) {
        let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
        // SAFETY: the callers' promise; the query was reset at the beginning.
        unsafe { self.device.raw.cmd_write_timestamp(commands, stage, self.pool, query) };
    }

    /// Nanoseconds from the first stamp to each; what was submitted has ended.
    fn read_ns(&self) -> Result<Vec<u64>, MachineError> {
        let mut ticks = vec![0_u64; self.count()];
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: the pool has as many queries as there are places.
        let read = unsafe { self.device.raw.get_query_pool_results(self.pool, 0, &mut ticks, flags) };
        self.device.health.of("vkGetQueryPoolResults", read)?;
        Ok(ticks.iter().map(|&tick| self.clock.ns(ticks[0], tick)).collect())
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // SAFETY: nothing runs that uses the pool, which is destroyed once.
        unsafe { self.device.raw.destroy_query_pool(self.pool, None) };
    }
}

/// As [`unisonic_gpu::machine::Machine::time`].
pub fn time(
    device: &Arc<Device>,
    uploader: &mut Uploader,
    work: &Work<VulkanMachine>,
    (inputs, tiles): (&[u8], TileCounts),
    repetitions: u32,
) -> Result<Option<Vec<Times>>, MachineError> {
    let mut record = |at| -> Result<Option<Recording>, MachineError> {
        let stamps = Stamps::new(device, at, work.dispatches.len())?;
        stamps.map(|stamps| Recording::with_stamps(device, uploader, work, Some(stamps))).transpose()
    };
    let (Some(mut whole), Some(mut each)) = (record(StampsAt::Ends)?, record(StampsAt::Each)?) else {
        return Ok(None);
    };
    if work.dispatches.is_empty() {
        return Ok(Some(vec![Times::default(); repetitions as usize]));
    }
    let run = |recording: &mut Recording| {
        recording.run(device, inputs, tiles, 1)?;
        recording.stamps.as_ref().map_or(Ok(vec![]), Stamps::read_ns)
    };
    let mut times = vec![];
    // The first one warms up.
    for _ in 0..=repetitions {
        let whole_ns = run(&mut whole)?.last().copied().unwrap_or(0);
        times.push(Times::of_stamps(whole_ns, &run(&mut each)?));
    }
    times.remove(0);
    Ok(Some(times))
}
