//! `unisonic conform`: whether a device computes what it promises, with evidence.
//!
//! The cases are in the crate `unisonic-conform`; this starts the program itself as workers, and writes what came out. Start
//! reading at [`run`].

mod compare;
mod replay;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use unisonic_conform::Row;
use unisonic_conform::planted::Planted;
use unisonic_conform::report::{Counts, FORMAT, Report};
use unisonic_conform::suite::{Suite, tasks};
use unisonic_conform::supervisor::{self, Settings};
use unisonic_conform::worker;
use unisonic_core::plan::PROFILE;
use unisonic_devices::DeviceName;

use crate::numbers::whole;
use crate::output::{progress_bar, say, write_stdout};
use crate::{atomic, interrupt};

const DETAILS: &str = "\
Runs cases with known results on a device and compares every bit: operations of the kernel IR and random kernels with the \
interpreter, kernel templates with the arithmetic's specification, tiny models with the scalar device. Nothing but this program is needed. A driver that \
crashes ends one case.

Suites: quick is less than a minute on a software device, full is all cases in every variant of the device, soak runs \
what quick has a hundred times, beside each other and with little memory left.

The exit code is 3 if a case failed that nothing explains.

Examples:
  unisonic conform --device vulkan:0
  unisonic conform --device cuda:0 --suite full --json cuda.json
  unisonic conform --device vulkan --only op/fadd
  unisonic conform --device vulkan --replay conform-failures/FILE.txt
  unisonic conform --compare old-driver.json new-driver.json";

/// Exit code where a device computes otherwise than it has to.
const DIFFERS: u8 = 3;

/// Tests whether a device computes what it promises: every operation and kernel, bit for bit
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct ConformArgs {
    /// What is tested: cpu, cpu-scalar, interpreter, cuda:N, vulkan:N; `unisonic devices` says what there is
    #[arg(long, value_name = "DEVICE", required_unless_present = "compare")]
    device: Option<DeviceName>,
    /// How much is run
    #[arg(long, value_name = "SUITE", default_value = "quick")]
    suite: SuiteArg,
    /// Only groups whose names begin so, such as op/fadd or template/
    #[arg(long, value_name = "GROUP")]
    only: Option<String>,
    /// Writes all rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes all rows as a JUnit file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Processes that use the device at a time [default: 4, and as many as processors
    /// where that is fewer or the device is a processor]
    #[arg(long, value_name = "N", value_parser = whole(1..=64u32))]
    jobs: Option<u32>,
    /// How long a case may take before it counts as one that hangs
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = whole(1..=86_400u64))]
    patience: u64,
    /// Folder for a file of each case that failed, made small, to be read and run again
    #[arg(long, value_name = "DIR", default_value = "conform-failures")]
    failures: PathBuf,
    /// Runs the case in such a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "json", "junit"])]
    replay: Option<PathBuf>,
    /// Says what differs between two files of --json
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["device", "json", "junit", "replay"])]
    compare: Option<Vec<PathBuf>>,
    /// Runs all in this process: for debuggers. A driver that crashes ends it
    #[arg(long, conflicts_with = "jobs")]
    in_process: bool,
    /// Plants a fault in what the device is given, which has to be found: wrong-lane, fused-multiply-add,
    /// dropped-barrier, add-by-one-ulp, ignored-offset
    #[arg(long, hide = true, value_name = "FAULT", value_parser = planted)]
    plant: Option<Planted>,
    /// Serves requests on stdin, a line of JSON each: how the program starts itself
    #[arg(long, hide = true)]
    worker: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteArg {
    /// Some cases of each group, on the device as it is
    Quick,
    /// All cases, in every variant of the device
    Full,
    /// What quick has, a hundred times each
    Soak,
}

impl From<SuiteArg> for Suite {
    fn from(suite: SuiteArg) -> Self {
        match suite {
            SuiteArg::Quick => Self::Quick,
            SuiteArg::Full => Self::Full,
            SuiteArg::Soak => Self::Soak,
        }
    }
}

