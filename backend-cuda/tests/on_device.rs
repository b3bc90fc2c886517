//! Kernels on a GPU, compared with the interpreter bit for bit: every operation with every type, random
//! kernels; templates compared with the reference. Left out, with a line that says so, where there is no CUDA
//! driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::gpu::Gpu;
use unisonic_core::kir::Kernel;
use unisonic_core::kir::cases::{self, Floats};
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::random::random_kernel;
use unisonic_cuda::ptx::{Target, emit};
use unisonic_planner::kernels::samples::{Extent, samples};

/// Runs a kernel on both, and says where they differ.
fn compare(gpu: &Gpu, kernel: &Kernel, launch: &Launch, target: Target) -> Result<(), String> {
    let (mut expected, mut found) = (launch.clone(), launch.clone());
    run(kernel, &mut expected).unwrap_or_else(|trap| panic!("{}: {trap}", kernel.name));
    let what = || format!("{} for {}", kernel.name, target.name());
    gpu.run(kernel, &mut found, target)
        .map_err(|error| format!("{}: {error}\n{}", what(), emit(kernel, target)))?;
    for (number, (expected, found)) in expected.buffers.iter().zip(&found.buffers).enumerate() {
        if let Some(at) = (0..expected.len() / 4).find(|at| expected[4 * at..][..4] != found[4 * at..][..4]) {
            let words =
                [expected, found].map(|bytes| u32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap()));
            return Err(format!(
                "{}: buffer {number}, word {at}: {:#010x} in the interpreter, {:#010x} on the GPU",
                what(),
                words[0],
                words[1]
            ));
        }
    }
    Ok(())
}

/// Emitted for the GPU's own target and for the oldest one, whose code it runs too.
fn compare_all(what: &str, kernels: impl Iterator<Item = (Kernel, Launch)>) {
    let Some(gpu) = Gpu::open(what) else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for (kernel, launch) in kernels {
        for target in [gpu.target, Target::Sm61] {
            count += 1;
            wrong.extend(compare(&gpu, &kernel, &launch, target).err());
        }
    }
    println!("{what}: {count} runs on {}", gpu.target.name());
    let first: Vec<_> = wrong.iter().take(10).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), first.join("\n"));
}

#[test]
fn every_operation_gives_the_bits_of_the_interpreter() {
    let kernels = cases::all().into_iter().map(|case| {
        let launch = case.launch(Floats::Finite);
        (case.kernel, launch)
    });
    compare_all("operations on a GPU", kernels);
}

#[test]
fn random_kernels_give_the_bits_of_the_interpreter() {
    compare_all("random kernels on a GPU", (0..200).map(|seed| random_kernel(seed, 60)));
}

/// The templates' samples against `core::numerics` itself.
#[test]
fn templates_give_the_bits_of_the_reference() {
    let what = "templates on a GPU";
    let Some(gpu) = Gpu::open(what) else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for sample in samples(Extent::Pairs) {
        count += 1;
        let mut launch = sample.launch.clone();
        let result = gpu.run(&sample.kernel, &mut launch, gpu.target);
        let result = result.map_err(|error| format!("{}: {error}", sample.name));
        wrong.extend(result.and_then(|()| sample.check(&launch.buffers)).err());
    }
    println!("{what}: {count} runs on {}", gpu.target.name());
    let first: Vec<_> = wrong.iter().take(10).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), first.join("\n"));
}
