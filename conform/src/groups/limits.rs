//! What is large: workgroups past what a dispatch has in one dimension, all the shared memory of a workgroup, all its
//! invocations, buffers of many megabytes.

use unisonic_core::kir::build::kernel;
use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::verify::MAX_SHARED_LEN_BYTES;
use unisonic_core::kir::{Kernel, Scalar};

use super::{Case, Expected, Made};
use crate::kernels::Facts;
use crate::suite::Suite;

/// Workgroups of a launch, around what drivers take in one dimension.
const GROUPS: [u32; 5] = [1, 32_768, 65_535, 65_536, 100_001];
/// KiB of shared memory: what every device has, what many have, and what some have.
const SHARED_KIB: [u32; 5] = [16, 32, 48, 64, 99];
/// Invocations of a workgroup.
const WORKGROUPS: [u32; 4] = [1, 33, 256, 1024];
/// MiB of a buffer.
const BUFFER_MIB: [u32; 2] = [1, 160];

/// All cases; of what a device has no room for the reason.
pub fn cases(facts: &Facts, suite: Suite) -> Vec<Made> {
    let groups = GROUPS.map(|count| Ok(numbers(count)));
    let shared = SHARED_KIB.map(|kib| Ok(shared(kib, facts)));
    let workgroups = WORKGROUPS.map(|count| Ok(workgroup(count)));
    let sizes = if suite == Suite::Full { &BUFFER_MIB[..] } else { &BUFFER_MIB[..1] };
    let buffers = sizes.iter().map(|&mib| Ok(far(mib)));
    groups.into_iter().chain(shared).chain(workgroups).chain(buffers).collect()
}

fn case(name: String, kernel: Kernel, groups: u32, buffers: Vec<Vec<u8>>) -> Case {
    let launch = Launch { groups, params: vec![], buffers, fuel: u64::MAX };
    Case { name, kernel, launch, expected: Expected::Interpreter }
}

/// Each invocation of many workgroups writes a word of its own.
fn numbers(groups: u32) -> Case {
    let kernel = kernel("numbers", 8, |k| {
        let y = k.write("y", Scalar::U32);
        let i = k.group_id() * 8 + k.local_id();
        y.store(i, i * i);
    });
    case(format!("{groups} workgroups"), kernel, groups, vec![vec![0xEE; 32 * groups as usize]])
}

/// All of it is written, and read by other invocations.
fn shared(kib: u32, facts: &Facts) -> Case {
    const INVOCATIONS: u32 = 128;
    // A device with a little less than a power of two is asked for all that it has.
    let most = facts.hardware.shared_len_bytes.min(MAX_SHARED_LEN_BYTES as u32) / 4;
    let words = match kib * 256 {
        words if words > most && (kib - 4) * 256 <= most => most / INVOCATIONS * INVOCATIONS,
        words => words,
    };
    let kernel = kernel("all_shared", INVOCATIONS, |k| {
        let (s, y) = (k.shared("s", Scalar::U32, words), k.write("y", Scalar::U32));
        let id = k.local_id();
        k.each(id, k.u32(words), INVOCATIONS, |at| s.store(at, at * 0x9E37_79B9_u32));
        k.barrier();
        let other = k.u32(words - 1) - id;
        let [sum] = k.fold(k.u32(0), k.u32(words), INVOCATIONS, [k.u32(0)], |at, [sum]| {
            [(sum ^ s.load(other - at)) * 0x0100_0193_u32]
        });
        y.store(k.group_id() * INVOCATIONS + id, sum);
    });
    case(format!("{kib} KiB of shared memory"), kernel, 2, vec![vec![0xEE; 2 * 4 * INVOCATIONS as usize]])
}

/// What others of a workgroup wrote before a barrier.
fn workgroup(count: u32) -> Case {
    let kernel = kernel("workgroup", count, |k| {
        let (s, y) = (k.shared("s", Scalar::U32, count), k.read_write("y", Scalar::U32));
        let (id, first) = (k.local_id(), k.group_id() * count);
        s.store(id, y.load(first + id));
        k.barrier();
        let other = k.u32(count - 1) - id;
        y.store(first + id, s.load(other) + id);
    });
    let bytes = (0..3 * count).flat_map(|word| (word.wrapping_mul(0x9E37_79B9) >> 3).to_le_bytes()).collect();
    case(format!("workgroups of {count}"), kernel, 3, vec![bytes])
}

/// Words that lie far apart, up to the end of a buffer.
fn far(mib: u32) -> Case {
    const INVOCATIONS: u32 = 256;
    let len = mib << 18;
    let kernel = kernel("far", 64, |k| {
        let (x, y) = (k.read("x", Scalar::U32), k.write("y", Scalar::U32));
        let id = k.group_id() * 64 + k.local_id();
        let at = (k.u32(INVOCATIONS - 1) - id) * (len / INVOCATIONS) + (len / INVOCATIONS - 1);
        y.store(id, x.load(at));
    });
    let words = (0..len).flat_map(|word| (word ^ (word >> 7)).to_le_bytes()).collect();
    let buffers = vec![words, vec![0xEE; 4 * INVOCATIONS as usize]];
    case(format!("a buffer of {mib} MiB"), kernel, INVOCATIONS / 64, buffers)
}
