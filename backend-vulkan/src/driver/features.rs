//! What a device offers, what is made of it, and what the device is opened with.
//!
//! | feature | without it |
//! |---|---|
//! | Vulkan 1.2, a compute queue, `bufferDeviceAddress`, `vulkanMemoryModel` | the device is not used |
//! | shuffles and full subgroups in compute shaders | exchanges go through shared memory |
//! | a subgroup size that can be asked for (`subgroupSizeControl`) | the device's own |
//! | `shaderIntegerDotProduct` | bytes are multiplied one by one |
//! | `VK_KHR_cooperative_matrix` with s8 x s8 + s32 of 16x8x32, `shaderInt8`, subgroups of 32 | packed dot products |
//! | `shaderRoundingModeRTEFloat32`, `shaderSignedZeroInfNanPreserveFloat32` | not declared |
//! | `VK_EXT_memory_budget` | how much memory is free is not known |

use std::ffi::CStr;

use ash::{ext, khr, vk};
use unisonic_core::kir::op::MATRIX_CLUSTER;
use unisonic_core::launch::Hardware;

use super::enumerate::DeviceKind;
use super::instance::Instance;
use super::limits::Limits;
use super::loader::{LEAST_VERSION, version_text};
use super::options::Without;
use crate::spirv::Target;

/// What a device offers.
#[derive(Clone, Debug)]
pub struct Features {
    /// Its name.
    pub name: String,
    /// Driver, and what it says of its version.
    pub driver: String,
    /// All that says of device and driver which they are: what one made, another of the same identity takes.
    pub identity: String,
    /// Version of the API.
    pub api_version: u32,
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// The first family of queues that computes.
    pub queue_family: Option<u32>,
    /// Limits.
    pub limits: Limits,
    /// Subgroups that can exchange.
    pub subgroups: Option<Subgroups>,
    /// Whether memory that is free can be asked for.
    pub memory_budget: bool,
    /// Whether there may be matrices: a probe says which.
    pub matrices: bool,
    /// Whether the driver says what it makes of kernels.
    pub statistics: bool,
    buffer_device_address: bool,
    memory_model: bool,
    size_control: bool,
    integer_dot: bool,
    rounds_to_even: bool,
    preserves_signed_zeros: bool,
}

/// Subgroups of compute shaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subgroups {
    /// Invocations.
    pub size: u32,
    /// Whether a pipeline has to ask for the size, as there are others.
    pub is_required: bool,
}

/// Extensions of a device, and its version, of which others are part.
pub struct Extensions {
    names: Vec<vk::ExtensionProperties>,
    api_version: u32,
}

impl Extensions {
    /// Whether there is an extension.
    pub fn has(&self, name: &CStr) -> bool {
        self.names.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
    }

    /// Whether there is an extension, or the version that it became part of.
    pub fn has_since(&self, name: &CStr, version: u32) -> bool {
        self.api_version >= version || self.has(name)
    }
}

impl Features {
    /// Asks a device.
    pub fn of(instance: &Instance, physical: vk::PhysicalDevice, without: Without) -> Self {
        // SAFETY: the physical device is the instance's, here and below.
        let properties = unsafe { instance.raw.get_physical_device_properties(physical) };
        // SAFETY: as above.
        let names = unsafe { instance.raw.enumerate_device_extension_properties(physical) };
        let extensions = Extensions { names: names.unwrap_or_default(), api_version: properties.api_version };
        let limits = Limits::of(instance, physical, &extensions);
        let mut features = Self {
            name: text(properties.device_name_as_c_str()),
            driver: String::new(),
            identity: String::new(),
            api_version: properties.api_version,
            kind: DeviceKind::of(properties.device_type),
            queue_family: queue_family(instance, physical),
            limits,
            subgroups: None,
            memory_budget: extensions.has(ext::memory_budget::NAME),
            matrices: false,
            statistics: false,
            buffer_device_address: false,
            memory_model: false,
            size_control: false,
            integer_dot: false,
            rounds_to_even: false,
            preserves_signed_zeros: false,
        };
        if properties.api_version >= LEAST_VERSION {
            features.ask(instance, physical, &extensions, without);
        }
        features.identity = format!(
            "{}; {}; device {:x}:{:x}, driver {:x}, pipelines {:x?}",
            features.name,
            features.driver,
            properties.vendor_id,
            properties.device_id,
            properties.driver_version,
            properties.pipeline_cache_uuid
        );
        features
    }

