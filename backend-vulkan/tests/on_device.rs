//! Kernels on Vulkan devices against the interpreter, bit for bit: each operation on each type with edge
//! values and random ones, and what a launch's workgroups are.
//!
//! Left out, with a line that says so, where there is no Vulkan device. Debian's `mesa-vulkan-drivers` has
//! one that needs no GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use support::cores::{on_all_cores, on_all_cores_from};
use support::runner::{Gpu, devices};
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::cases::{self, Floats};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::Space;
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_planner::kernels::samples::{Extent, FAMILIES, Sample};
use unisonic_vulkan::spirv::{Target, emit};

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

/// Values of the largest kernel that a software device runs outside of the full tier.
const SOFTWARE_VALUES: usize = 5000;

/// The device, and as if it could not multiply matrices.
fn targets(gpu: &Gpu) -> Vec<Target> {
    let without = Target { matrix: None, ..gpu.target };
    if gpu.target == without { vec![without] } else { vec![gpu.target, without] }
}

/// Runs a launch of a kernel in the interpreter, and what the legaliser makes of it on a device. An error
/// says where they differ.
fn compare(gpu: &Gpu, target: &Target, name: &str, kernel: &Kernel, launch: &Launch) -> Result<(), String> {
    let mut expected = launch.clone();
    run(kernel, &mut expected).unwrap_or_else(|trap| panic!("{name}: {trap}\n{kernel}"));
    compare_legal(gpu, target, name, &legalize(kernel, &target.caps()), launch, &expected)
}

fn compare_legal(
    gpu: &Gpu,
    target: &Target,
    name: &str,
    legal: &Kernel,
    launch: &Launch,
    expected: &Launch,
) -> Result<(), String> {
    assert!(fits(legal, gpu), "{name}: too large for {}", gpu.name);
    let words = emit(legal, target);
    support::validate(name, &words);
    let mut found = launch.clone();
    gpu.run(legal, &words, &mut found);
    for (number, (expected, found)) in expected.buffers.iter().zip(&found.buffers).enumerate() {
        if expected == found {
            continue;
        }
        let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap() / 4;
        let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
        return Err(format!(
            "{}: {name}: buffer {number}, word {at}: expected 0x{:08x}, found 0x{:08x}, matrices: {}\n{legal}",
            gpu.name,
            word(expected, at),
            word(found, at),
            target.matrix.is_some(),
        ));
    }
    Ok(())
}

#[test]
fn every_operation_equals_the_interpreter() {
    let cases = cases::all();
    for gpu in devices_for("operations on a Vulkan device") {
        on_all_cores(&cases, |case| {
            let (name, launch) = (&case.kernel.name, case.launch(Floats::Normal));
            let mut expected = launch.clone();
            run(&case.kernel, &mut expected).map_err(|trap| format!("{name}: {trap}"))?;
            let mut before: Vec<(Kernel, Target)> = vec![];
            for target in targets(&gpu) {
                // As a device's kernels are; with matrices that are inserted; and with nothing but words in
                // shared memory.
                let no_room = Target { max_shared_len_bytes: 0, ..target };
                for (caps, target) in
                    [(target.caps(), target), (target.caps(), no_room), (Caps::NONE, target)]
                {
                    let legal = legalize(&case.kernel, &caps);
                    let text = legal.to_string();
                    let has_matrices = ["mma32", "load_b"].iter().any(|op| text.contains(op));
                    // Only matrices tell the targets apart.
                    let target = if has_matrices { target } else { Target { matrix: None, ..gpu.target } };
                    if !before.contains(&(legal.clone(), target)) {
                        compare_legal(&gpu, &target, name, &legal, &launch, &expected)?;
                        before.push((legal, target));
                    }
                }
            }
            Ok(())
        });
        println!("{}: {} cases", gpu.name, cases.len());
    }
}

/// What the planner's templates write is what `core::numerics` says. Samples for devices with matrices, which
/// are large without them, run without them only in the full tier, and so do those that software devices take
/// minutes to compile; what a device has no room for is left out.
#[test]
fn templates_equal_the_reference() {
    let extent = if support::is_full() { Extent::Full } else { Extent::Pairs };
    for gpu in devices_for("kernel templates on a Vulkan device") {
        let targets = targets(&gpu);
        let counts: Vec<[AtomicUsize; 2]> = FAMILIES.iter().map(|_| Default::default()).collect();
        let is_for =
            |sample: &Sample, target: &Target| support::is_full() || sample.caps.mma32 == target.caps().mma32;
        let families = FAMILIES.iter().enumerate().map(|(family, (_, samples))| {
            let targets = &targets;
            move || {
                samples(extent).flat_map(move |sample| {
                    let targets = targets.iter().filter(|target| is_for(&sample, target));
                    targets.map(|target| (family, sample.clone(), target)).collect::<Vec<_>>()
                })
            }
        });
        on_all_cores_from(families, |(family, sample, target)| {
            let legal = legalize(&sample.kernel, &target.caps());
            let [ran, too_large] = &counts[family];
            let is_long = gpu.is_software && !support::is_full() && legal.types.len() > SOFTWARE_VALUES;
            if is_long || !fits(&legal, &gpu) {
                too_large.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            let words = emit(&legal, target);
            support::validate(&sample.name, &words);
            let mut launch = sample.launch.clone();
            gpu.run(&legal, &words, &mut launch);
            ran.fetch_add(1, Ordering::Relaxed);
            sample.check(&launch.buffers).map_err(|difference| {
                format!("{}: {difference}, matrices: {}", gpu.name, target.matrix.is_some())
            })
        });
        for ((family, _), [ran, too_large]) in FAMILIES.iter().zip(counts) {
            let (ran, too_large) = (ran.into_inner(), too_large.into_inner());
            println!("{}: {family}: {ran} samples, {too_large} too large", gpu.name);
            let is_tried = ran > 0 || gpu.is_software && too_large > 0;
            assert!(is_tried, "`{family}` has no samples for {}", gpu.name);
        }
    }
}

/// Branches, loops and exchanges in any order.
#[test]
fn random_kernels_equal_the_interpreter() {
    let seeds: Vec<u64> = (0..if support::is_full() { 200 } else { 30 }).collect();
    for gpu in devices_for("random kernels on a Vulkan device") {
        on_all_cores(&seeds, |&seed| {
            let (kernel, launch) = random_kernel(seed, 40);
            for target in targets(&gpu) {
                compare(&gpu, &target, &format!("random kernel {seed}"), &kernel, &launch)?;
            }
            Ok(())
        });
        println!("{}: {} random kernels", gpu.name, seeds.len());
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
            let result = compare(&gpu, &gpu.target, &format!("{groups} workgroups"), &kernel, &launch);
            assert_eq!(result, Ok(()));
        }
    }
}
