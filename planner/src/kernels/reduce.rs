//! Reductions over a workgroup of [`super::ROW_LANES`] invocations.

use unisonic_core::kir::build::{Build, Mem, V};

use super::ROW_LANES;

/// Lanes that are reduced without shared memory.
const CLUSTER: u32 = 32;

/// `core::numerics::float::tree` over the values of all invocations, in each of them: for h = 128, ..., 1:
/// `L_i = L_i + L_{i+h}`. `scratch` has an element for each invocation.
pub fn tree256<'k>(k: &'k Build, scratch: Mem<'k>, value: V<'k>) -> V<'k> {
    reduce(k, scratch, value, |a, b| a + b)
}

/// The largest of the integers of all invocations, in each of them.
pub fn max256<'k>(k: &'k Build, scratch: Mem<'k>, value: V<'k>) -> V<'k> {
    reduce(k, scratch, value, |a, b| a.max(b))
}

/// Halves the lanes through shared memory down to a cluster, whose every lane then ends with lane 0's result.
fn reduce<'k>(k: &'k Build, scratch: Mem<'k>, value: V<'k>, join: impl Fn(V<'k>, V<'k>) -> V<'k>) -> V<'k> {
    let lane = k.local_id();
    scratch.store(lane, value);
    k.barrier();
    let mut h = ROW_LANES / 2;
    while h >= CLUSTER {
        k.when(lane.lt(k.u32(h)), || {
            scratch.store(lane, join(scratch.load(lane), scratch.load(lane + h)));
        });
        k.barrier();
        h /= 2;
    }
    let mut joined = scratch.load(lane & (CLUSTER - 1));
    while h > 0 {
        joined = join(joined, joined.shuffle_xor(CLUSTER, h));
        h /= 2;
    }
    // In lane 0 of every cluster the order is that of the tree.
    joined.broadcast(CLUSTER, 0)
}
