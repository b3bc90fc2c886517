//! What invocations hand to each other.

use super::super::op::Op;

/// `out` of each invocation from the value of another of its cluster.
pub fn exchange(op: Op, from: &[u32], width: usize, lane: usize, lanes: usize, out: &mut [u32]) {
    let words = out.len() / lanes;
    for (id, out) in out.chunks_exact_mut(words).enumerate() {
        let cluster = id / width * width;
        let other = match op {
            Op::ShuffleXor => cluster + ((id - cluster) ^ lane),
            _ => cluster + lane,
        };
        out.copy_from_slice(&from[other * words..(other + 1) * words]);
    }
}
