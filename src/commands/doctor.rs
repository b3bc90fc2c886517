//! `unisonic doctor`: what is installed, what serves for what, and what to do about the rest.
//!
//! Devices are asked by the program itself in another process (`unisonic devices --json`), so that a driver that crashes is told
//! and not suffered.

use std::fmt::Write;
use std::fs::{File, read_dir};
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use clap::Args;
use serde_json::Value as Json;
use unisonic_core::plan::PROFILE;

use crate::cache_dir::CacheDirArg;
use crate::output::{bytes, write_stdout};

const DETAILS: &str = "\
Says which devices serve, which of their abilities kernels use, and what to do about the rest. `unisonic conform` tests \
whether a device computes as it has to.

Examples:
  unisonic doctor";

/// Says what is installed, which devices serve for what, and what to do about the rest
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct DoctorArgs {
    #[command(flatten)]
    cache: CacheDirArg,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let found = Found { backends: backends(&args.cache), system: System::of_this_machine() };
    write_stdout(&found.text())
}

/// What `unisonic devices --json` says; the error says how it ended instead.
fn backends(cache: &CacheDirArg) -> Result<Json, String> {
    let ask = || -> anyhow::Result<Json> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["devices", "--json"]);
        if let Some(folder) = cache.folder() {
            command.arg("--cache-dir").arg(folder);
        }
        let output = command.output().context("the program cannot start itself")?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the process ended: {}", output.status))
    };
    ask().map_err(|error| format!("{error:#}"))
}

/// What is known of the machine without asking drivers.
struct System {
    /// Descriptions of Vulkan drivers, by path.
    vulkan_manifests: Vec<String>,
    /// What the kernel's module of NVIDIA's driver says of its version.
    nvidia_module: Option<String>,
    /// Device files that there are and that cannot be opened.
    closed_files: Vec<String>,
    processors: usize,
}

