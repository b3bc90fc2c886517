//! What invocations hand to each other.

use super::super::kernel::Attr;
use super::super::op::Op;

/// `out` of each invocation from the value of another of its cluster.
pub fn exchange(op: Op, attr: Attr, from: &[u32], lanes: usize, out: &mut [u32]) {
    let Attr::Cluster { width, lane } = attr else { unreachable!("an exchange has a cluster") };
    let (width, lane) = (width as usize, lane as usize);
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
