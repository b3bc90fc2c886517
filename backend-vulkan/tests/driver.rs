//! The driver on each Vulkan device that the loader finds: recordings run again and again, with what may go
//! wrong.
//!
//! Left out, with a line that says so, where there is no Vulkan device. Debian's `mesa-vulkan-drivers` has
//! one that needs no GPU. Where the validation layer is installed, it watches and must have nothing to say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unisonic_cache::Cache;
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::interp;
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_core::plan::Rows;
use unisonic_gpu::machine::{CompileCounts, Dispatch, Machine, MachineError, Span, Times, Work};
use unisonic_gpu::pacing::SUBMISSION_LIMIT;
use unisonic_vulkan::driver::{
    Buffer, NoVulkan, OpenError, OpenOptions, Pipeline, VulkanMachine, Without, enumerate, enumerate_with,
    open,
};

const WORDS: u32 = 1024;
const WORKGROUP: u32 = 64;
const GROUPS: Workgroups = Workgroups::Fixed(WORDS / WORKGROUP);
const NO_TILES: TileCounts = TileCounts { all: 0, outputs: 0 };

/// Numbers of the devices; says so if there is none.
fn devices_for(what: &str) -> Vec<usize> {
    let found = match enumerate() {
        Ok(found) => found,
        Err(error) => {
            support::skipped(what, &error.to_string());
            return vec![];
        }
    };
    found.iter().filter(|device| device.missing.is_empty()).map(|device| device.index).collect()
}

/// Opens a device, with the validation layer where it is installed.
fn opened(index: usize, options: OpenOptions) -> VulkanMachine {
    match open(index, &OpenOptions { validation: true, ..options.clone() }) {
        Err(OpenError::NoVulkan(NoVulkan::NoValidation)) => open(index, &options).unwrap(),
        opened => opened.unwrap(),
    }
}

fn is_valid(machine: &VulkanMachine) {
    assert_eq!(machine.validation_messages(), [""; 0], "{:?}", machine.info());
}

fn span(buffer: &Buffer) -> Span<VulkanMachine> {
    Span { buffer: buffer.clone(), offset_bytes: 0, len_bytes: buffer.len_bytes() }
}

fn part(buffer: &Buffer, offset_bytes: u64, len_bytes: u64) -> Span<VulkanMachine> {
    Span { buffer: buffer.clone(), offset_bytes, len_bytes }
}

fn dispatch(
    kernel: &Pipeline,
    buffers: &[&Buffer],
    params: &[u32],
    workgroups: Workgroups,
) -> Dispatch<VulkanMachine> {
    let spans = buffers.iter().map(|buffer| span(buffer)).collect();
    Dispatch { kernel: kernel.clone(), spans, params: params.to_vec(), workgroups }
}

fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// y\[i\] = x\[i\]·factor
fn scale() -> Kernel {
    kernel("scale", WORKGROUP, |k| {
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let factor = k.param("factor", Scalar::U32);
        let i = k.group_id() * WORKGROUP + k.local_id();
        y.store(i, x.load(i) * factor);
    })
}

/// z\[i\] = y\[n-1-i\] + w\[i\]
fn turn_and_add() -> Kernel {
    kernel("turn_and_add", WORKGROUP, |k| {
        let (y, w, z) = (k.read("y", Scalar::U32), k.read("w", Scalar::U32), k.write("z", Scalar::U32));
        let i = k.group_id() * WORKGROUP + k.local_id();
        z.store(i, y.load(k.u32(WORDS - 1) - i) + w.load(i));
    })
}

/// y\[group\] = group + 1
fn mark() -> Kernel {
    kernel("mark", 1, |k| {
        let y = k.write("y", Scalar::U32);
        y.store(k.group_id(), k.group_id() + 1);
    })
}

/// x\[i\] = x\[i\]·a + b, where b is another for each launch.
fn step() -> Kernel {
    kernel("step", WORKGROUP, |k| {
        let x = k.read_write("x", Scalar::U32);
        let (a, b) = (k.param("a", Scalar::U32), k.param("b", Scalar::U32));
        let i = k.group_id() * WORKGROUP + k.local_id();
        x.store(i, x.load(i) * a + b);
    })
}

fn buffer(machine: &VulkanMachine, what: &str) -> Buffer {
    machine.allocate(u64::from(4 * WORDS), what).unwrap()
}