fn planted(name: &str) -> Result<Planted, String> {
    Planted::from_name(name).ok_or_else(|| "there is no such fault".to_owned())
}

/// Runs the command.
pub fn run(args: &ConformArgs) -> anyhow::Result<ExitCode> {
    if let Some([a, b]) = args.compare.as_deref() {
        return compare::run(a, b);
    }
    // Without it clap has ended the program.
    let device = args.device.unwrap_or_default();
    if args.worker {
        // Who started it ends it.
        interrupt::install()?;
        interrupt::defer_first_interrupt();
        worker::serve(device, args.plant, io::stdin().lock(), io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::install()?;
    if let Some(path) = &args.replay {
        return replay::run(path, device, args);
    }
    for path in [&args.json, &args.junit].into_iter().flatten() {
        atomic::check(path)?;
    }
    let report = report(args, device)?;
    if let Some(path) = &args.json {
        let mut json = serde_json::to_vec_pretty(&report)?;
        json.push(b'\n');
        atomic::write(path, &json)?;
    }
    if let Some(path) = &args.junit {
        atomic::write(path, report.junit().as_bytes())?;
    }
    write_stdout(&report.text())?;
    Ok(match report.counts.failed {
        _ if report.is_interrupted => ExitCode::from(interrupt::EXIT_CODE),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(DIFFERS),
    })
}

fn report(args: &ConformArgs, device: DeviceName) -> anyhow::Result<Report> {
    let (suite, start) = (Suite::from(args.suite), Instant::now());
    let tasks = tasks(suite, device, args.only.as_deref());
    if tasks.is_empty() {
        let only = args.only.as_deref().unwrap_or_default();
        bail!(
            "no group begins with `{only}`; groups begin with op/, random/, template/, tokens/, limits/, probe/, known/"
        );
    }
    let program = current_program()?;
    let bar = progress_bar(&device.to_string(), tasks.len() as u64);
    let progress = |row: &Row, done: usize| {
        bar.set_position(done as u64);
        if row.outcome.is_failure() {
            let reason = row.outcome.reason().unwrap_or_default();
            bar.suspend(|| say(format_args!("failed: {} {}: {reason}", row.group, row.case)));
        }
    };
    let mut settings = Settings {
        worker: &|| worker_command(&program, args, device),
        jobs: 1,
        patience: Duration::from_secs(args.patience),
        progress: &progress,
        keep_replay: &|task, case, text| replay::keep(&args.failures, device, task, case, text),
        is_interrupted: &interrupt::requested,
    };
    let described = match args.in_process {
        true => Settings::describe_here(device),
        false => supervisor::describe(&settings),
    };
    let description = described.map_err(|error| anyhow::anyhow!("cannot test `{device}`: {error}"))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let is_processor =
        description.is_software || !matches!(device, DeviceName::Cuda(_) | DeviceName::Vulkan(_));
    settings.jobs = match args.jobs {
        Some(jobs) => jobs as usize,
        None if is_processor => processors,
        None => processors.min(4),
    };
    interrupt::defer_first_interrupt();
    let rows = match args.in_process {
        true => supervisor::run_here(&tasks, device, args.plant, &settings),
        false => supervisor::run(tasks, &settings)?,
    };
    bar.finish_and_clear();
    Ok(Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: PROFILE.to_owned(),
        device: description,
        suite,
        seconds: start.elapsed().as_secs_f64(),
        is_interrupted: interrupt::requested(),
        counts: Counts::of(&rows),
        rows,
    })
}

fn current_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program, to start it again")
}

fn worker_command(program: &Path, args: &ConformArgs, device: DeviceName) -> Command {
    let mut command = Command::new(program);
    command.args(["conform", "--worker", "--device"]).arg(device.to_string());
    if let Some(fault) = args.plant {
        command.args(["--plant", fault.name()]);
    }
    command
}
