//! Which devices there are.

use std::sync::Arc;

use unisonic_cache::Cache;
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
    /// How it was found to compute; none where nobody asks, or it cannot be used.
    pub self_test: Option<SelfTest>,
}

/// Whether a device computes as specified (docs/decisions/0012-self-test.md).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTest {
    /// Names of the probes that it was asked with.
    pub probes: Vec<&'static str>,
    /// What it has and is used without.
    pub switched_off: Vec<SwitchedOff>,
}

/// Something that a device has and is used without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchedOff {
    /// What.
    pub what: &'static str,
    /// Why.
    pub reason: String,
}

/// All devices of all backends. Asks drivers, which can take a moment; devices that test themselves at their first use are
/// opened, and what was found is kept in the cache.
pub fn list(cache: Option<&Arc<Cache>>) -> Vec<Backend> {
    vec![
        Backend { name: "CPU", devices: Ok(vec![cpu()]) },
        Backend { name: "CUDA", devices: cuda() },
        Backend { name: "Vulkan", devices: vulkan(cache) },
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
        self_test: None,
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
            self_test: None,
        }
    });
    Ok(listed.collect())
}

fn vulkan(cache: Option<&Arc<Cache>>) -> Result<Vec<Listed>, String> {
    let found = unisonic_vulkan::driver::enumerate().map_err(|error| error.to_string())?;
    let listed = found.into_iter().map(|mut found| {
        let self_test = if found.missing.is_empty() {
            vulkan_self_test(found.index, cache).map_err(|error| found.missing.push(error)).ok()
        } else {
            None
        };
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
            self_test,
        }
    });
    Ok(listed.collect())
}

/// What a device was found to do; the text says why it cannot be opened.
fn vulkan_self_test(index: usize, cache: Option<&Arc<Cache>>) -> Result<SelfTest, String> {
    let options = unisonic_vulkan::driver::OpenOptions { cache: cache.cloned(), ..Default::default() };
    let machine = unisonic_vulkan::driver::open(index, &options).map_err(|error| error.to_string())?;
    let off = machine.switched_off().iter();
    Ok(SelfTest {
        probes: machine.self_test().probes.clone(),
        switched_off: off.map(|off| SwitchedOff { what: off.what, reason: off.reason.clone() }).collect(),
    })
}
