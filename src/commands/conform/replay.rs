//! Files of cases that failed.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use unisonic_conform::replay::Replay;
use unisonic_conform::suite::{Suite, Task};
use unisonic_conform::{Opened, Variant, open};
use unisonic_devices::DeviceName;

use super::DIFFERS;
use crate::atomic;
use crate::output::{say, write_stdout};

/// Longest part of a file name that is made of a case's.
const MAX_NAME_CHARS: usize = 60;

/// Writes a case that failed to a file; its path, if that could be done.
pub fn keep(folder: &Path, device: DeviceName, task: &Task, case: &str, text: &str) -> Option<String> {
    let full = format!("{device} {} {} {case}", task.variant, task.group);
    let name: String = full.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name: String = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    // Names that begin alike are told apart (FNV-1a).
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let path = folder.join(format!("{name}-{:08x}.txt", full.bytes().fold(0x811C_9DC5, mix)));
    let written = std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
        .and_then(|()| atomic::write(&path, text.as_bytes()));
    match written {
        Ok(()) => Some(path.display().to_string()),
        Err(error) => {
            say(format_args!("warning: the file of a failure is not written: {error:#}"));
            None
        }
    }
}

/// Runs the case of a file on a device; if it fails there, the file as it is of that device goes to a folder.
pub fn run(path: &Path, device: DeviceName, failures: &Path) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let replay = Replay::parse(&text).with_context(|| format!("cannot replay {}", path.display()))?;
    let variant = replay.note("variant").and_then(Variant::from_name).unwrap_or(Variant::AsItIs);
    let opened = match open(device, variant).map_err(anyhow::Error::msg)? {
        Opened::NoVariant { .. } => open(device, Variant::AsItIs).map_err(anyhow::Error::msg)?,
        opened => opened,
    };
    let Opened::Kernels(mut kernels) = opened else {
        bail!("`{device}` runs no kernels; give another --device");
    };
    let (outcome, now) = replay.run_again(&mut *kernels);
    let reason = outcome.reason().map_or(String::new(), |reason| format!(": {reason}"));
    let facts = kernels.facts();
    write_stdout(&format!(
        "{}: {}, {}: {}{reason}\n",
        facts.device,
        facts.name,
        facts.driver,
        outcome.word()
    ))?;
    if outcome.is_failure() {
        let group = replay.note("case").unwrap_or("replay").to_owned();
        let variant = variant.name().to_owned();
        let task = Task { group, variant, suite: Suite::Quick, skip: 0 };
        if let Some(path) = keep(failures, device, &task, "replayed", &now.text()) {
            say(format_args!("as it is on this device: {path}"));
        }
    }
    Ok(if outcome.is_failure() { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}
