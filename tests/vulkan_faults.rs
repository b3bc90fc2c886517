//! What goes wrong on a Vulkan device is an error of the request that it happens in: nothing wrong is answered, the process
//! lives, and the next request works.
//!
//! On the first Vulkan device that can be used; left out, with a line that says so, where there is none.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use unisonic_core::format::GgufFile;
use unisonic_core::plan::DeviceError;
use unisonic_engine::{Engine, EngineError, EngineOptions};
use unisonic_gpu::device::GpuDevice;
use unisonic_planner::launches::Lowering;
use unisonic_vulkan::driver::{OpenOptions, enumerate, open};

/// The number of a device.
fn device_for(what: &str) -> Option<usize> {
    let usable =
        enumerate().ok().and_then(|found| found.into_iter().find(|device| device.missing.is_empty()));
    if usable.is_none() {
        common::skipped(what, "no Vulkan device");
    }
    usable.map(|device| device.index)
}

fn load(index: usize, options: &OpenOptions) -> Result<Engine, EngineError> {
    let device = GpuDevice::new(open(index, options).unwrap(), Arc::new(Lowering::default()));
    let file = GgufFile::open(model().as_ref()).unwrap();
    let options = EngineOptions { context_len: Some(64), chunk_rows: 4, ..EngineOptions::default() };
    Engine::load(file.metadata(), file.tensors(), &file, &device, &options, &|_| {})
}

/// The bits of the logits after each token of a sequence.
fn logits(engine: &mut Engine) -> Result<Vec<Vec<u32>>, EngineError> {
    let (mut session, mut rows) = (engine.session(), vec![]);
    engine.extend(&mut session, &[1, 75, 108, 41, 7], 0, &mut |_, logits| {
        rows.push(logits.iter().map(|x| x.to_bits()).collect());
    })?;
    Ok(rows)
}

/// As the CPU gives them.
fn expected() -> Vec<Vec<u32>> {
    let options = EngineOptions { context_len: Some(64), chunk_rows: 4, ..EngineOptions::default() };
    logits(&mut common::load(model().as_ref(), false, &options)).unwrap()
}

/// Numbers that become sparse.
fn some_numbers() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0), |n| Some(n + 1 + n / 3))
}

#[test]
fn memory_that_runs_out_is_an_error_wherever_it_does() {
    let Some(index) = device_for("memory that runs out on a Vulkan device") else { return };
    let expected = expected();
    let mut failures = 0;
    for after in some_numbers() {
        let options = OpenOptions { no_memory_after_allocations: Some(after), ..OpenOptions::default() };
        let is_out_of_memory = |error: &EngineError| matches!(error, EngineError::Device(DeviceError::OutOfMemory { needed_bytes, .. }) if *needed_bytes > 0);
        let mut engine = match load(index, &options) {
            Ok(engine) => engine,
            Err(error) => {
                assert!(is_out_of_memory(&error), "after {after}: {error}");
                failures += 1;
                continue;
            }
        };
        match logits(&mut engine) {
            Ok(found) => {
                assert!(found == expected, "after {after}");
                break;
            }
            Err(error) => assert!(is_out_of_memory(&error), "after {after}: {error}"),
        }
        failures += 1;
        // The request failed; the next one has the memory.
        assert!(logits(&mut engine).unwrap() == expected, "after {after}");
    }
    assert!(failures > 3, "{failures}");
}

#[test]
fn a_device_that_is_lost_answers_nothing_and_another_start_does() {
    let Some(index) = device_for("loss of a Vulkan device") else { return };
    let expected = expected();
    let mut failures = 0;
    for after in some_numbers() {
        let options = OpenOptions { lost_after_submissions: Some(after), ..OpenOptions::default() };
        let is_lost = |error: &EngineError| {
            matches!(error, EngineError::Device(DeviceError::Machine { lost: true, .. }))
        };
        match load(index, &options) {
            Err(error) => assert!(is_lost(&error), "after {after}: {error}"),
            Ok(mut engine) => match logits(&mut engine) {
                Ok(found) => {
                    assert!(found == expected, "after {after}");
                    break;
                }
                Err(error) => {
                    assert!(is_lost(&error), "after {after}: {error}");
                    assert!(is_lost(&logits(&mut engine).unwrap_err()), "it stays lost");
                }
            },
        }
        failures += 1;
    }
    assert!(failures > 3, "{failures}");
    assert!(logits(&mut load(index, &OpenOptions::default()).unwrap()).unwrap() == expected);
}

#[test]
fn a_model_that_does_not_fit_says_what_would() {
    let Some(index) = device_for("models that do not fit a Vulkan device") else { return };
    let device = format!("vulkan:{index}");
    let model = model();
    let run = |limit| {
        unisonic(&[
            "run",
            "-n",
            "1",
            "--device",
            &device,
            "--cache-dir",
            "off",
            "--memory-limit",
            limit,
            &model,
            "Hi",
        ])
    };
    let error = failed(run("300KB"), 1);
    assert_says(&error, &["bytes of device memory", "are free"]);
    succeeded(run("1GiB"));
}

/// Whatever is half written then is no harm to the next start.
#[test]
fn a_killed_process_leaves_a_cache_that_serves() {
    let Some(index) = device_for("killed processes on a Vulkan device") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (device, model) = (format!("vulkan:{index}"), model());
    let cache = folder.path().to_str().unwrap();
    let args = [
        "run",
        "--json",
        "--logits-digest",
        "-n",
        "2",
        "--device",
        &device,
        "--cache-dir",
        cache,
        &model,
        "Hi",
    ];
    for milliseconds in [50, 150, 400] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        let mut child = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let on_cpu = [&args[..5], &args[9..]].concat();
    let expected = last_line_json(&succeeded(unisonic(&on_cpu)))["logits_sha256"].clone();
    assert_eq!(last_line_json(&succeeded(unisonic(&args)))["logits_sha256"], expected);
}
