//! Reductions over a workgroup of [`super::ROW_LANES`] invocations, and over a cluster of 32.

use unisonic_core::kir::build::{Build, Mem, V};

use super::ROW_LANES;

/// Lanes that exchange values without shared memory.
pub const CLUSTER: u32 = 32;

/// Clusters of a workgroup.
const CLUSTERS: u32 = ROW_LANES / CLUSTER;

/// `core::numerics::float::tree` over the values of all invocations, in each of them: for h = 128, ..., 1: `L_i
/// = L_i + L_{i+h}`. `scratch` has an element for each invocation; nobody may touch it again before a barrier.
pub fn tree256<'k>(k: &'k Build, scratch: Mem<'k>, value: V<'k>) -> V<'k> {
    let lane = k.local_id();
    scratch.store(lane, value);
    k.barrier();
    // Every cluster sums all of the workgroup: cheaper than a barrier for each level.
    let first = lane & (CLUSTER - 1);
    let mut level: Vec<V<'k>> = (0..CLUSTERS).map(|j| scratch.load(first + j * CLUSTER)).collect();
    while level.len() > 1 {
        let half = level.split_off(level.len() / 2);
        level = level.into_iter().zip(half).map(|(a, b)| a + b).collect();
    }
    // In lane 0 of every cluster the order is that of the tree; sums of two are the same either way round, so in all lanes.
    level[0].cluster_sum(CLUSTER)
}

/// The largest of the integers of a cluster, in every lane.
pub fn cluster_max(value: V<'_>, width: u32) -> V<'_> {
    let mut largest = value;
    let mut h = width / 2;
    while h > 0 {
        largest = largest.max(largest.shuffle_xor(width, h));
        h /= 2;
    }
    largest
}
