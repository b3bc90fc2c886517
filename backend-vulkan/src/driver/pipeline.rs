//! Kernels, compiled.

use std::ffi::CString;
use std::sync::Arc;

use ash::vk;
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::kir::{Kernel, abi};
use unisonic_gpu::machine::MachineError;

use super::device::Device;
use super::error::is_out_of_memory;
use super::kept::Kept;
use super::statistics;

/// A handle to a kernel, ready to run.
#[derive(Clone)]
pub struct Pipeline(Arc<Compiled>);

struct Compiled {
    device: Arc<Device>,
    raw: vk::Pipeline,
    name: String,
    /// For each object that a launch gives the address of, whether the kernel writes it.
    writes: Vec<bool>,
    params: usize,
    pushes_record: bool,
}

/// The code of a kernel, and how it is launched.
pub struct Code {
    /// SPIR-V.
    pub words: Vec<u32>,
    /// Whether it exchanges values in subgroups.
    pub exchanges: bool,
    /// Whether its push constants are the record, not the record's address.
    pub pushes_record: bool,
    /// Whether the next start will need it.
    pub is_kept: bool,
}

impl Pipeline {
    /// Compiles the code of a kernel, of which beside it only name, size, objects and parameters count.
    pub(super) fn new(device: &Arc<Device>, kernel: &Kernel, code: &Code) -> Result<Self, MachineError> {
        device.health.check("vkCreateComputePipelines")?;
        let refused = |reason: String| MachineError::Kernel { kernel: kernel.name.clone(), reason };
        check_limits(device, kernel).map_err(refused)?;
        let name =
            CString::new(kernel.name.as_str()).map_err(|_| refused("its name has a zero".to_owned()))?;
        let module = ShaderModule::new(device, &code.words).map_err(|error| failed(device, kernel, error))?;
        let (flags, required_size) = subgroups(device, kernel, code.exchanges);
        let mut required = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .flags(flags)
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.raw)
            .name(&name);
        if let Some(size) = required_size {
            required = required.required_subgroup_size(size);
            stage = stage.push_next(&mut required);
        }
        let how = format!("{flags:?} {required_size:?} {}", device.features.limits.pushed_len_bytes);
        let kept = Kept::new(device, code, &how);
        let capture = match device.asks_statistics {
            true => vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR,
            false => vk::PipelineCreateFlags::empty(),
        };
        let info =
            [vk::ComputePipelineCreateInfo::default().flags(capture).stage(stage).layout(device.layout)];
        // SAFETY: the module is valid for what the device was opened with; the structures live through the call.
        let made = unsafe { device.raw.create_compute_pipelines(kept.raw(), &info, None) };
        let raw = match made {
            Ok(pipelines) => pipelines[0],
            Err((pipelines, error)) => {
                // SAFETY: what was made nevertheless, or null, is not used.
                unsafe { pipelines.iter().for_each(|&pipeline| device.raw.destroy_pipeline(pipeline, None)) };
                return Err(failed(device, kernel, error));
            }
        };
        kept.keep(&kernel.name);
        if code.is_kept {
            device.count(kept.is_filled);
        }
        Ok(Self(Arc::new(Compiled {
            device: device.clone(),
            raw,
            name: kernel.name.clone(),
            writes: abi::addressed(kernel).map(|id| kernel.objects[id.index()].space.is_writable()).collect(),
            params: kernel.params.len(),
            pushes_record: code.pushes_record,
        })))
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the driver says of it, by the driver's names, where [`super::OpenOptions::statistics`] asked for that and it can.
    pub fn statistics(&self) -> Vec<(String, u64)> {
        statistics::of_pipeline(&self.0.device, self.0.raw)
    }

    pub(super) fn raw(&self) -> vk::Pipeline {
        self.0.raw
    }

    /// For each object that a launch gives the address of, whether the kernel writes it.
    pub(super) fn writes(&self) -> &[bool] {
        &self.0.writes
    }

    /// Parameters of a launch.
    pub(super) fn params(&self) -> usize {
        self.0.params
    }

    /// Whether its push constants are the record, not the record's address.
    pub(super) fn pushes_record(&self) -> bool {
        self.0.pushes_record
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(device, &self.0.device)
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if self.device.health.hangs() {
            return;
        }
        // SAFETY: recordings hold their pipelines and have ended when they go; it is destroyed once.
        unsafe { self.device.raw.destroy_pipeline(self.raw, None) };
    }
}

/// Needed only until its pipeline is there.
struct ShaderModule<'a> {
    device: &'a Device,
    raw: vk::ShaderModule,
}

impl<'a> ShaderModule<'a> {
    fn new(device: &'a Device, code: &[u32]) -> Result<Self, vk::Result> {
        let info = vk::ShaderModuleCreateInfo::default().code(code);
        // SAFETY: the code is valid SPIR-V for what the device was opened with, and lives through the call.
        let raw = unsafe { device.raw.create_shader_module(&info, None) }?;
        Ok(Self { device, raw })
    }
}

impl Drop for ShaderModule<'_> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once; pipelines do not need it once they are made.
        unsafe { self.device.raw.destroy_shader_module(self.raw, None) };
    }
}

/// Drivers need not check these.
fn check_limits(device: &Device, kernel: &Kernel) -> Result<(), String> {
    let limits = &device.features.limits;
    let shared = kernel.objects.iter().map(|object| match object.space {
        Space::Shared { len } => u64::from(len) * WORD_LEN_BYTES,
        _ => 0,
    });
    let shared_len_bytes: u64 = shared.sum();
    if kernel.workgroup > limits.workgroup {
        return Err(format!(
            "{} invocations in a workgroup; this device takes {}",
            kernel.workgroup, limits.workgroup
        ));
    }
    if shared_len_bytes > u64::from(limits.shared_len_bytes) {
        let most = limits.shared_len_bytes;
        return Err(format!(
            "{shared_len_bytes} bytes of shared memory; this device takes {most} (maxComputeSharedMemorySize)"
        ));
    }
    Ok(())
}

/// Full subgroups for kernels that exchange, and their size where there are several. Vulkan has full subgroups only for
/// workgroups of whole ones; a smaller workgroup is one subgroup.
fn subgroups(
    device: &Device,
    kernel: &Kernel,
    exchanges: bool,
) -> (vk::PipelineShaderStageCreateFlags, Option<u32>) {
    match device.features.subgroups {
        Some(subgroups) if exchanges => {
            let flags = if kernel.workgroup.is_multiple_of(subgroups.size) {
                vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS
            } else {
                vk::PipelineShaderStageCreateFlags::empty()
            };
            (flags, subgroups.is_required.then_some(subgroups.size))
        }
        _ => (vk::PipelineShaderStageCreateFlags::empty(), None),
    }
}

fn failed(device: &Device, kernel: &Kernel, error: vk::Result) -> MachineError {
    if error == vk::Result::ERROR_DEVICE_LOST || is_out_of_memory(error) {
        return device.health.failed("vkCreateComputePipelines", error);
    }
    MachineError::Kernel { kernel: kernel.name.clone(), reason: error.to_string() }
}
