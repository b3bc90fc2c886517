//! The opened device, which every handle holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::vk;
use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings};
use unisonic_cache::Cache;
use unisonic_gpu::machine::{CompileCounts, MachineError};

use super::error::{Health, misuse};
use super::features::Features;
use super::instance::Instance;
use super::options::OpenOptions;

/// Memory is asked of the driver in blocks of this, of which smaller buffers take parts.
const BLOCK_LEN_BYTES: u64 = 64 << 20;
/// The first block that the host sees; later ones grow up to the above.
const FIRST_HOST_BLOCK_LEN_BYTES: u64 = 16 << 20;

/// An opened device.
pub struct Device {
    /// Calls of the device.
    pub raw: ash::Device,
    /// What it offers.
    pub features: Features,
    /// Whether it is still there.
    pub health: Health,
    /// Its only queue.
    pub queue: Mutex<Queue>,
    /// The layout of all pipelines: a record, or its address, as push constants.
    pub layout: vk::PipelineLayout,
    /// Where what the driver keeps of pipelines is.
    pub kept: Option<Arc<Cache>>,
    /// How pipelines were come to.
    pub counts: Mutex<CompileCounts>,
    /// What a launch counts as having taken, in tests.
    launch_time: Option<Duration>,
    /// What recordings have submitted.
    submitted: Mutex<Submitted>,
    /// How long a submission may take.
    pub run_timeout: Duration,
    /// Whether pipelines are made to be asked for statistics.
    pub asks_statistics: bool,
    memory: Mutex<Memory>,
    physical: vk::PhysicalDevice,
    /// Goes after the device.
    pub instance: Arc<Instance>,
}

/// The queue, and what it has taken.
pub struct Queue {
    /// The queue.
    pub raw: vk::Queue,
    /// So many submissions are still taken before the device counts as lost.
    pub left: Option<u64>,
}

/// Submissions of launches since a device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Submitted {
    /// How many.
    pub count: u64,
    /// The most launches of one.
    pub most_launches: usize,
    /// How long the longest of several launches took, until the host saw its end.
    pub longest: Duration,
}

/// What timestamps count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Bits that count.
    pub valid_bits: u32,
    /// Nanoseconds of a tick.
    pub tick_ns: f32,
}

impl Clock {
    /// Nanoseconds from one timestamp to a later one.
    pub fn ns(self, from: u64, to: u64) -> u64 {
        let valid = u64::MAX >> (64 - self.valid_bits.clamp(1, 64));
        ((to.wrapping_sub(from) & valid) as f64 * f64::from(self.tick_ns)).round() as u64
    }
}

/// Device memory.
pub struct Memory {
    /// Shares blocks of it out; none once the device goes.
    pub allocator: Option<Allocator>,
    /// What buffers have taken.
    pub used_bytes: u64,
    /// What they may take.
    pub limit_bytes: Option<u64>,
    /// After so many buffers there is no memory for one.
    pub left: Option<u64>,
}

impl Device {
    /// Opens a device that lacks nothing.
    pub fn open(
        instance: Arc<Instance>,
        physical: vk::PhysicalDevice,
        mut features: Features,
        options: &OpenOptions,
    ) -> Result<Arc<Self>, MachineError> {
        features.statistics &= options.statistics;
        features.limits.lower_allocations_to(options.allocation_limit_bytes);
        let health = Health::default();
        let family =
            features.queue_family.ok_or_else(|| misuse("opening", "no queue computes".to_owned()))?;
        let raw = health.of("vkCreateDevice", features.create_device(&instance, physical, family))?;
        // SAFETY: the device was created with this queue.
        let queue = unsafe { raw.get_device_queue(family, 0) };
        // From here on, what has been made is destroyed with it.
        let mut device = Self {
            asks_statistics: features.statistics,
            raw,
            features,
            health,
            queue: Mutex::new(Queue { raw: queue, left: None }),
            layout: vk::PipelineLayout::null(),
            kept: options.cache.clone(),
            counts: Mutex::default(),
            launch_time: options.launch_time,
            submitted: Mutex::default(),
            run_timeout: options.run_timeout.unwrap_or(OpenOptions::RUN_TIMEOUT),
            memory: Mutex::new(Memory {
                allocator: None,
                used_bytes: 0,
                limit_bytes: options.memory_limit_bytes,
                left: None,
            }),
            physical,
            instance,
        };
        device.memory().allocator = Some(device.new_allocator()?);
        device.layout = device.new_layout()?;
        Ok(Arc::new(device))
    }

