//! Runs kernels on Vulkan devices, one launch at a time: open, pipeline, buffers behind addresses, dispatch,
//! read back.
//!
//! Devices are those that the loader finds; `VK_ICD_FILENAMES` narrows them to one driver's.

use std::ffi::CString;
use std::sync::Mutex;

use ash::vk;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::op::MATRIX_CLUSTER;
use unisonic_core::kir::{Kernel, abi};
use unisonic_vulkan::spirv::{GROUPS_A_ROW, MatrixOrder, Target, matrix_probe, uses_subgroups};

/// A launch that takes longer is taken for one that does not end. Software devices compile when they run.
const TIMEOUT_NS: u64 = 60_000_000_000;
const SOFTWARE_TIMEOUT_NS: u64 = 600_000_000_000;

/// A device, ready to run.
pub struct Gpu {
    /// Name, driver and version.
    pub name: String,
    pub target: Target,
    pub max_workgroup: u32,
    /// Whether it is a program on the CPU.
    pub is_software: bool,
    max_groups: u32,
    /// Whether a pipeline has to ask for the target's subgroup size.
    varies: bool,
    fills_subgroups: bool,
    memory_types: vk::PhysicalDeviceMemoryProperties,
    queue_family: u32,
    /// Held while a launch runs, so that the time it takes is its own. Everything else happens in several
    /// threads.
    queue: Mutex<vk::Queue>,
    device: ash::Device,
    instance: ash::Instance,
    /// Holds the loader's library.
    _entry: ash::Entry,
}

/// All devices that can run kernels; none where there is no Vulkan.
pub fn devices() -> Vec<Gpu> {
    // SAFETY: the loader's library is loaded for good: each device holds the entry, and nothing else does.
    let Ok(entry) = (unsafe { ash::Entry::load() }) else { return vec![] };
    let count = instance(&entry).map_or(0, |instance| {
        // SAFETY: the instance is valid and destroyed once, after its last use.
        unsafe {
            let count = instance.enumerate_physical_devices().map_or(0, |devices| devices.len());
            instance.destroy_instance(None);
            count
        }
    });
    (0..count).filter_map(|number| Gpu::open(&entry, number)).collect()
}

fn instance(entry: &ash::Entry) -> Option<ash::Instance> {
    let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
    let info = vk::InstanceCreateInfo::default().application_info(&app);
    // SAFETY: the structures live through the call.
    unsafe { entry.create_instance(&info, None) }.ok()
}

/// Whether there is s8 x s8 + s32 -> s32 of 16x8x32 at subgroup scope, modulo 2^32.
fn multiplies_matrices(entry: &ash::Entry, instance: &ash::Instance, physical: vk::PhysicalDevice) -> bool {
    let name = ash::khr::cooperative_matrix::NAME;
    let asks = ash::khr::cooperative_matrix::Instance::new(entry, instance);
    // SAFETY: the physical device is the instance's; what the extension adds is asked only of a device that
    // has it.
    let (features, properties) = unsafe {
        let extensions = instance.enumerate_device_extension_properties(physical).unwrap_or_default();
        if !extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)) {
            return false;
        }
        let mut features = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        let mut chain = vk::PhysicalDeviceFeatures2::default().push_next(&mut features);
        instance.get_physical_device_features2(physical, &mut chain);
        (features, asks.get_physical_device_cooperative_matrix_properties(physical).unwrap_or_default())
    };
    features.cooperative_matrix != 0
        && properties.iter().any(|has| {
            (has.m_size, has.n_size, has.k_size) == (16, 8, 32)
                && [has.a_type, has.b_type] == [vk::ComponentTypeKHR::SINT8; 2]
                && [has.c_type, has.result_type] == [vk::ComponentTypeKHR::SINT32; 2]
                && has.saturating_accumulation == 0
                && has.scope == vk::ScopeKHR::SUBGROUP
        })
}