#[test]
fn a_recording_runs_again_with_other_inputs() {
    for index in devices_for("recordings on a Vulkan device") {
        let machine = opened(index, OpenOptions::default());
        let [x, y, w, z] = ["x", "y", "w", "z"].map(|what| buffer(&machine, what));
        machine.upload(&w, 0, &bytes((0..WORDS).map(|i| 1000 * i))).unwrap();
        // A part of it, from the middle on.
        machine.upload(&w, 40, &bytes([7, 8])).unwrap();
        let [scale, turn] = [scale(), turn_and_add()].map(|kernel| machine.compile(&kernel).unwrap());
        let work = Work {
            dispatches: vec![
                dispatch(&scale, &[&x, &y], &[3], GROUPS),
                dispatch(&turn, &[&y, &w, &z], &[], GROUPS),
            ],
            inputs: span(&x),
            results: vec![part(&y, 8, 12), span(&z)],
        };
        let mut recording = machine.record(&work).unwrap();
        // The recording holds what it needs.
        drop((work, scale, turn, x, y, w, z));
        for run in 0..3 {
            let inputs: Vec<u32> = (0..WORDS).map(|i| i * i + run).collect();
            let mut results = vec![0xEE; (12 + 4 * WORDS) as usize];
            machine.run(&mut recording, &bytes(inputs.clone()), NO_TILES, &mut results).unwrap();
            let w = |i: usize| match i {
                10 | 11 => i as u32 - 3,
                _ => 1000 * i as u32,
            };
            let y: Vec<u32> = inputs.iter().map(|x| x.wrapping_mul(3)).collect();
            let z = y.iter().rev().enumerate().map(|(i, y)| y.wrapping_add(w(i)));
            assert_eq!(words(&results), y[2..5].iter().copied().chain(z).collect::<Vec<_>>(), "run {run}");
        }
        is_valid(&machine);
    }
}

#[test]
fn launches_per_tile_have_as_many_workgroups_as_a_run_has_tiles() {
    for index in devices_for("launches per tile on a Vulkan device") {
        let machine = opened(index, OpenOptions::default());
        let mark = machine.compile(&mark()).unwrap();
        let y = machine.allocate(3 * 256, "y").unwrap();
        let launch = |number: u64, workgroups| Dispatch {
            kernel: mark.clone(),
            spans: vec![part(&y, 256 * number, 256)],
            params: vec![],
            workgroups,
        };
        let work = Work {
            dispatches: vec![
                launch(0, Workgroups::PerTile(Rows::All, 4)),
                launch(1, Workgroups::PerTile(Rows::Outputs, 4)),
                launch(2, Workgroups::Fixed(2)),
            ],
            // Inputs are there before the first launch, and what it does not write stays.
            inputs: span(&y),
            results: vec![span(&y)],
        };
        let mut recording = machine.record(&work).unwrap();
        for (all, outputs) in [(3, 1), (0, 2), (16, 16), (1, 0)] {
            let mut results = vec![0xEE; 3 * 256];
            machine.run(&mut recording, &[0; 3 * 256], TileCounts { all, outputs }, &mut results).unwrap();
            let written = |groups: u32| (0..64).map(move |i| if i < groups { i + 1 } else { 0 });
            let expected: Vec<u32> = [4 * all, 4 * outputs, 2].into_iter().flat_map(written).collect();
            assert_eq!(words(&results), expected, "{all} and {outputs} tiles");
        }
        let tiles = TileCounts { all: u32::MAX, outputs: 0 };
        let error =
            machine.run(&mut recording, &[0; 3 * 256], tiles, &mut [0; 3 * 256]).unwrap_err().to_string();
        assert!(error.contains("`mark`") && error.contains("maxComputeWorkGroupCount[0]"), "{error}");
        is_valid(&machine);
    }
}

