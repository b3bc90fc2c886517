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

/// Loads that are on the way at once.
const LOADS: usize = 8;

/// The invocation's lane of a [`tree256`] over a row of `width` values: `map(load(column))` of columns lane, lane + 256, ...
/// in ascending order.
pub fn lane_sum<'k>(
    k: &'k Build,
    width: u32,
    load: impl Fn(V<'k>) -> V<'k>,
    map: impl Fn(V<'k>) -> V<'k>,
) -> V<'k> {
    let lane = k.local_id();
    let whole: Vec<u32> = (0..width / ROW_LANES).map(|turn| turn * ROW_LANES).collect();
    let mut sum = k.f32(0.0);
    for turns in whole.chunks(LOADS) {
        let loaded: Vec<V<'k>> = turns.iter().map(|&turn| load(lane + turn)).collect();
        sum = loaded.into_iter().fold(sum, |sum, x| sum + map(x));
    }
    if !width.is_multiple_of(ROW_LANES) {
        // What is past the row adds +0.
        let column = lane + width / ROW_LANES * ROW_LANES;
        let last = || [map(load(column))];
        let [last] = k.choose(column.lt(k.u32(width)), last, || [k.f32(0.0)]);
        sum = sum + last;
    }
    sum
}

/// Virtual lanes of [`tree256`] that an invocation of a cluster has.
const LANES_EACH: u32 = ROW_LANES / CLUSTER;

/// `core::numerics::float::tree256` over a row of `width` values by a cluster of 32, in each of its invocations. Each has
/// virtual lanes l, l + 32, ..., so that nothing goes through shared memory.
pub fn cluster_tree256<'k>(k: &'k Build, width: u32, at: impl Fn(V<'k>) -> V<'k>) -> V<'k> {
    let lane = k.local_id() & (CLUSTER - 1);
    let (whole, rest) = (width / ROW_LANES, width % ROW_LANES);
    let mut level = vec![k.f32(0.0); LANES_EACH as usize];
    if whole > 0 {
        level = k.fold_any([k.u32(0), k.u32(whole)], 1, &level, |turn, sums| {
            let first = turn * ROW_LANES + lane;
            (0..).zip(sums).map(|(j, &sum)| sum + at(first + j * CLUSTER)).collect()
        });
    }
    for (j, sum) in (0..rest.div_ceil(CLUSTER)).zip(&mut level) {
        // What is past the row adds +0.
        let column = lane + (whole * ROW_LANES + j * CLUSTER);
        let [x] = k.choose(column.lt(k.u32(width)), || [at(column)], || [k.f32(0.0)]);
        *sum = *sum + x;
    }
    while level.len() > 1 {
        let half = level.split_off(level.len() / 2);
        level = level.into_iter().zip(half).map(|(a, b)| a + b).collect();
    }
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