impl System {
    fn of_this_machine() -> Self {
        const MANIFESTS: [&str; 3] =
            ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];
        let names = |folder: &str| {
            let entries = read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut manifests: Vec<String> = MANIFESTS
            .iter()
            .flat_map(|folder| names(folder))
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .map(|path| path.display().to_string())
            .collect();
        manifests.sort();
        let is_gpu = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            // Device files, not the folder of capabilities.
            name.starts_with("renderD") || name.starts_with("nvidia") && !path.is_dir()
        };
        let files = names("/dev/dri").into_iter().chain(names("/dev")).filter(|path| is_gpu(path));
        let closed = files.filter(|path| File::open(path).is_err()).map(|path| path.display().to_string());
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
        Self {
            vulkan_manifests: manifests,
            nvidia_module: module.and_then(|text| Some(text.lines().next()?.trim().to_owned())),
            closed_files: closed.collect(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// All that was found.
struct Found {
    backends: Result<Json, String>,
    system: System,
}

impl Found {
    fn text(&self) -> String {
        let mut text = format!("unisonic {}, arithmetic {PROFILE}\n", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(text, "\nInstalled");
        let System { vulkan_manifests, nvidia_module, processors, .. } = &self.system;
        let _ = writeln!(text, "  processors: {processors} ({})", std::env::consts::ARCH);
        let module = nvidia_module.as_deref().unwrap_or("none loaded");
        let _ = writeln!(text, "  NVIDIA's kernel module: {module}");
        let manifests = match vulkan_manifests.is_empty() {
            true => "none".to_owned(),
            false => vulkan_manifests.join(", "),
        };
        let _ = writeln!(text, "  descriptions of Vulkan drivers: {manifests}");
        let _ = writeln!(text, "\nDevices");
        match &self.backends {
            Err(error) => {
                let _ = writeln!(text, "  not known: {error}");
            }
            Ok(json) => self.devices(json).iter().for_each(|device| text += &device.text()),
        }
        let _ = writeln!(text, "\nWhat to do");
        for (number, advice) in self.advice().iter().enumerate() {
            let _ = writeln!(text, "  {}. {advice}", number + 1);
        }
        text
    }

    fn devices(&self, json: &Json) -> Vec<Device> {
        let backends = json["backends"].as_array().cloned().unwrap_or_default();
        let of_backend = |backend: &Json| {
            let name = text_of(&backend["backend"]);
            match backend["why"].as_str() {
                Some(why) => vec![Device { name, hardware: format!("none: {why}"), ..Device::default() }],
                None => list_of(&backend["devices"]).iter().map(Device::of_json).collect(),
            }
        };
        backends.iter().flat_map(of_backend).collect()
    }

    /// What a person can do, the most useful first.
    fn advice(&self) -> Vec<String> {
        let mut advice = vec![];
        let devices = match &self.backends {
            Ok(json) => self.devices(json),
            Err(_) => {
                advice.push(
                    "a driver ended the process that asked it: find out which with `unisonic devices`, and set \
                     VK_ICD_FILENAMES to the description of another Vulkan driver, or remove it"
                        .to_owned(),
                );
                vec![]
            }
        };
        if !self.system.closed_files.is_empty() {
            let files = self.system.closed_files.join(", ");
            advice.push(format!(
                "{files} cannot be opened: the GPU behind is not seen; add yourself to the group of the file (`ls -l` says \
                 which, often render or video), and log in again"
            ));
        }
        let usable = |device: &&Device| device.name.contains(':') && device.missing.is_empty();
        let gpus: Vec<&Device> = devices.iter().filter(usable).filter(|device| !device.is_software).collect();
        match gpus.first() {
            Some(gpu) => advice.push(format!("use `--device {}`", gpu.name)),
            None => advice.push("use `--device cpu`, the default: no GPU serves here".to_owned()),
        }
        for device in devices.iter().filter(|device| device.name.contains(':')) {
            let name = &device.name;
            if device.is_software && device.missing.is_empty() {
                advice.push(format!(
                    "{name} is a program on the processor, for tests: `--device cpu` is faster"
                ));
            }
            for missing in &device.missing {
                advice.push(format!("{name} cannot be used: {missing}"));
            }
        }
        // The text says what to install.
        advice.extend(devices.iter().filter_map(|device| {
            let why = device.hardware.strip_prefix("none: ")?;
            Some(format!("for {}: {why}", device.name))
        }));
        for gpu in devices.iter().filter(usable) {
            advice.push(format!(
                "whether {0} computes as it has to: `unisonic conform --device {0}`",
                gpu.name
            ));
        }
        advice
    }
}

/// A device of the list.
#[derive(Default)]
struct Device {
    name: String,
    hardware: String,
    driver: Option<String>,
    memory_len_bytes: Option<u64>,
    missing: Vec<String>,
    /// What kernels use of it, and why they do not.
    variants: Vec<(String, Option<String>)>,
    is_software: bool,
}

impl Device {
    fn of_json(json: &Json) -> Self {
        let variants = list_of(&json["variants"]);
        let notes: Vec<String> = list_of(&json["notes"]).iter().map(text_of).collect();
        Self {
            name: text_of(&json["device"]),
            hardware: text_of(&json["hardware"]),
            driver: json["driver"].as_str().map(str::to_owned),
            memory_len_bytes: json["memory_bytes"].as_u64(),
            missing: list_of(&json["missing"]).iter().map(text_of).collect(),
            variants: variants
                .iter()
                .map(|served| (text_of(&served["what"]), served["why_not"].as_str().map(str::to_owned)))
                .collect(),
            is_software: notes.iter().any(|note| note == "software"),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("  {}: {}", self.name, self.hardware);
        if let Some(driver) = &self.driver {
            let _ = write!(text, ", {driver}");
        }
        if let Some(len_bytes) = self.memory_len_bytes {
            let _ = write!(text, ", {}", bytes(len_bytes));
        }
        text.push('\n');
        for missing in &self.missing {
            let _ = writeln!(text, "      cannot be used: {missing}");
        }
        for (what, why_not) in &self.variants {
            let _ = match why_not {
                None => writeln!(text, "      with {what}"),
                Some(why_not) => writeln!(text, "      without {what}: {why_not}"),
            };
        }
        text
    }
}

fn text_of(json: &Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn list_of(json: &Json) -> Vec<Json> {
    json.as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(backends: Result<Json, String>, closed_files: Vec<String>) -> Found {
        let system = System {
            vulkan_manifests: vec!["/etc/vulkan/icd.d/gpu.json".into()],
            nvidia_module: None,
            closed_files,
            processors: 2,
        };
        Found { backends, system }
    }

    #[test]
    fn devices_are_told_with_what_to_do() {
        let json = json!({ "backends": [
            { "backend": "CPU", "devices": [{ "device": "cpu", "hardware": "Zen" }] },
            { "backend": "CUDA", "devices": [], "why": "no driver; install it" },
            { "backend": "Vulkan", "devices": [
                { "device": "vulkan:0", "hardware": "llvmpipe", "notes": ["software"], "missing": [],
                  "variants": [{ "what": "packed dot products", "why_not": null },
                               { "what": "matrices", "why_not": "the device has none" }] },
                { "device": "vulkan:1", "hardware": "Old", "notes": [], "missing": ["it lacks addresses"] },
                { "device": "vulkan:2", "hardware": "GPU", "driver": "D 1", "notes": ["discrete GPU"], "missing": [] },
            ] },
        ]});
        let text = found(Ok(json), vec!["/dev/dri/renderD128".into()]).text();
        for part in [
            "  vulkan:0: llvmpipe\n      with packed dot products\n      without matrices: the device has none\n",
            "  CUDA: none: no driver; install it\n",
            "      cannot be used: it lacks addresses\n",
            "  1. /dev/dri/renderD128 cannot be opened",
            "  2. use `--device vulkan:2`\n",
            "vulkan:0 is a program on the processor",
            "for CUDA: no driver; install it",
            "`unisonic conform --device vulkan:2`",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_driver_that_crashes_is_told() {
        let text = found(Err("the process ended: signal: 11".into()), vec![]).text();
        assert!(text.contains("not known: the process ended") && text.contains("VK_ICD_FILENAMES"), "{text}");
        assert!(text.contains("use `--device cpu`"), "{text}");
    }
}
