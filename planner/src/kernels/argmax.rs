//! The most likely token of a row of logits, and what makes it the next one.

use unisonic_core::kir::build::{Build, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};

use super::elementary::ord;
use super::reduce::{CLUSTER, cluster_max};
use super::{GridKernel, ROW_LANES};

/// Logits of a part: what a workgroup of [`argmax_parts`] reads.
pub const PART_LEN: u32 = 16 * ROW_LANES;

/// An ordered integer and the id that has it.
type Best<'k> = [V<'k>; 2];

/// The better of two: the larger, of equals the one with the lower id.
fn better<'k>([a, a_id]: Best<'k>, [b, b_id]: Best<'k>) -> Best<'k> {
    let takes_b = a.lt(b) | (a.eq(b) & b_id.lt(a_id));
    [takes_b.select(b, a), takes_b.select(b_id, a_id)]
}

/// The best of a cluster, in every lane.
fn best_of_cluster(mut best: Best<'_>, width: u32) -> Best<'_> {
    let mut h = width / 2;
    while h > 0 {
        best = better(best, best.map(|x| x.shuffle_xor(width, h)));
        h /= 2;
    }
    best
}

/// The best of a workgroup, in every invocation.
fn best_of_group<'k>(k: &'k Build, best: Best<'k>) -> Best<'k> {
    let clusters = ROW_LANES / CLUSTER;
    let orders = k.shared("orders", Scalar::I32, clusters);
    let ids = k.shared("ids", Scalar::U32, clusters);
    let lane = k.local_id();
    let [order, id] = best_of_cluster(best, CLUSTER);
    k.when((lane & (CLUSTER - 1)).eq(k.u32(0)), || {
        orders.store(lane / CLUSTER, order);
        ids.store(lane / CLUSTER, id);
    });
    k.barrier();
    let one = lane & (clusters - 1);
    best_of_cluster([orders.load(one), ids.load(one)], clusters)
}

/// Worse than every logit.
fn worst(k: &Build) -> Best<'_> {
    [k.i32(i32::MIN), k.u32(u32::MAX)]
}

/// The best of each part of a row of logits, for [`argmax_join`]. Buffers: `logits`, rows of `width` f32;
/// `orders` (i32, the ordered integer) and `ids` (u32), one of each workgroup. Reads 4 bytes a
/// logit, which is all that counts.
pub fn argmax_parts(width: u32) -> GridKernel {
    let workgroups_a_row = width.div_ceil(PART_LEN);
    let kernel = kernel("argmax_parts", ROW_LANES, |k| {
        let logits = k.read("logits", Scalar::F32);
        let (out_orders, out_ids) = (k.write("out_orders", Scalar::I32), k.write("out_ids", Scalar::U32));
        let (group, lane) = (k.group_id(), k.local_id());
        let (row, part) = (group / workgroups_a_row, group % workgroups_a_row);
        let first = part * PART_LEN;
        let end = (first + PART_LEN).min(k.u32(width));
        let best = k.fold(first + lane, end, ROW_LANES, worst(k), |id, best| {
            better(best, [ord(logits.load(row * width + id)), id])
        });
        let [order, id] = best_of_group(k, best);
        k.when(lane.eq(k.u32(0)), || {
            out_orders.store(group, order);
            out_ids.store(group, id);
        });
    });
    GridKernel::rows(kernel, workgroups_a_row)
}

/// The id with the largest logit, the lowest of equals (`core::numerics::sampling::most_likely`), from what [`argmax_parts`]
/// of the same width found; and the inputs of a run in which it comes next.
///
/// Buffers of u32, with an element an output row where nothing else is said: `part_orders`, `part_ids`; `found`,
/// `[segment][row]`, as [`super::found_flags`] left it, with row `i` for output row `i`; `runs`, how many runs there
/// have been with these inputs; `positions` and `output_positions`, and of both one more is left; `tokens` and `output_tokens`,
/// the id; `picked` and `broken`, `[run][output row]`: the id, and the largest flag of the row. Parameters: `segments`,
/// `rows`, `outputs`.
///
/// A workgroup has an output row; it reads a few words a part and a segment.
pub fn argmax_join(width: u32) -> GridKernel {
    let parts = width.div_ceil(PART_LEN);
    let kernel: Kernel = kernel("argmax_join", ROW_LANES, |k| {
        let (part_orders, part_ids) = (k.read("part_orders", Scalar::I32), k.read("part_ids", Scalar::U32));
        let found = k.read("found", Scalar::U32);
        let [runs, positions, output_positions] =
            ["runs", "positions", "output_positions"].map(|name| k.read_write(name, Scalar::U32));
        let [tokens, output_tokens, picked, broken] =
            ["tokens", "output_tokens", "picked", "broken"].map(|name| k.write(name, Scalar::U32));
        let [segments, rows, outputs] =
            ["segments", "rows", "outputs"].map(|name| k.param(name, Scalar::U32));
        let (row, lane) = (k.group_id(), k.local_id());
        let first = row * parts;
        let best = k.fold(lane, k.u32(parts), ROW_LANES, worst(k), |part, best| {
            better(best, [part_orders.load(first + part), part_ids.load(first + part)])
        });
        let [_, id] = best_of_group(k, best);
        // Every cluster looks through all flags: a shuffle in one alone would not be uniform.
        let [flag] = k.fold(lane & (CLUSTER - 1), segments, CLUSTER, [k.u32(0)], |segment, [largest]| {
            [largest.max(found.load(segment * rows + row))]
        });
        let flag = cluster_max(flag, CLUSTER);
        k.when(lane.eq(k.u32(0)), || {
            let run = runs.load(row);
            picked.store(run * outputs + row, id);
            broken.store(run * outputs + row, flag);
            runs.store(row, run + 1);
            for (ids, places) in [(tokens, positions), (output_tokens, output_positions)] {
                ids.store(row, id);
                places.store(row, places.load(row) + 1);
            }
        });
    });
    GridKernel::rows(kernel, 1)
}
