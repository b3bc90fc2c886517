//! Which devices there are.

use std::fmt;

use ash::vk;

use super::features::Features;
use super::instance::Instance;
use super::loader::{NoVulkan, version_text};
use super::options::{OpenOptions, Without};

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU, or part of one, of a virtual machine.
    Virtual,
    /// A program on the processor: much slower than the CPU device, and only for tests.
    Software,
    /// Something else.
    Other,
}

impl DeviceKind {
    /// As Vulkan says it.
    pub(super) fn of(kind: vk::PhysicalDeviceType) -> Self {
        match kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => Self::Discrete,
            vk::PhysicalDeviceType::INTEGRATED_GPU => Self::Integrated,
            vk::PhysicalDeviceType::VIRTUAL_GPU => Self::Virtual,
            vk::PhysicalDeviceType::CPU => Self::Software,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete GPU",
            Self::Integrated => "integrated GPU",
            Self::Virtual => "virtual GPU",
            Self::Software => "software",
            Self::Other => "other",
        })
    }
}

/// A device that the loader finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What [`super::open`] calls it.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Driver, and what it says of its version.
    pub driver: String,
    /// Version of the API, as people write it.
    pub api_version: String,
    /// What kind it is.
    pub kind: DeviceKind,
    /// The largest heap of device memory.
    pub memory_len_bytes: u64,
    /// Invocations of the subgroups that kernels will have; 1 where they exchange nothing.
    pub subgroup_size: u32,
    /// What it lacks without which it cannot be opened, with reasons; none if it can.
    pub missing: Vec<String>,
    /// What it lacks and is used without, and what is done instead.
    pub lacking: Vec<&'static str>,
}

/// All devices that the loader finds, those too that cannot be used.
pub fn enumerate() -> Result<Vec<Found>, NoVulkan> {
    enumerate_with(&OpenOptions::default())
}

/// The same, by the options' loader, and without what they leave out.
pub fn enumerate_with(options: &OpenOptions) -> Result<Vec<Found>, NoVulkan> {
    let instance = Instance::new(options.loader.as_deref(), false)?;
    let devices = instance.physical_devices()?;
    Ok(devices
        .into_iter()
        .enumerate()
        .map(|(index, device)| found(&instance, index, device, options.without))
        .collect())
}

fn found(instance: &Instance, index: usize, physical: vk::PhysicalDevice, without: Without) -> Found {
    let features = Features::of(instance, physical, without);
    Found {
        index,
        missing: features.missing(),
        lacking: features.lacking(),
        subgroup_size: features.target().subgroup_size,
        name: features.name,
        driver: features.driver,
        api_version: version_text(features.api_version),
        kind: features.kind,
        memory_len_bytes: features.limits.heap_len_bytes,
    }
}