    /// Asks a device of version 1.2 or newer for the rest.
    fn ask(
        &mut self,
        instance: &Instance,
        physical: vk::PhysicalDevice,
        extensions: &Extensions,
        without: Without,
    ) {
        let has_sizes = extensions.has_since(ext::subgroup_size_control::NAME, vk::API_VERSION_1_3);
        let has_dot = extensions.has_since(khr::shader_integer_dot_product::NAME, vk::API_VERSION_1_3);
        let has_matrices = extensions.has(khr::cooperative_matrix::NAME);
        let has_statistics = extensions.has(khr::pipeline_executable_properties::NAME);
        let mut of12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut of_sizes = vk::PhysicalDeviceSubgroupSizeControlFeatures::default();
        let mut of_dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut of_matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut of_statistics = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default();
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut of12);
        if has_sizes {
            all = all.push_next(&mut of_sizes);
        }
        if has_dot {
            all = all.push_next(&mut of_dot);
        }
        if has_matrices {
            all = all.push_next(&mut of_matrices);
        }
        if has_statistics {
            all = all.push_next(&mut of_statistics);
        }
        // SAFETY: the chain holds structures that the device knows, each once, and outlives the call.
        unsafe { instance.raw.get_physical_device_features2(physical, &mut all) };
        self.buffer_device_address = of12.buffer_device_address != 0;
        self.memory_model = of12.vulkan_memory_model != 0;
        self.size_control = of_sizes.subgroup_size_control != 0;
        self.integer_dot = of_dot.shader_integer_dot_product != 0 && !without.integer_dot;
        let is_full = of_sizes.compute_full_subgroups != 0 && !without.subgroups;
        self.statistics = of_statistics.pipeline_executable_info != 0;
        self.ask_properties(instance, physical, has_sizes, is_full);
        self.matrices = of_matrices.cooperative_matrix != 0
            && of12.shader_int8 != 0
            && !without.matrices
            && self.subgroups.is_some_and(|subgroups| subgroups.size == MATRIX_CLUSTER)
            && multiplies_matrices(instance, physical);
    }

    fn ask_properties(
        &mut self,
        instance: &Instance,
        physical: vk::PhysicalDevice,
        has_sizes: bool,
        is_full: bool,
    ) {
        let mut of11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut of12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut of_sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut of11).push_next(&mut of12);
        if has_sizes {
            all = all.push_next(&mut of_sizes);
        }
        // SAFETY: the chain holds structures that the device knows, each once, and outlives the call.
        unsafe { instance.raw.get_physical_device_properties2(physical, &mut all) };
        self.driver = format!("{} {}", text(of12.driver_name_as_c_str()), text(of12.driver_info_as_c_str()));
        self.driver.truncate(self.driver.trim_end().len());
        self.rounds_to_even = of12.shader_rounding_mode_rte_float32 != 0;
        self.preserves_signed_zeros = of12.shader_signed_zero_inf_nan_preserve_float32 != 0;
        let needs = vk::SubgroupFeatureFlags::BASIC | vk::SubgroupFeatureFlags::SHUFFLE;
        let exchanges = of11.subgroup_supported_operations.contains(needs)
            && of11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE);
        if exchanges && is_full {
            let subgroups = choose_size(of11.subgroup_size, self.size_control, &of_sizes);
            if subgroups.is_required {
                let most = subgroups.size.saturating_mul(of_sizes.max_compute_workgroup_subgroups);
                self.limits.workgroup = self.limits.workgroup.min(most);
            }
            self.subgroups = Some(subgroups);
        }
    }

    /// What the device lacks without which it is not used, each with the name to look for.
    pub fn missing(&self) -> Vec<String> {
        if self.api_version < LEAST_VERSION {
            return vec![format!("it has Vulkan {}, and 1.2 is needed", version_text(self.api_version))];
        }
        let mut missing = vec![];
        if self.queue_family.is_none() {
            missing.push("it has no queue that computes".to_owned());
        }
        if !self.buffer_device_address {
            missing.push("it lacks bufferDeviceAddress, by which kernels reach memory".to_owned());
        }
        if !self.memory_model {
            missing.push("it lacks vulkanMemoryModel, which kernels are written in".to_owned());
        }
        missing
    }

    /// What the device lacks and is used without, and how.
    pub fn lacking(&self) -> Vec<&'static str> {
        let lacks = [
            (self.subgroups.is_none(), "no full subgroups with shuffles: exchanges go through shared memory"),
            (!self.integer_dot, "no shaderIntegerDotProduct: bytes are multiplied one by one"),
            (!self.matrices, "no cooperative matrices of s8 16x8x32 in subgroups of 32: packed dot products"),
            (!self.rounds_to_even, "no shaderRoundingModeRTEFloat32: rounding is the driver's own"),
            (!self.memory_budget, "no VK_EXT_memory_budget: free memory is not known"),
        ];
        lacks.into_iter().filter(|lack| lack.0).map(|lack| lack.1).collect()
    }

    /// What kernels are emitted for, until a probe has found matrices.
    pub fn target(&self) -> Target {
        Target {
            subgroup_size: self.subgroups.map_or(1, |subgroups| subgroups.size),
            integer_dot: self.integer_dot,
            rounds_to_even: self.rounds_to_even,
            preserves_signed_zeros: self.preserves_signed_zeros,
            max_shared_len_bytes: self.limits.shared_len_bytes,
            max_pushed_len_bytes: self.limits.pushed_len_bytes,
            knows_constants: true,
            matrix: None,
        }
    }

    /// What kernels are written for.
    pub fn hardware(&self, target: &Target) -> Hardware {
        Hardware {
            caps: target.caps(),
            matrix_registers: false,
            shared_len_bytes: self.limits.shared_len_bytes,
            workgroup: self.limits.workgroup,
            multiprocessors: self.limits.multiprocessors,
        }
    }

    /// Opens the device with one queue of the family, and with what is used of it.
    pub fn create_device(
        &self,
        instance: &Instance,
        physical: vk::PhysicalDevice,
        queue_family: u32,
    ) -> ash::prelude::VkResult<ash::Device> {
        let is_old = self.api_version < vk::API_VERSION_1_3;
        let uses = [
            (self.subgroups.is_some() && is_old, ext::subgroup_size_control::NAME),
            (self.integer_dot && is_old, khr::shader_integer_dot_product::NAME),
            (self.matrices, khr::cooperative_matrix::NAME),
            (self.memory_budget, ext::memory_budget::NAME),
            (self.statistics, khr::pipeline_executable_properties::NAME),
        ];
        let extensions: Vec<_> = uses.iter().filter(|using| using.0).map(|using| using.1.as_ptr()).collect();
        let mut of12 = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(true)
            .vulkan_memory_model(true)
            .shader_int8(self.matrices);
        let mut of_sizes = vk::PhysicalDeviceSubgroupSizeControlFeatures::default()
            .subgroup_size_control(self.size_control)
            .compute_full_subgroups(true);
        let mut of_dot =
            vk::PhysicalDeviceShaderIntegerDotProductFeatures::default().shader_integer_dot_product(true);
        let mut of_matrices =
            vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let mut of_statistics = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
            .pipeline_executable_info(true);
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(queue_family).queue_priorities(&[1.0])];
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut of12);
        if self.subgroups.is_some() {
            info = info.push_next(&mut of_sizes);
        }
        if self.integer_dot {
            info = info.push_next(&mut of_dot);
        }
        if self.matrices {
            info = info.push_next(&mut of_matrices);
        }
        if self.statistics {
            info = info.push_next(&mut of_statistics);
        }
        // SAFETY: what is asked for, the device has said that it has; the structures live through the call.
        unsafe { instance.raw.create_device(physical, &info, None) }
    }
}

