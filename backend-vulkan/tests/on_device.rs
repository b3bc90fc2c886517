//! Kernels on Vulkan devices against the interpreter, bit for bit: each operation on each type with edge values and random
//! ones, and what a launch's workgroups are.
//!
//! Left out, with a line that says so, where there is no Vulkan device. Debian's `mesa-vulkan-drivers` has one that needs
//! no GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::cases::{Case, GROUPS, WORKGROUP};
use support::runner::{Gpu, devices};
use unisonic_core::kir::build::kernel;
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::op::Family;
use unisonic_core::kir::{Kernel, Op, Scalar};
use unisonic_vulkan::spirv::emit;

/// The devices; says so if there is none.
fn devices_for(what: &str) -> Vec<Gpu> {
    let devices = devices();
    if devices.is_empty() {
        support::skipped(what, "no Vulkan device; on Debian, mesa-vulkan-drivers has one");
    }
    devices
}

fn is_legal(case: &Case, gpu: &Gpu) -> bool {
    let fits = match case.op {
        Op::CopyAsync | Op::CopyCommit | Op::CopyWait => false,
        Op::Dot4 => gpu.has_dot,
        _ => case.op.row().family != Family::Matrix,
    };
    let cluster = match case.kernel.body.stmts.iter().find_map(|stmt| match stmt {
        unisonic_core::kir::kernel::Stmt::Inst(inst) if inst.op == case.op => Some(inst.attr),
        _ => None,
    }) {
        Some(unisonic_core::kir::kernel::Attr::Cluster { width, .. }) => width,
        _ => 1,
    };
    fits && cluster <= gpu.target.subgroup_size
}

/// Runs a launch on a device and in the interpreter.
fn compare(gpu: &Gpu, name: &str, kernel: &Kernel, launch: &Launch) {
    let words = emit(kernel, &gpu.target);
    support::validate(name, &words);
    let (mut expected, mut found) = (launch.clone(), launch.clone());
    run(kernel, &mut expected).unwrap_or_else(|trap| panic!("{name}: {trap}\n{kernel}"));
    gpu.run(kernel, &words, &mut found);
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
        let mut ran = 0;
        for (seed, case) in cases.iter().enumerate() {
            if !is_legal(case, &gpu) {
                continue;
            }
            let words = 4 * (WORKGROUP * GROUPS) as usize;
            let buffers = support::cases::fill(&case.buffers, words, seed as u64);
            let launch = Launch { groups: GROUPS, params: case.params.clone(), buffers, fuel: u64::MAX };
            compare(&gpu, &case.text, &case.kernel, &launch);
            ran += 1;
        }
        println!("{}: {ran} of {} cases", gpu.name, cases.len());
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
            compare(&gpu, &format!("{groups} workgroups"), &kernel, &launch);
        }
    }
}
