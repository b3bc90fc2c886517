//! Which devices there are.

use std::sync::Arc;

use unisonic_cache::Cache;
use unisonic_core::kir::legal::Caps;
use unisonic_core::plan::Device;
use unisonic_cpu::native::CpuDevice;

use unisonic_gpu::machine::Machine;

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
    /// Ways in which kernels can use a GPU; none where it runs none, or cannot be used.
    pub variants: Vec<Served>,
    /// How it was found to compute; none where nobody asks, or it cannot be used.
    pub self_test: Option<SelfTest>,
}

/// A way in which kernels can use a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// What of it they use.
    pub what: &'static str,
    /// Why they do not; none if they do.
    pub why_not: Option<String>,
}

/// The ways, by what a device offers, and why it does not.
fn served(caps: &Caps, why_not: impl Fn(&str) -> Option<String>) -> Vec<Served> {
    let ways = [
        ("exchanges in subgroups", "subgroup", caps.subgroup > 1),
        ("packed dot products", "dot", caps.dot4),
        ("matrices", "matri", caps.mma32),
    ];
    let of_way = |(what, word, has): (&'static str, &str, bool)| {
        let reason = || why_not(word).unwrap_or_else(|| "the device has none".to_owned());
        Served { what, why_not: (!has).then(reason) }
    };
    ways.into_iter().map(of_way).collect()
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
        variants: vec![],
        self_test: None,
    }
}

fn cuda() -> Result<Vec<Listed>, String> {
    let found = unisonic_cuda::driver::enumerate().map_err(|error| error.to_string())?;
    let listed = found.into_iter().map(|found| {
        let (major, minor) = found.compute_capability;
        let (target, missing) = match found.target(Default::default()) {
            Ok(target) => (Some(target), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let why_not = |_: &str| Some(format!("compute capability {major}.{minor} has none"));
        Listed {
            name: DeviceName::Cuda(found.index),
            hardware: found.name.clone(),
            driver: Some(format!("CUDA {}", found.driver)),
            memory_len_bytes: Some(found.memory_len_bytes),
            missing: missing.into_iter().collect(),
            variants: target.map(|target| served(&target.caps(), why_not)).unwrap_or_default(),
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
        let tested = if found.missing.is_empty() {
            vulkan_self_test(found.index, cache).map_err(|error| found.missing.push(error)).ok()
        } else {
            None
        };
        let why_not = |word: &str| {
            let off = tested.iter().flat_map(|(test, _)| &test.switched_off);
            let off = off.filter(|off| off.what.contains(word)).map(|off| off.reason.clone());
            let lacking = found.lacking.iter().filter(|lacking| lacking.contains(word));
            off.chain(lacking.map(ToString::to_string)).next()
        };
        let variants = tested.as_ref().map(|(_, caps)| served(caps, why_not)).unwrap_or_default();
        let self_test = tested.map(|tested| tested.0);
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
            variants,
            self_test,
        }
    });
    Ok(listed.collect())
}

/// What a device was found to do; the text says why it cannot be opened.
fn vulkan_self_test(index: usize, cache: Option<&Arc<Cache>>) -> Result<(SelfTest, Caps), String> {
    let options = unisonic_vulkan::driver::OpenOptions { cache: cache.cloned(), ..Default::default() };
    let machine = unisonic_vulkan::driver::open(index, &options).map_err(|error| error.to_string())?;
    let off = machine.switched_off().iter();
    let test = SelfTest {
        probes: machine.self_test().probes.clone(),
        switched_off: off.map(|off| SwitchedOff { what: off.what, reason: off.reason.clone() }).collect(),
    };
    Ok((test, machine.hardware().caps))
}
