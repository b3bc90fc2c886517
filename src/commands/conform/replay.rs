//! Files of cases that failed.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use unisonic_conform::replay::Replay;
use unisonic_conform::suite::{Suite, Task};
use unisonic_conform::supervisor::{self, Replayed, Settings};
use unisonic_conform::worker::Description;
use unisonic_devices::DeviceName;

use super::{ConformArgs, DIFFERS, current_program, worker_command};
use crate::output::{say, write_stdout};
use crate::{atomic, interrupt};

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

/// Runs the case of a file on a device, in a process of its own; if it fails there, the file as it is of that device goes to a
/// folder.
pub fn run(path: &Path, device: DeviceName, args: &ConformArgs) -> anyhow::Result<ExitCode> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let replay = Replay::parse(&text).with_context(|| format!("cannot replay {}", path.display()))?;
    let program = current_program()?;
    let replayed = match args.in_process {
        true => supervisor::replay_here(&text, device),
        false => supervisor::replay(
            &text,
            &Settings {
                worker: &|| worker_command(&program, args, device),
                jobs: 1,
                patience: Duration::from_secs(args.patience),
                progress: &|_, _| (),
                keep_replay: &|_, _, _| None,
                is_interrupted: &interrupt::requested,
            },
        ),
    };
    let Replayed { device: description, outcome, text } =
        replayed.with_context(|| format!("cannot replay {} on `{device}`", path.display()))?;
    let reason = outcome.reason().map_or(String::new(), |reason| format!(": {reason}"));
    let Description { device: id, name, driver, .. } = description;
    let driver = if driver.is_empty() { driver } else { format!(", {driver}") };
    write_stdout(&format!("{id}: {name}{driver}: {}{reason}\n", outcome.word()))?;
    if !outcome.is_failure() {
        return Ok(ExitCode::SUCCESS);
    }
    let note = |name: &str, default: &str| replay.note(name).unwrap_or(default).to_owned();
    let (group, variant) = (note("case", "replay"), note("variant", "as-it-is"));
    let task = Task { group, variant, suite: Suite::Quick, skip: 0 };
    if let Some(path) = text.and_then(|text| keep(&args.failures, device, &task, "replayed", &text)) {
        say(format_args!("as it is on this device: {path}"));
    }
    Ok(ExitCode::from(DIFFERS))
}