impl Gpu {
    /// A device by its number; none if it lacks what kernels need. Each has an instance of its own.
    fn open(entry: &ash::Entry, number: usize) -> Option<Self> {
        let instance = instance(entry)?;
        // SAFETY: the instance is valid; the physical device is one of its own, and lives as long.
        let (physical, properties) = unsafe {
            let physical = *instance.enumerate_physical_devices().ok()?.get(number)?;
            (physical, instance.get_physical_device_properties(physical))
        };
        if properties.api_version < vk::API_VERSION_1_3 {
            return None;
        }
        let (mut has12, mut has13) =
            (vk::PhysicalDeviceVulkan12Features::default(), vk::PhysicalDeviceVulkan13Features::default());
        let mut features = vk::PhysicalDeviceFeatures2::default().push_next(&mut has12).push_next(&mut has13);
        let (mut of12, mut of13) = (
            vk::PhysicalDeviceVulkan12Properties::default(),
            vk::PhysicalDeviceVulkan13Properties::default(),
        );
        let mut of11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut all = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut of11)
            .push_next(&mut of12)
            .push_next(&mut of13);
        // SAFETY: the chains hold structures of Vulkan 1.3, which the device has, each once, and outlive the
        // calls.
        unsafe {
            instance.get_physical_device_features2(physical, &mut features);
            instance.get_physical_device_properties2(physical, &mut all);
        }
        if has12.buffer_device_address == 0 || has12.vulkan_memory_model == 0 {
            return None;
        }
        let multiplies = has12.shader_int8 != 0 && multiplies_matrices(entry, &instance, physical);
        let mut target = Target {
            subgroup_size: of11.subgroup_size,
            integer_dot: has13.shader_integer_dot_product != 0,
            rounds_to_even: of12.shader_rounding_mode_rte_float32 != 0,
            preserves_signed_zeros: of12.shader_signed_zero_inf_nan_preserve_float32 != 0,
            max_shared_len_bytes: properties.limits.max_compute_shared_memory_size,
            // Records by their address: the driver's tests have the others.
            max_pushed_len_bytes: 0,
            knows_constants: true,
            matrix: None,
        };
        // Full subgroups of the right size can be had.
        let sizes = of13.min_subgroup_size..=of13.max_subgroup_size;
        let multiplies = multiplies
            && has13.compute_full_subgroups != 0
            && has13.subgroup_size_control != 0
            && sizes.contains(&MATRIX_CLUSTER);
        if multiplies {
            target.subgroup_size = MATRIX_CLUSTER;
        }
        let (queue_family, device) = Self::device(&instance, physical, &has13, multiplies)?;
        // SAFETY: the device has this queue.
        let queue = unsafe { device.get_device_queue(queue_family, 0) };
        // SAFETY: the physical device is the instance's.
        let memory_types = unsafe { instance.get_physical_device_memory_properties(physical) };
        let driver = of12.driver_name_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
        let version = of12.driver_info_as_c_str().unwrap_or_default().to_string_lossy().into_owned();
        let device_name = properties.device_name_as_c_str().unwrap_or_default().to_string_lossy();
        let mut gpu = Self {
            name: String::new(),
            target,
            is_software: properties.device_type == vk::PhysicalDeviceType::CPU,
            max_workgroup: properties.limits.max_compute_work_group_invocations,
            max_groups: properties.limits.max_compute_work_group_count[0],
            varies: of13.min_subgroup_size != of13.max_subgroup_size && has13.subgroup_size_control != 0,
            fills_subgroups: has13.compute_full_subgroups != 0,
            memory_types,
            queue_family,
            queue: Mutex::new(queue),
            device,
            instance,
            _entry: entry.clone(),
        };
        if multiplies {
            gpu.target.matrix = gpu.probe();
        }
        let matrices = match (multiplies, gpu.target.matrix) {
            (false, _) => "no matrices".to_owned(),
            (true, None) => "matrices of another map".to_owned(),
            (true, Some(order)) => format!("matrices with words {:?} of A", order.words()),
        };
        gpu.name = format!(
            "{device_name}, {driver} {version}, subgroups of {}, {matrices}",
            gpu.target.subgroup_size
        );
        Some(gpu)
    }

    /// Which words make a matrix.
    fn probe(&self) -> Option<MatrixOrder> {
        let buffers = vec![vec![0xEE; matrix_probe::OUTPUT_LEN_BYTES]];
        let mut launch = Launch { groups: 1, params: vec![], buffers, fuel: 0 };
        self.run_code(&matrix_probe::kernel(), &matrix_probe::words(), true, &mut launch);
        matrix_probe::read(&launch.buffers[0])
    }

    fn device(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        has13: &vk::PhysicalDeviceVulkan13Features<'_>,
        multiplies: bool,
    ) -> Option<(u32, ash::Device)> {
        // SAFETY: the physical device is the instance's.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let computes =
            |family: &vk::QueueFamilyProperties| family.queue_flags.contains(vk::QueueFlags::COMPUTE);
        let queue_family = families.iter().position(computes)? as u32;
        let mut wants12 = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(true)
            .vulkan_memory_model(true)
            .shader_int8(multiplies);
        let mut wants13 = vk::PhysicalDeviceVulkan13Features::default()
            .subgroup_size_control(has13.subgroup_size_control != 0)
            .compute_full_subgroups(has13.compute_full_subgroups != 0)
            .shader_integer_dot_product(has13.shader_integer_dot_product != 0);
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(queue_family).queue_priorities(&[1.0])];
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let extensions = [ash::khr::cooperative_matrix::NAME.as_ptr()];
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .push_next(&mut wants12)
            .push_next(&mut wants13);
        if multiplies {
            info = info.enabled_extension_names(&extensions).push_next(&mut matrices);
        }
        // SAFETY: what is asked for, the device has; the structures live through the call.
        let device = unsafe { instance.create_device(physical, &info, None) }.ok()?;
        Some((queue_family, device))
    }

    /// Runs a launch; its buffers then hold what the kernel wrote.
    pub fn run(&self, kernel: &Kernel, words: &[u32], launch: &mut Launch) {
        self.run_code(kernel, words, uses_subgroups(kernel), launch);
    }

    /// Of the kernel only its objects, name and size count.
    fn run_code(&self, kernel: &Kernel, words: &[u32], is_of_subgroups: bool, launch: &mut Launch) {
        // SAFETY: everything is made by this device, lives until the launch has ended, and is destroyed once.
        unsafe {
            let layout = self.pipeline_layout();
            let pipeline =
                self.pipeline(kernel, words, is_of_subgroups, layout, launch.groups > self.max_groups);
            let memory = self.upload(kernel, launch);
            self.submit(|commands| {
                self.device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, pipeline);
                let record = memory.record.to_le_bytes();
                let stage = vk::ShaderStageFlags::COMPUTE;
                self.device.cmd_push_constants(commands, layout, stage, 0, &record);
                self.dispatch(commands, launch.groups);
            });
            self.download(&memory, launch);
            self.device.destroy_buffer(memory.buffer, None);
            self.device.free_memory(memory.memory, None);
            self.device.destroy_pipeline(pipeline, None);
            self.device.destroy_pipeline_layout(layout, None);
        }
    }

    /// As `unisonic_vulkan::spirv` says.
    unsafe fn dispatch(&self, commands: vk::CommandBuffer, groups: u32) {
        // SAFETY: the commands are being recorded with a pipeline bound, whose flags fit (`pipeline`).
        unsafe {
            if groups <= self.max_groups {
                return self.device.cmd_dispatch(commands, groups, 1, 1);
            }
            let (rows, rest) = (groups / GROUPS_A_ROW, groups % GROUPS_A_ROW);
            self.device.cmd_dispatch(commands, GROUPS_A_ROW, rows, 1);
            if rest > 0 {
                self.device.cmd_dispatch_base(commands, 0, rows, 0, rest, 1, 1);
            }
        }
    }

    unsafe fn pipeline_layout(&self) -> vk::PipelineLayout {
        let push =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).offset(0).size(8)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&push);
        // SAFETY: the structures live through the call.
        unsafe { self.device.create_pipeline_layout(&info, None) }.expect("a pipeline layout")
    }

    unsafe fn pipeline(
        &self,
        kernel: &Kernel,
        words: &[u32],
        is_of_subgroups: bool,
        layout: vk::PipelineLayout,
        has_base: bool,
    ) -> vk::Pipeline {
        let size = self.target.subgroup_size;
        let mut required =
            vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default().required_subgroup_size(size);
        let name = CString::new(kernel.name.as_str()).expect("a name has no zero");
        let mut flags = vk::PipelineShaderStageCreateFlags::empty();
        if is_of_subgroups && self.fills_subgroups && kernel.workgroup.is_multiple_of(size) {
            flags |= vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS;
        }
        let code = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the code is a valid module for this device, and the structures live through the calls.
        unsafe {
            let module = self.device.create_shader_module(&code, None).expect("a shader module");
            let mut stage = vk::PipelineShaderStageCreateInfo::default()
                .flags(flags)
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(&name);
            if self.varies && is_of_subgroups {
                stage = stage.push_next(&mut required);
            }
            let base = if has_base {
                vk::PipelineCreateFlags::DISPATCH_BASE
            } else {
                vk::PipelineCreateFlags::empty()
            };
            let info = [vk::ComputePipelineCreateInfo::default().flags(base).stage(stage).layout(layout)];
            let pipelines = self.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            self.device.destroy_shader_module(module, None);
            pipelines.unwrap_or_else(|(_, error)| panic!("a pipeline: {error}\n{kernel}"))[0]
        }
    }

    /// Buffers and the record in one allocation.
    unsafe fn upload(&self, kernel: &Kernel, launch: &Launch) -> Memory {
        let mut offsets = vec![];
        let mut len = 0_usize;
        for buffer in &launch.buffers {
            offsets.push(len);
            len = (len + buffer.len()).next_multiple_of(abi::ALIGN_BYTES as usize);
        }
        let record_at = len;
        len += abi::record_len_bytes(kernel).max(abi::ADDRESS_LEN_BYTES) as usize;
        let info = vk::BufferCreateInfo::default()
            .size(len as u64)
            .usage(vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS);
        let mut addressed =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        // SAFETY: the buffer is bound to memory of its own size and type before it has an address; the map
        // covers it.
        unsafe {
            let buffer = self.device.create_buffer(&info, None).expect("a buffer");
            let needs = self.device.get_buffer_memory_requirements(buffer);
            let allocation = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(self.host_memory_type(needs.memory_type_bits))
                .push_next(&mut addressed);
            let memory = self.device.allocate_memory(&allocation, None).expect("memory");
            self.device.bind_buffer_memory(buffer, memory, 0).expect("bound memory");
            let base =
                self.device.get_buffer_device_address(&vk::BufferDeviceAddressInfo::default().buffer(buffer));
            let mut record: Vec<u8> =
                offsets.iter().flat_map(|&offset| (base + offset as u64).to_le_bytes()).collect();
            record.extend(launch.params.iter().flat_map(|param| param.to_le_bytes()));
            let at = self
                .device
                .map_memory(memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
                .expect("mapped memory")
                .cast::<u8>();
            let parts = launch.buffers.iter().zip(&offsets).chain([(&record, &record_at)]);
            for (bytes, &offset) in parts {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(offset), bytes.len());
            }
            Memory { buffer, memory, at, offsets, record: base + record_at as u64 }
        }
    }

    fn host_memory_type(&self, allowed: u32) -> u32 {
        let wanted = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let types = self.memory_types.memory_types_as_slice();
        let fits =
            |&number: &usize| allowed >> number & 1 == 1 && types[number].property_flags.contains(wanted);
        (0..types.len()).find(fits).expect("Vulkan has memory that the host sees") as u32
    }

    unsafe fn download(&self, memory: &Memory, launch: &mut Launch) {
        for (bytes, &offset) in launch.buffers.iter_mut().zip(&memory.offsets) {
            // SAFETY: the map is as long as what was uploaded, and the device is done with it.
            unsafe {
                std::ptr::copy_nonoverlapping(memory.at.add(offset), bytes.as_mut_ptr(), bytes.len());
            }
        }
    }

    /// Records, submits and waits.
    unsafe fn submit(&self, record: impl FnOnce(vk::CommandBuffer)) {
        // SAFETY: everything is made here, used in its order, and destroyed after the fence.
        unsafe {
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(self.queue_family);
            let pool = self.device.create_command_pool(&info, None).expect("a command pool");
            let info = vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
            let commands = self.device.allocate_command_buffers(&info).expect("a command buffer");
            let once = vk::CommandBufferBeginInfo::default();
            self.device.begin_command_buffer(commands[0], &once).expect("begun commands");
            record(commands[0]);
            let to_host = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ);
            self.device.cmd_pipeline_barrier(
                commands[0],
                vk::PipelineStageFlags::COMPUTE_SHADER,
                vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &[to_host],
                &[],
                &[],
            );
            self.device.end_command_buffer(commands[0]).expect("ended commands");
            let fence = self.device.create_fence(&vk::FenceCreateInfo::default(), None).expect("a fence");
            let submits = [vk::SubmitInfo::default().command_buffers(&commands)];
            let queue = self.queue.lock().expect("no launch failed");
            self.device.queue_submit(*queue, &submits, fence).expect("submitted commands");
            let timeout_ns = if self.is_software { SOFTWARE_TIMEOUT_NS } else { TIMEOUT_NS };
            self.device.wait_for_fences(&[fence], true, timeout_ns).expect("a launch that ends");
            drop(queue);
            self.device.destroy_fence(fence, None);
            self.device.destroy_command_pool(pool, None);
        }
    }
}

/// What a launch has on the device.
struct Memory {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// Where the host sees it.
    at: *mut u8,
    offsets: Vec<usize>,
    /// Address of the launch's record.
    record: u64,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: every launch has ended and destroyed what it made.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}
