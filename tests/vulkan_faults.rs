//! What goes wrong on a Vulkan device is an error of the request that it happens in: nothing wrong is answered, the process
//! lives, and the next request works.
//!
//! On the first Vulkan device that can be used; left out, with a line that says so, where there is none.
//!
//! Faults that people reported of other runtimes on Vulkan devices, and what holds that they do not happen here:
//!
//! | report | tests |
//! |---|---|
//! | 2.01 llama.cpp PR #10809: subgroups of other sizes | `golden_tokens.rs`: subgroups of 4, 8 and 16, and of 1 (`no subgroups`); `backend-vulkan/tests/on_device.rs` |
//! | 2.03 llama.cpp #25734: tiles larger than the block | `on_device.rs`: `templates_equal_the_reference`, each template with rows that end inside of a tile |
//! | 2.04 vllm-vulkan PR #57: wrong from some length on | the same, with rows of real models; `golden_tokens.rs`: SmolLM2-135M |
//! | 2.06 burn #4355: odd shapes | `golden_tokens.rs`: chunks of 1 to 508 rows, 257 among them |
//! | 2.08 llama.cpp PR #13607: sums beyond f16 | `values_beyond_f16_are_as_right_as_others` |
//! | 2.10 llama.cpp #15009: one allocation | `a_tensor_above_one_allocation_is_named`; `golden_tokens.rs`: `small allocations` |
//! | 2.12 llama.cpp #21724: long submissions | `gpu/src/pacing.rs`; `golden_tokens.rs`: `launches of 50 ms`; `backend-vulkan/tests/driver.rs`: `a_run_that_does_not_end_loses_the_device` |
//! | 2.14 llama.cpp #7620: no types of 16 bits | `golden_tokens.rs` on SwiftShader, which has none; `all_ops.rs`: no module asks for any |
//! | 2.16 llama.cpp PR #14099: a software device as the GPU | `a_software_device_is_used_only_if_it_is_named` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use unisonic_core::format::{GgufFile, GgufWriter};
use unisonic_core::plan::DeviceError;
use unisonic_core::plan::WeightSource;
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
fn a_tensor_above_one_allocation_is_named() {
    let Some(index) = device_for("long tensors on a Vulkan device") else { return };
    // The self-test needs more, once.
    drop(open(index, &OpenOptions::default()).unwrap());
    let options = OpenOptions { allocation_limit_bytes: Some(50_000), ..OpenOptions::default() };
    let error = load(index, &options).err().unwrap();
    let EngineError::Device(DeviceError::OutOfMemory { what, needed_bytes, .. }) = &error else {
        panic!("{error}")
    };
    assert!(*needed_bytes > 50_000);
    assert_says(what, &["tensor `", "in one buffer", "maxMemoryAllocationSize is 50000"]);
}

/// Logits of hundreds of thousands: neither a sum nor a value on the way is kept in 16 bits.
#[test]
fn values_beyond_f16_are_as_right_as_others() {
    const FACTOR: f32 = 1e5;
    let Some(index) = device_for("large values on a Vulkan device") else { return };
    let file = GgufFile::open(model().as_ref()).unwrap();
    let mut writer = GgufWriter::from_metadata(file.metadata());
    for tensor in file.tensors() {
        let mut bytes = file.read(&tensor.name).unwrap();
        if tensor.name == "output_norm.weight" {
            for value in bytes.as_chunks_mut::<4>().0 {
                *value = (f32::from_le_bytes(*value) * FACTOR).to_le_bytes();
            }
        }
        writer = writer.tensor(&tensor.name, tensor.ty, &tensor.dims, bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    writer.write(&path).unwrap();
    let options = EngineOptions { context_len: Some(64), chunk_rows: 4, ..EngineOptions::default() };
    let expected = logits(&mut common::load(&path, false, &options)).unwrap();
    assert!(expected.iter().flatten().any(|&bits| f32::from_bits(bits).abs() > 2.0 * 65_504.0));
    let device = GpuDevice::new(open(index, &OpenOptions::default()).unwrap(), Arc::new(Lowering::default()));
    assert!(logits(&mut common::load_with(&device, &path, &options)).unwrap() == expected);
}

#[test]
fn a_software_device_is_used_only_if_it_is_named() {
    let output = succeeded(unisonic(&["run", "--json", "-n", "1", &model(), "Hi"]));
    assert_eq!(last_line_json(&output)["device"], "cpu");
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
