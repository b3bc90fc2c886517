//! What of the flags of range contracts the host has to see.

use unisonic_core::kir::build::kernel;
use unisonic_core::kir::{Kernel, Scalar};

use super::reduce::{CLUSTER, cluster_max};
use super::{Grid, GridKernel, ROW_LANES};

/// Segments of a workgroup.
const CLUSTERS: u32 = ROW_LANES / CLUSTER;

/// `found[segment][row]`: the largest of the flags of a row in a segment, 0 where the segment's step has no such row. The
/// kernel is the same for any number of them.
///
/// Buffers: `flags`, u32; `table`, four u32 a segment: its first word of row 0 in `flags`, words from row to row, words, and 1
/// if only output rows have it, else 0; `found`, u32. Parameters: `segments`, `rows`, `outputs`. A cluster has a segment of a row. Reads 4 bytes a flag.
pub fn found_flags(segments: u32, rows: u32) -> GridKernel {
    let kernel: Kernel = kernel("found_flags", ROW_LANES, |k| {
        let (flags, table) = (k.read("flags", Scalar::U32), k.read("table", Scalar::U32));
        let found = k.write("found", Scalar::U32);
        let [segments, rows, outputs] =
            ["segments", "rows", "outputs"].map(|name| k.param(name, Scalar::U32));
        let number = k.group_id() * CLUSTERS + k.local_id() / CLUSTER;
        let lane = k.local_id() & (CLUSTER - 1);
        let exists = number.lt(segments * rows);
        let segment = exists.select(number / rows, k.u32(0));
        let row = number % rows;
        let [first, stride, len, of_outputs] = [0, 1, 2, 3].map(|i| table.load(segment * 4 + i));
        let first = first + row * stride;
        let rows_of_step = of_outputs.eq(k.u32(0)).select(rows, outputs);
        let has_flags = exists & row.lt(rows_of_step);
        let end = has_flags.select(len, k.u32(0));
        let largest =
            k.fold(lane, end, CLUSTER, [k.u32(0)], |at, [largest]| [largest.max(flags.load(first + at))]);
        let largest = cluster_max(largest[0], CLUSTER);
        k.when(exists & lane.eq(k.u32(0)), || found.store(number, largest));
    });
    GridKernel { kernel, grid: Grid::Fixed((segments * rows).div_ceil(CLUSTERS)), flags_a_row: 0 }
}