    fn new_allocator(&self) -> Result<Allocator, MachineError> {
        let block_len_bytes = BLOCK_LEN_BYTES.min(self.features.limits.allocation_len_bytes);
        let sizes = AllocationSizes::new(block_len_bytes, FIRST_HOST_BLOCK_LEN_BYTES.min(block_len_bytes))
            .with_max_host_memblock_size(block_len_bytes);
        Allocator::new(&AllocatorCreateDesc {
            instance: self.instance.raw.clone(),
            device: self.raw.clone(),
            physical_device: self.physical,
            debug_settings: AllocatorDebugSettings::default(),
            buffer_device_address: true,
            allocation_sizes: sizes,
        })
        .map_err(|error| misuse("opening", error.to_string()))
    }

    fn new_layout(&self) -> Result<vk::PipelineLayout, MachineError> {
        let push = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .offset(0)
            .size(self.features.limits.pushed_len_bytes)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&push);
        // SAFETY: the structures live through the call.
        let layout = unsafe { self.raw.create_pipeline_layout(&info, None) };
        self.health.of("vkCreatePipelineLayout", layout)
    }

    /// The device does not come back from what it runs. It counts as lost, and stays open as long as the process lives, with
    /// all that it may use.
    pub fn hang(self: &Arc<Self>, call: &str, reason: &str) -> MachineError {
        std::mem::forget(Arc::clone(self));
        self.health.hang(call, reason)
    }

    /// From now on what is to go wrong does.
    pub fn begin_faults(&self, options: &OpenOptions) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).left = options.lost_after_submissions;
        self.memory().left = options.no_memory_after_allocations;
    }

    /// Counts a pipeline.
    pub fn count(&self, is_kept: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if is_kept {
            counts.kept += 1;
        } else {
            counts.compiled += 1;
        }
    }

    /// Counts a submission of so many launches; how long it counts as having taken.
    pub fn count_submission(&self, launches: usize, took: Duration) -> Duration {
        let counted = u32::try_from(launches).unwrap_or(u32::MAX);
        let took = self.launch_time.map_or(took, |of_launch| of_launch.saturating_mul(counted));
        let mut submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        submitted.count += 1;
        submitted.most_launches = submitted.most_launches.max(launches);
        if launches > 1 {
            submitted.longest = submitted.longest.max(took);
        }
        took
    }

    /// What recordings have submitted.
    pub fn submitted(&self) -> Submitted {
        *self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Device memory, which one buffer at a time is taken from or given back to.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of device memory that can still be had, where the driver or a limit says.
    pub fn free_bytes(&self, memory: &Memory) -> Option<u64> {
        let of_limit = memory.limit_bytes.map(|limit| limit.saturating_sub(memory.used_bytes));
        match (of_limit, self.budget_bytes()) {
            (Some(limit), Some(budget)) => Some(limit.min(budget)),
            (limit, budget) => limit.or(budget),
        }
    }

    /// What timestamps of the queue count; none if it has none.
    pub fn clock(&self) -> Option<Clock> {
        let raw = &self.instance.raw;
        // SAFETY: the physical device is the instance's.
        let (families, properties) = unsafe {
            let families = raw.get_physical_device_queue_family_properties(self.physical);
            (families, raw.get_physical_device_properties(self.physical))
        };
        let valid_bits = families.get(self.features.queue_family? as usize)?.timestamp_valid_bits;
        let tick_ns = properties.limits.timestamp_period;
        (valid_bits > 0 && tick_ns > 0.0).then_some(Clock { valid_bits, tick_ns })
    }

    fn budget_bytes(&self) -> Option<u64> {
        if !self.features.memory_budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the device has the extension, and the structures live through the call.
        unsafe { self.instance.raw.get_physical_device_memory_properties2(self.physical, &mut all) };
        let heap = self.features.limits.heap;
        Some(budget.heap_budget.get(heap)?.saturating_sub(*budget.heap_usage.get(heap)?))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: every handle holds the device, so that all that was made of it is gone but for what is destroyed here,
        // once each, after the device is idle or lost; a device that hangs is held for ever. Null handles are ignored.
        unsafe {
            // A lost device has nothing more to wait for.
            let _ = self.raw.device_wait_idle();
            self.raw.destroy_pipeline_layout(self.layout, None);
            // It frees its blocks by the device.
            drop(self.memory().allocator.take());
            self.raw.destroy_device(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_round() {
        let clock = Clock { valid_bits: 36, tick_ns: 2.5 };
        assert_eq!(clock.ns(1000, 3000), 5000);
        // The bits above are anything.
        assert_eq!(clock.ns((1 << 36) - 10, 10 | 7 << 40), 50);
        assert_eq!(Clock { valid_bits: 64, tick_ns: 1.0 }.ns(u64::MAX, 4), 5);
    }
}
