//! Which devices there are.

use unisonic_core::plan::Device;
use unisonic_cpu::native::CpuDevice;

use crate::DeviceName;

/// The devices of a backend, or why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `CPU`, `CUDA` or `Vulkan`.
    pub name: &'static str,
    /// Its devices; the text says why there are none, and what to do.
    pub devices: Result<Vec<Listed>, String>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What to give to `--device`.
    pub name: DeviceName,
    /// Hardware or implementation.
    pub hardware: String,
    /// Driver and version, for a GPU.
    pub driver: Option<String>,
    /// Memory in all, where the driver says.
    pub memory_len_bytes: Option<u64>,
    /// Why it cannot be used; none if it can.
    pub missing: Vec<String>,
    /// What is special: subgroups, what it lacks and what is done instead.
    pub notes: Vec<String>,
}

/// All devices of all backends. Asks drivers, which can take a moment.
pub fn list() -> Vec<Backend> {
    vec![
        Backend { name: "CPU", devices: Ok(vec![cpu()]) },
        Backend { name: "CUDA", devices: cuda() },
        Backend { name: "Vulkan", devices: vulkan() },
    ]
}

fn cpu() -> Listed {
    let info = CpuDevice::new().info();
    Listed {
        name: DeviceName::Cpu,
        hardware: info.name,
        driver: None,
        memory_len_bytes: None,
        missing: vec![],
        notes: info.threads.map(|threads| format!("{threads} threads")).into_iter().collect(),
    }
}

fn cuda() -> Result<Vec<Listed>, String> {
    let found = unisonic_cuda::driver::enumerate().map_err(|error| error.to_string())?;
    let listed = found.into_iter().map(|found| {
        let (major, minor) = found.compute_capability;
        let missing = found.target(Default::default()).err().map(|error| error.to_string());
        Listed {
            name: DeviceName::Cuda(found.index),
            hardware: found.name.clone(),
            driver: Some(format!("CUDA {}", found.driver)),
            memory_len_bytes: Some(found.memory_len_bytes),
            missing: missing.into_iter().collect(),
            notes: vec![
                format!("compute capability {major}.{minor}"),
                format!("{} multiprocessors", found.multiprocessors),
            ],
        }
    });
    Ok(listed.collect())
}

fn vulkan() -> Result<Vec<Listed>, String> {
    let found = unisonic_vulkan::driver::enumerate().map_err(|error| error.to_string())?;
    let listed = found.into_iter().map(|found| {
        let mut notes = vec![found.kind.to_string(), format!("Vulkan {}", found.api_version)];
        notes.push(format!("subgroups of {}", found.subgroup_size));
        notes.extend(found.lacking.iter().map(ToString::to_string));
        Listed {
            name: DeviceName::Vulkan(found.index as u32),
            hardware: found.name,
            driver: Some(found.driver),
            memory_len_bytes: Some(found.memory_len_bytes),
            missing: found.missing,
            notes,
        }
    });
    Ok(listed.collect())
}
