//! Kernels on Vulkan devices against the interpreter, bit for bit: each operation on each type with edge values and random
//! ones, and what a launch's workgroups are.
//!
//! Left out, with a line that says so, where there is no Vulkan device. Debian's `mesa-vulkan-drivers` has one that needs
//! no GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::cases::{GROUPS, WORKGROUP};
use support::runner::{Gpu, devices};
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_planner::kernels::samples::{Extent, FAMILIES, Sample};
use unisonic_vulkan::spirv::emit;

/// The devices; says so if there is none.
fn devices_for(what: &str) -> Vec<Gpu> {
    let devices = devices();
    if devices.is_empty() {
        support::skipped(what, "no Vulkan device; on Debian, mesa-vulkan-drivers has one");
    }
    devices
}

/// Whether a device has room for a kernel.
fn fits(kernel: &Kernel, gpu: &Gpu) -> bool {
    let shared = kernel.objects.iter().map(|object| match object.space {
        Space::Shared { len } => len * WORD_LEN_BYTES as u32,
        _ => 0,
    });
    kernel.workgroup <= gpu.max_workgroup && shared.sum::<u32>() <= gpu.target.max_shared_len_bytes
}

/// Runs a launch of a kernel in the interpreter, and what the legaliser makes of it on a device.
fn compare(gpu: &Gpu, name: &str, kernel: &Kernel, caps: &Caps, launch: &Launch) {
    let legal = legalize(kernel, caps);
    assert!(fits(&legal, gpu), "{name}: too large for {}", gpu.name);
    let words = emit(&legal, &gpu.target);
    support::validate(name, &words);
    let (mut expected, mut found) = (launch.clone(), launch.clone());
    run(kernel, &mut expected).unwrap_or_else(|trap| panic!("{name}: {trap}\n{kernel}"));
    gpu.run(&legal, &words, &mut found);
    for (number, (expected, found)) in expected.buffers.iter().zip(&found.buffers).enumerate() {
        if expected == found {
            continue;
        }
        let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap() / 4;
        let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
        panic!(
            "{}: {name}: buffer {number}, word {at}: expected 0x{:08x}, found 0x{:08x}\n{kernel}",
            gpu.name,
            word(expected, at),
            word(found, at)
        );
    }
}

#[test]
fn every_operation_equals_the_interpreter() {
    let cases = support::cases::all();
    for gpu in devices_for("operations on a Vulkan device") {
        for (seed, case) in cases.iter().enumerate() {
            let words = 4 * (WORKGROUP * GROUPS) as usize;
            let buffers = support::cases::fill(&case.buffers, words, seed as u64);
            let launch = Launch { groups: GROUPS, params: case.params.clone(), buffers, fuel: u64::MAX };
            // As the emitter has all of them; as a device's kernels are; and with nothing but words in shared memory.
            let all = Caps { half: true, ..gpu.target.caps() };
            let mut before: Vec<Kernel> = vec![];
            for caps in [all, gpu.target.caps(), Caps::NONE] {
                let legal = legalize(&case.kernel, &caps);
                if !before.contains(&legal) {
                    compare(&gpu, &case.text, &case.kernel, &caps, &launch);
                    before.push(legal);
                }
            }
        }
        println!("{}: {} cases", gpu.name, cases.len());
    }
}

/// What the planner's templates write is what `core::numerics` says. Samples for devices with matrices, which are large
/// without them, run in the full tier; what a device has no room for is left out.
#[test]
fn templates_equal_the_reference() {
    let extent = if support::is_full() { Extent::Full } else { Extent::Pairs };
    for gpu in devices_for("kernel templates on a Vulkan device") {
        let caps = gpu.target.caps();
        for (family, samples) in FAMILIES {
            let (mut ran, mut left_out) = (0, 0);
            let is_for = |sample: &Sample| support::is_full() || sample.caps.mma32 == caps.mma32;
            for sample in samples(extent).filter(is_for) {
                let legal = legalize(&sample.kernel, &caps);
                if !fits(&legal, &gpu) {
                    left_out += 1;
                    continue;
                }
                let words = emit(&legal, &gpu.target);
                support::validate(&sample.name, &words);
                let mut launch = sample.launch.clone();
                gpu.run(&legal, &words, &mut launch);
                if let Err(difference) = sample.check(&launch.buffers) {
                    panic!("{}: {difference}", gpu.name);
                }
                ran += 1;
            }
            println!("{}: {family}: {ran} samples, {left_out} too large", gpu.name);
            assert!(ran > 0, "`{family}` has samples for {}", gpu.name);
        }
    }
}

/// Branches, loops and exchanges in any order.
#[test]
fn random_kernels_equal_the_interpreter() {
    for gpu in devices_for("random kernels on a Vulkan device") {
        for seed in 0..if support::is_full() { 200 } else { 30 } {
            let (kernel, launch) = random_kernel(seed, 40);
            compare(&gpu, &format!("random kernel {seed}"), &kernel, &gpu.target.caps(), &launch);
        }
    }
}

/// More workgroups than a row of them has, and than many devices take in one dimension.
#[test]
fn workgroups_are_numbered_past_a_row() {
    let kernel = kernel("numbers", 8, |k| {
        let y = k.write("y", Scalar::U32);
        let i = k.group_id() * 8 + k.local_id();
        y.store(i, i * i);
    });
    for gpu in devices_for("many workgroups on a Vulkan device") {
        for groups in [1, 32_768, 65_535, 65_536, 100_001] {
            let buffers = vec![vec![0xEE; 32 * groups as usize]];
            let launch = Launch { groups, params: vec![], buffers, fuel: u64::MAX };
            compare(&gpu, &format!("{groups} workgroups"), &kernel, &gpu.target.caps(), &launch);
        }
    }
}