#[test]
fn each_launch_is_timed() {
    for index in devices_for("times of launches on a Vulkan device") {
        for launch_time in [None, Some(Duration::from_millis(100))] {
            let machine = opened(index, OpenOptions { launch_time, ..Default::default() });
            let x = buffer(&machine, "x");
            let step = machine.compile(&step()).unwrap();
            let groups = [GROUPS, Workgroups::PerTile(Rows::All, 4), GROUPS];
            let dispatches = groups.map(|groups| dispatch(&step, &[&x], &[3, 1], groups)).into();
            let work = Work { dispatches, inputs: span(&x), results: vec![span(&x)] };
            let tiles = TileCounts { all: 4, outputs: 0 };
            let times = machine.time(&work, &bytes(0..WORDS), tiles, 4).unwrap();
            let Some(times) = times else {
                support::skipped("times of launches", &format!("{:?} has no clock", machine.info()));
                continue;
            };
            assert_eq!(times.len(), 4);
            for Times { whole_ns, launches_ns, .. } in times {
                assert_eq!(launches_ns.len(), 3);
                assert!(whole_ns > 0 && launches_ns.iter().sum::<u64>() > 0, "{launches_ns:?}");
            }
            is_valid(&machine);
        }
    }
}

/// What a chain of launches leaves, where each needs all of what those before it wrote; it is run so many times.
fn chain(machine: &VulkanMachine, launches: u32, runs: usize) -> Vec<u32> {
    let x = buffer(machine, "x");
    let step = machine.compile(&step()).unwrap();
    let dispatches = (0..launches).map(|b| dispatch(&step, &[&x], &[3, b], GROUPS)).collect();
    let work = Work { dispatches, inputs: span(&x), results: vec![span(&x)] };
    let mut recording = machine.record(&work).unwrap();
    let mut found = vec![];
    for run in 0..runs {
        let mut results = vec![0; 4 * WORDS as usize];
        machine.run(&mut recording, &bytes(0..WORDS), NO_TILES, &mut results).unwrap();
        let results = words(&results);
        assert!(run == 0 || results == found, "run {run}");
        found = results;
    }
    is_valid(machine);
    found
}

/// What `chain` gives.
fn right_chain(launches: u32) -> Vec<u32> {
    let step = |x: u32, b| x.wrapping_mul(3).wrapping_add(b);
    (0..WORDS).map(|x| (0..launches).fold(x, step)).collect()
}

/// Nobody knows in the first run, so that each launch is alone in it.
#[test]
fn no_submission_is_estimated_to_take_long() {
    for index in devices_for("submissions on a Vulkan device") {
        for (milliseconds, most_launches) in [(1, 30), (50, 4), (150, 1), (499, 1)] {
            let launch_time = Some(Duration::from_millis(milliseconds));
            let machine = opened(index, OpenOptions { launch_time, ..OpenOptions::default() });
            let before = machine.submitted();
            for launches in [0, 7, 30] {
                assert_eq!(chain(&machine, launches, 3), right_chain(launches), "{milliseconds} ms");
            }
            let submitted = machine.submitted();
            // The probes of the self-test are alone in theirs, too.
            assert_eq!(submitted.most_launches, most_launches, "{milliseconds} ms");
            assert!(submitted.longest <= SUBMISSION_LIMIT, "{milliseconds} ms: {submitted:?}");
            let runs = |launches: u64| launches.max(1) + 2 * launches.div_ceil(most_launches as u64).max(1);
            let expected = runs(0) + runs(7) + runs(30);
            assert_eq!(submitted.count - before.count, expected, "{milliseconds} ms");
        }
    }
}

/// Exchanges, branches and loops, with the subgroups of the device and without.
#[test]
fn kernels_for_the_hardware_equal_the_interpreter() {
    for index in devices_for("kernels for the hardware of a Vulkan device") {
        for subgroups in [false, true] {
            let without = Without { subgroups, ..Without::default() };
            let machine = opened(index, OpenOptions { without, ..OpenOptions::default() });
            assert!(!subgroups || machine.hardware().caps.subgroup == 1);
            for seed in 0..8 {
                let (kernel, launch) = random_kernel(seed, 40);
                let mut expected = launch.clone();
                interp::run(&kernel, &mut expected).unwrap();
                let legal = machine.compile(&legalize(&kernel, &machine.hardware().caps)).unwrap();
                let buffers = launch.buffers.iter().map(|bytes| {
                    let buffer = machine.allocate(bytes.len() as u64, "a buffer").unwrap();
                    machine.upload(&buffer, 0, bytes).unwrap();
                    buffer
                });
                let buffers: Vec<Buffer> = buffers.collect();
                let [input, output] = [0, 1].map(|number| &buffers[number]);
                let launched =
                    dispatch(&legal, &[input, output], &launch.params, Workgroups::Fixed(launch.groups));
                let work = Work {
                    dispatches: vec![launched],
                    inputs: part(input, 0, 0),
                    results: vec![span(output)],
                };
                let mut results = vec![0; output.len_bytes() as usize];
                machine.run(&mut machine.record(&work).unwrap(), &[], NO_TILES, &mut results).unwrap();
                assert!(
                    results == expected.buffers[1],
                    "random kernel {seed}, without subgroups: {subgroups}\n{kernel}"
                );
            }
            is_valid(&machine);
        }
    }
}

