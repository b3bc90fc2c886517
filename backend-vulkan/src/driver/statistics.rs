//! What the driver makes of kernels: `VK_KHR_pipeline_executable_properties`, for those who write kernels.

use ash::{khr, vk};

use super::device::Device;

/// What the driver says of a pipeline that was made to be asked, by its names; nothing where it says nothing.
pub fn of_pipeline(device: &Device, pipeline: vk::Pipeline) -> Vec<(String, u64)> {
    if !device.asks_statistics {
        return vec![];
    }
    let calls = khr::pipeline_executable_properties::Device::new(&device.instance.raw, &device.raw);
    // A compute pipeline has one executable.
    let info = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
    // SAFETY: the device was opened with the extension, and the pipeline is its own, made with CAPTURE_STATISTICS.
    let found = unsafe { calls.get_pipeline_executable_statistics(&info) };
    let number = |found: &vk::PipelineExecutableStatisticKHR<'_>| match found.format {
        // SAFETY: the format says which member the driver wrote, here and below.
        vk::PipelineExecutableStatisticFormatKHR::UINT64 => Some(unsafe { found.value.u64 }),
        // SAFETY: as above.
        vk::PipelineExecutableStatisticFormatKHR::INT64 => u64::try_from(unsafe { found.value.i64 }).ok(),
        _ => None,
    };
    let named = |found: &vk::PipelineExecutableStatisticKHR<'_>| {
        let name =
            found.name_as_c_str().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        number(found).map(|number| (name, number))
    };
    found.unwrap_or_default().iter().filter_map(named).collect()
}
