//! Limits of a device.

use std::thread::available_parallelism;

use ash::{amd, arm, khr, nv, vk};

use super::features::Extensions;
use super::instance::Instance;

/// Longer than any record.
const MOST_PUSHED_LEN_BYTES: u32 = 256;

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `maxBufferSize`; no limit where the device does not say.
    pub buffer_len_bytes: u64,
    /// `maxMemoryAllocationSize`.
    pub allocation_len_bytes: u64,
    /// The largest heap of device memory.
    pub heap_len_bytes: u64,
    /// Number of that heap.
    pub heap: usize,
    /// `maxComputeWorkGroupCount[0]`.
    pub groups: u32,
    /// Invocations of a workgroup in one dimension.
    pub workgroup: u32,
    /// `maxComputeSharedMemorySize`.
    pub shared_len_bytes: u32,
    /// `maxPushConstantsSize`, as far as it is used.
    pub pushed_len_bytes: u32,
    /// Multiprocessors; a guess where the device does not say.
    pub multiprocessors: u32,
}

impl Limits {
    /// Asks a device.
    pub fn of(instance: &Instance, physical: vk::PhysicalDevice, extensions: &Extensions) -> Self {
        let mut of_memory = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut of_buffers = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut of_memory);
        let says = extensions.has_since(khr::maintenance4::NAME, vk::API_VERSION_1_3);
        if says {
            all = all.push_next(&mut of_buffers);
        }
        // SAFETY: the physical device is the instance's; the chain holds structures that it knows, each once, and outlives
        // the call.
        let memory = unsafe {
            instance.raw.get_physical_device_properties2(physical, &mut all);
            instance.raw.get_physical_device_memory_properties(physical)
        };
        let properties = all.properties;
        let heaps = memory.memory_heaps_as_slice().iter().enumerate();
        let (heap, heap_len_bytes) = heaps
            .filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
            .map(|(number, heap)| (number, heap.size))
            .max_by_key(|heap| heap.1)
            .unwrap_or_default();
        let limits = properties.limits;
        Self {
            buffer_len_bytes: if says { of_buffers.max_buffer_size } else { u64::MAX },
            allocation_len_bytes: of_memory.max_memory_allocation_size,
            heap_len_bytes,
            heap,
            groups: limits.max_compute_work_group_count[0],
            workgroup: limits.max_compute_work_group_invocations.min(limits.max_compute_work_group_size[0]),
            shared_len_bytes: limits.max_compute_shared_memory_size,
            pushed_len_bytes: limits.max_push_constants_size.min(MOST_PUSHED_LEN_BYTES),
            multiprocessors: multiprocessors(instance, physical, extensions, properties.device_type),
        }
    }

    /// As if the device took no longer allocations.
    pub fn lower_allocations_to(&mut self, len_bytes: Option<u64>) {
        self.allocation_len_bytes = self.allocation_len_bytes.min(len_bytes.unwrap_or(u64::MAX));
    }

    /// The limit that so many bytes in one buffer break, and what it is.
    pub fn broken_by(&self, len_bytes: u64) -> Option<(&'static str, u64)> {
        let limits = [
            ("maxBufferSize", self.buffer_len_bytes),
            ("maxMemoryAllocationSize", self.allocation_len_bytes),
            ("memory", self.heap_len_bytes),
        ];
        limits.into_iter().filter(|limit| len_bytes > limit.1).min_by_key(|limit| limit.1)
    }
}

/// What the vendors' extensions say, the processor's threads for a device on it, and otherwise a guess.
fn multiprocessors(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    extensions: &Extensions,
    kind: vk::PhysicalDeviceType,
) -> u32 {
    let mut of_nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut of_amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut of_arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
    let mut all = vk::PhysicalDeviceProperties2::default();
    if extensions.has(nv::shader_sm_builtins::NAME) {
        all = all.push_next(&mut of_nvidia);
    }
    if extensions.has(amd::shader_core_properties::NAME) {
        all = all.push_next(&mut of_amd);
    }
    if extensions.has(arm::shader_core_builtins::NAME) {
        all = all.push_next(&mut of_arm);
    }
    // SAFETY: the physical device is the instance's; the chain holds structures that it knows, each once, and outlives
    // the call.
    unsafe { instance.raw.get_physical_device_properties2(physical, &mut all) };
    let amd = of_amd
        .shader_engine_count
        .saturating_mul(of_amd.shader_arrays_per_engine_count)
        .saturating_mul(of_amd.compute_units_per_shader_array);
    let said = [of_nvidia.shader_sm_count, amd, of_arm.shader_core_count];
    let guess = match kind {
        vk::PhysicalDeviceType::CPU => available_parallelism().map_or(1, |threads| threads.get() as u32),
        vk::PhysicalDeviceType::DISCRETE_GPU => 32,
        _ => 8,
    };
    said.into_iter().find(|&count| count > 0).unwrap_or(guess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_is_named() {
        let limits = Limits {
            buffer_len_bytes: 1000,
            allocation_len_bytes: 500,
            heap_len_bytes: 800,
            heap: 0,
            groups: 1,
            workgroup: 1,
            shared_len_bytes: 1,
            pushed_len_bytes: 128,
            multiprocessors: 1,
        };
        assert_eq!(limits.broken_by(500), None);
        assert_eq!(limits.broken_by(501), Some(("maxMemoryAllocationSize", 500)));
        assert_eq!(limits.broken_by(u64::MAX), Some(("maxMemoryAllocationSize", 500)));
    }
}