/// More than one staging buffer holds, and not a multiple of anything.
#[test]
fn long_uploads_arrive_whole() {
    const LEN: usize = (40 << 20) + 4;
    for index in devices_for("uploads to a Vulkan device") {
        let machine = opened(index, OpenOptions::default());
        let x = machine.allocate(LEN as u64 + 8, "x").unwrap();
        let sent: Vec<u8> =
            (0..LEN as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        machine.upload(&x, 8, &sent).unwrap();
        let work =
            Work { dispatches: vec![], inputs: part(&x, 0, 0), results: vec![part(&x, 8, LEN as u64)] };
        let mut results = vec![0; LEN];
        machine.run(&mut machine.record(&work).unwrap(), &[], NO_TILES, &mut results).unwrap();
        assert!(results == sent);
        is_valid(&machine);
    }
}

#[test]
fn memory_above_a_limit_is_an_error_and_comes_back() {
    for index in devices_for("memory of a Vulkan device") {
        let options = OpenOptions { memory_limit_bytes: Some(1 << 20), ..OpenOptions::default() };
        let machine = opened(index, options);
        assert!(machine.free_bytes().is_some_and(|free| free <= 1 << 20));
        for _ in 0..3 {
            let held = machine.allocate(3 << 18, "the first").unwrap();
            match machine.allocate(1 << 19, "the KV cache") {
                Err(MachineError::OutOfMemory { what, needed_bytes, free_bytes: Some(free) }) => {
                    assert_eq!((what.as_str(), needed_bytes), ("the KV cache", 1 << 19));
                    assert!(free <= 1 << 18, "{free}");
                }
                other => panic!("{:?}", other.map(|buffer| buffer.len_bytes())),
            }
            // A smaller one still fits.
            machine.allocate(1 << 18, "the second").unwrap();
            drop(held);
        }
        is_valid(&machine);
    }
}

#[test]
fn a_buffer_above_the_devices_limits_names_the_limit() {
    for index in devices_for("large buffers on a Vulkan device") {
        let machine = opened(index, OpenOptions::default());
        for len_bytes in [1 << 50, u64::MAX] {
            let error = machine.allocate(len_bytes, "the weights").err().unwrap();
            assert!(matches!(error, MachineError::OutOfMemory { .. }), "{error}");
            let text = error.to_string();
            let expected = "for the weights in one buffer (this device's m";
            assert!(text.contains(expected), "{text}");
        }
        is_valid(&machine);
    }
}

#[test]
fn mistakes_are_errors() {
    for index in devices_for("mistakes on a Vulkan device") {
        let [machine, other] = [(); 2].map(|()| opened(index, OpenOptions::default()));
        let [x, y] = ["x", "y"].map(|what| buffer(&machine, what));
        let foreign = buffer(&other, "x");
        let [scale, foreign_scale] = [&machine, &other].map(|machine| machine.compile(&scale()).unwrap());
        let fails = |dispatch, part_of_message: &str| {
            let work = Work { dispatches: vec![dispatch], inputs: part(&x, 0, 0), results: vec![] };
            let text = machine.record(&work).err().unwrap().to_string();
            assert!(text.contains("`scale`") && text.contains(part_of_message), "{text}");
        };
        fails(dispatch(&scale, &[&x, &foreign], &[3], GROUPS), "another device");
        fails(dispatch(&foreign_scale, &[&x, &y], &[3], GROUPS), "another device");
        fails(dispatch(&scale, &[&x], &[3], GROUPS), "1 spans and 1 parameters, where it has 2 and 1");
        fails(dispatch(&scale, &[&x, &y], &[], GROUPS), "2 spans and 0 parameters");
        let mut odd = dispatch(&scale, &[&x, &y], &[3], GROUPS);
        odd.spans[1] = part(&y, 128, 16);
        fails(odd, "multiple of 256");
        let mut long = dispatch(&scale, &[&x, &y], &[3], GROUPS);
        long.spans[0] = part(&x, 256, x.len_bytes());
        fails(long, "span 0");
        if machine.upload(&x, u64::MAX, &[1]).is_ok() || machine.upload(&x, x.len_bytes(), &[1]).is_ok() {
            panic!("an upload past the end");
        }
        assert!(machine.upload(&foreign, 0, &[1]).is_err());
        let work = Work { dispatches: vec![], inputs: span(&x), results: vec![] };
        let mut recording = machine.record(&work).unwrap();
        assert!(machine.run(&mut recording, &[0], NO_TILES, &mut []).is_err());
        let inputs = vec![0; x.len_bytes() as usize];
        assert!(other.run(&mut recording, &inputs, NO_TILES, &mut []).is_err());
        machine.run(&mut recording, &inputs, NO_TILES, &mut []).unwrap();
        is_valid(&machine);
    }
}

#[test]
fn kernels_above_the_devices_limits_are_refused() {
    for index in devices_for("large kernels on a Vulkan device") {
        let machine = opened(index, OpenOptions::default());
        let hardware = machine.hardware();
        let shared = kernel("greedy", 32, |k| {
            let y = k.write("y", Scalar::U32);
            let s = k.shared("s", Scalar::U32, hardware.shared_len_bytes / 4 + 1);
            s.store(k.local_id(), k.local_id());
            y.store(k.local_id(), s.load(k.local_id()));
        });
        let text = machine.compile(&shared).err().unwrap().to_string();
        assert!(text.contains("`greedy`") && text.contains("maxComputeSharedMemorySize"), "{text}");
        is_valid(&machine);
    }
}

#[test]
fn a_lost_device_stays_lost() {
    for index in devices_for("loss of a Vulkan device") {
        // The upload, then a run.
        let options = OpenOptions {
            lost_after_submissions: Some(2),
            without: Without { matrices: true, ..Without::default() },
            ..OpenOptions::default()
        };
        let machine = opened(index, options);
        let x = buffer(&machine, "x");
        let work = Work { dispatches: vec![], inputs: span(&x), results: vec![span(&x)] };
        machine.upload(&x, 0, &[1]).unwrap();
        // Without launches there are no records, and nothing is uploaded.
        let mut recording = machine.record(&work).unwrap();
        let (inputs, mut results) = (bytes(0..WORDS), vec![0; 4 * WORDS as usize]);
        machine.run(&mut recording, &inputs, NO_TILES, &mut results).unwrap();
        assert_eq!(results, inputs);
        results.fill(0xEE);
        for _ in 0..2 {
            let error = machine.run(&mut recording, &inputs, NO_TILES, &mut results).unwrap_err();
            assert!(matches!(error, MachineError::Lost { .. }), "{error}");
        }
        assert!(results.iter().all(|&byte| byte == 0xEE), "a lost device has nothing to say");
        let later = [
            machine.allocate(1, "more").err(),
            machine.upload(&x, 0, &[1]).err(),
            machine.compile(&scale()).err(),
            machine.record(&work).err(),
        ];
        for error in later {
            assert!(matches!(error, Some(MachineError::Lost { .. })), "{error:?}");
        }
        // The process lives, and may open it again.
        assert_eq!(chain(&opened(index, OpenOptions::default()), 0, 1), right_chain(0));
    }
}

/// y\[i\] = y\[i\]·3 + turn, so many times
fn turn_long() -> Kernel {
    kernel("turn_long", WORKGROUP, |k| {
        let (y, turns) = (k.read_write("y", Scalar::U32), k.param("turns", Scalar::U32));
        let i = k.local_id();
        k.each(k.u32(0), turns, 1, |turn| y.store(i, y.load(i) * 3 + turn));
    })
}

#[test]
fn a_run_that_does_not_end_loses_the_device() {
    for index in devices_for("a hanging Vulkan device") {
        // Without the validation layer, which finds that what the device may still use is never destroyed.
        let options = OpenOptions { run_timeout: Some(Duration::from_millis(20)), ..OpenOptions::default() };
        let machine = open(index, &options).unwrap();
        let y = buffer(&machine, "y");
        let kernel = machine.compile(&turn_long()).unwrap();
        let work = Work {
            dispatches: vec![dispatch(&kernel, &[&y], &[1 << 28], Workgroups::Fixed(1))],
            inputs: part(&y, 0, 0),
            results: vec![span(&y)],
        };
        let mut recording = machine.record(&work).unwrap();
        let mut results = vec![0xEE; 4 * WORDS as usize];
        for reason in ["it did not end within 0.02 seconds", "it was lost before, in vkWaitForFences"] {
            let error = machine.run(&mut recording, &[], NO_TILES, &mut results).unwrap_err();
            assert!(matches!(&error, MachineError::Lost { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(results.iter().all(|&byte| byte == 0xEE), "a lost device has nothing to say");
        drop((recording, work, kernel, y, machine));
        // The process lives, and may open it again.
        assert_eq!(chain(&opened(index, OpenOptions::default()), 0, 1), right_chain(0));
    }
}

/// Each of five things goes first, second, ... once.
#[test]
fn anything_may_be_dropped_in_any_order() {
    for index in devices_for("handles of a Vulkan device") {
        for first in 0..5 {
            let machine = opened(index, OpenOptions::default());
            let x = buffer(&machine, "x");
            let step = machine.compile(&step()).unwrap();
            let work = Work {
                dispatches: vec![dispatch(&step, &[&x], &[3, 1], GROUPS)],
                inputs: span(&x),
                results: vec![span(&x)],
            };
            let mut recording = machine.record(&work).unwrap();
            machine
                .run(&mut recording, &bytes(0..WORDS), NO_TILES, &mut vec![0; 4 * WORDS as usize])
                .unwrap();
            // A copy is under way when the buffer goes.
            machine.upload(&x, 0, &bytes(0..WORDS)).unwrap();
            let mut things: Vec<Box<dyn Anything>> =
                vec![Box::new(machine), Box::new(x), Box::new(step), Box::new(work), Box::new(recording)];
            things.rotate_left(first);
            things.into_iter().for_each(drop);
        }
    }
}

/// What can be dropped.
trait Anything {}
impl<T> Anything for T {}

#[test]
fn a_second_start_compiles_nothing() {
    for index in devices_for("pipelines of a Vulkan device") {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let cache = Some(Arc::new(Cache::new(folder.path().join(name), 1 << 24)));
            let machine = opened(index, OpenOptions { cache, ..OpenOptions::default() });
            let before = machine.compile_counts().compiled;
            machine.compile(&scale()).unwrap();
            assert_eq!(chain(&machine, 3, 2), right_chain(3));
            is_valid(&machine);
            (before, machine.compile_counts())
        };
        let (_, first) = run("cache");
        assert!(first.compiled >= 2 && first.kept == 0, "{first:?}");
        assert_eq!(run("cache"), (0, CompileCounts { compiled: 0, kept: first.compiled }));
        // What is damaged is made again.
        for entry in std::fs::read_dir(folder.path().join("cache/vulkan-pipelines")).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        }
        assert_eq!(run("cache").1, first);
        assert_eq!(run("cache").1.compiled, 0);
        // Nothing can be written: the cache would be in a file.
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(run("file/cache").1, first);
    }
}

#[test]
fn devices_say_what_they_are() {
    for device in enumerate().unwrap_or_default() {
        println!("{device:?}");
        assert!(!device.name.is_empty() && device.memory_len_bytes > 0 && device.subgroup_size > 0);
        if device.missing.is_empty() {
            let machine = opened(device.index, OpenOptions::default());
            assert_eq!(machine.info().id, format!("vulkan:{}", device.index));
            assert_eq!(machine.info().name, device.name);
            assert_eq!(machine.driver(), device.driver);
            assert_eq!(machine.target().subgroup_size, device.subgroup_size);
            println!("{:?}\n{:?}\nfree: {:?}", machine.target(), machine.hardware(), machine.free_bytes());
        }
    }
    if let Ok(found) = enumerate() {
        let count = found.len();
        let error = open(count, &OpenOptions::default()).err().unwrap().to_string();
        assert!(error.starts_with(&format!("there is no Vulkan device {count}: ")), "{error}");
    }
}

#[test]
fn without_a_loader_the_error_says_what_to_install() {
    let options =
        OpenOptions { loader: Some(PathBuf::from("/nowhere/libvulkan.so.1")), ..OpenOptions::default() };
    let errors =
        [enumerate_with(&options).err().unwrap().to_string(), open(0, &options).err().unwrap().to_string()];
    for error in errors {
        assert!(error.starts_with("no Vulkan loader (/nowhere/libvulkan.so.1"), "{error}");
        assert!(error.contains("libvulkan1 on Debian"), "{error}");
    }
}