/// Subgroups of 32, as kernels are written for, where they can be asked for; otherwise the device's own.
fn choose_size(
    own: u32,
    control: bool,
    sizes: &vk::PhysicalDeviceSubgroupSizeControlProperties<'_>,
) -> Subgroups {
    let range = sizes.min_subgroup_size..=sizes.max_subgroup_size;
    let can_ask = control && sizes.required_subgroup_size_stages.contains(vk::ShaderStageFlags::COMPUTE);
    let is_required = can_ask && sizes.min_subgroup_size != sizes.max_subgroup_size;
    let size = if is_required && range.contains(&MATRIX_CLUSTER) { MATRIX_CLUSTER } else { own };
    Subgroups { size, is_required }
}

fn queue_family(instance: &Instance, physical: vk::PhysicalDevice) -> Option<u32> {
    // SAFETY: the physical device is the instance's.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
    let computes = |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::COMPUTE);
    families.iter().zip(0..).find(|(family, _)| computes(family)).map(|(_, number)| number)
}

/// Whether there is s8 x s8 + s32 -> s32 of 16x8x32 at subgroup scope, modulo 2^32.
fn multiplies_matrices(instance: &Instance, physical: vk::PhysicalDevice) -> bool {
    let calls = khr::cooperative_matrix::Instance::new(&instance.entry, &instance.raw);
    // SAFETY: the physical device is the instance's and has the extension.
    let kinds = unsafe { calls.get_physical_device_cooperative_matrix_properties(physical) };
    kinds.unwrap_or_default().iter().any(|kind| {
        (kind.m_size, kind.n_size, kind.k_size) == (16, 8, 32)
            && [kind.a_type, kind.b_type] == [vk::ComponentTypeKHR::SINT8; 2]
            && [kind.c_type, kind.result_type] == [vk::ComponentTypeKHR::SINT32; 2]
            && kind.saturating_accumulation == 0
            && kind.scope == vk::ScopeKHR::SUBGROUP
    })
}

fn text<E>(text: Result<&CStr, E>) -> String {
    text.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(own: u32, control: bool, [min, max]: [u32; 2]) -> (u32, bool) {
        let sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default()
            .min_subgroup_size(min)
            .max_subgroup_size(max)
            .required_subgroup_size_stages(vk::ShaderStageFlags::COMPUTE);
        let Subgroups { size, is_required } = choose_size(own, control, &sizes);
        (size, is_required)
    }

    #[test]
    fn subgroups_of_32_are_asked_for_where_they_can_be() {
        assert_eq!(chosen(32, true, [32, 32]), (32, false), "NVIDIA");
        assert_eq!(chosen(64, true, [32, 64]), (32, true), "AMD");
        assert_eq!(chosen(32, true, [8, 32]), (32, true), "Intel");
        assert_eq!(chosen(8, true, [8, 8]), (8, false), "llvmpipe");
        assert_eq!(chosen(128, true, [64, 128]), (128, true));
        assert_eq!(chosen(64, false, [32, 64]), (64, false), "it cannot be asked for");
    }
}
