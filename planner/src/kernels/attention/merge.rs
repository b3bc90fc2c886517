//! The end of attention: states of groups become rows.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::fwht::{fwht_block, fwht_scales};

use super::super::a16::Place;
use super::super::elementary::{recip, snap};
use super::super::heads::MAX_HEAD_LEN;
use super::super::quantize::{Outputs, Results};
use super::super::reduce::CLUSTER;
use super::super::{GridKernel, ROW_LANES};
use super::state::State;
use super::{Attention, GROUP, Seen, States};

/// What a merge is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MergeShape {
    /// Which rows of the batch have a result.
    pub rows: MergedRows,
    /// Whether no row sees more than the first group, and there is a place for one: nothing has to be merged.
    pub one_group: bool,
}

/// Which rows of the batch the rows of the result are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MergedRows {
    /// Row r is row r.
    All,
    /// Row r is row `indices[r]`.
    Selected,
}

/// The output rows from the states of [`super::attention_decode`]: level 2 of `core::numerics::merge`, then
/// `core::numerics::attention::finish`; to f32, to A16 or to both. An invocation computes an element.
///
/// Buffers: `group_maxima`, `group_sums`, `group_outputs` (there `maxima`, `sums`, `outputs`: A16 has sums of
/// its own); `positions`, a u32 a row of the result; `indices` likewise, if rows are selected; `out`, rows of
/// `heads*head_len` f32, if asked; the regions of A16 and `flags`, a word a superblock, if asked. Parameter: `groups`, as
/// there. With one group there are no `group_maxima`, `positions` and `groups`. Reads 4 bytes an element and group, writes 4
/// and about 2; about 15 operations an element and group.
pub fn attention_merge(attention: Attention, outputs: Outputs, shape: MergeShape) -> GridKernel {
    let head_len = attention.layout.head_len;
    assert!(head_len.is_multiple_of(16) && head_len <= MAX_HEAD_LEN, "heads of {head_len}");
    let width = attention.heads * head_len;
    // A block of the transform does not leave the workgroup.
    let parts = (fwht_block(head_len as usize) as u32).div_ceil(ROW_LANES);
    let workgroups_a_row = width.div_ceil(ROW_LANES * parts);
    let kernel: Kernel = kernel("attention_merge", ROW_LANES, |k| {
        let maxima = (!shape.one_group).then(|| k.read("group_maxima", Scalar::I32));
        let (sums, outputs_of_groups) =
            (k.read("group_sums", Scalar::F32), k.read("group_outputs", Scalar::F32));
        let several = maxima.map(|maxima| {
            let (positions, groups) = (k.read("positions", Scalar::U32), k.param("groups", Scalar::U32));
            let states = States { maxima, sums, outputs: outputs_of_groups, head_len, groups };
            (positions, states)
        });
        let indices = (shape.rows == MergedRows::Selected).then(|| k.read("indices", Scalar::U32));
        let results = Results::declare(k, width, outputs);
        let scratch = k.shared("scratch", Scalar::F32, ROW_LANES);
        let (row, part, lane) =
            (k.group_id() / workgroups_a_row, k.group_id() % workgroups_a_row, k.local_id());
        let from = indices.map_or(row, |indices| indices.load(row));
        let seen =
            several.map(|(positions, states)| (Seen::new(k, positions.load(row), attention.window), states));

        // Past the row are zeros.
        let superblock = |number: u32| part * parts + number;
        let of_part = |number: u32| {
            let element = superblock(number) * ROW_LANES + lane;
            let [o] = k.choose(
                element.lt(k.u32(width)),
                || {
                    let (head, d) = (from * attention.heads + element / head_len, element % head_len);
                    let (sum, output) = match seen {
                        Some((seen, states)) => states.merged(k, seen, head, d),
                        None => (sums.load(head), outputs_of_groups.load(head * head_len + d)),
                    };
                    [snap(k, output * recip(k, sum))]
                },
                || [k.f32(0.0)],
            );
            o
        };
        let of_parts = fwht_of_lanes(k, scratch, head_len, (0..parts).map(of_part).collect());
        for (number, o) in (0..).zip(of_parts) {
            if number > 0 {
                k.barrier();
            }
            scratch.store(lane, o);
            k.barrier();
            // The first cluster has the superblock, the others one that no row has.
            let cluster = lane / CLUSTER;
            let s = cluster.eq(k.u32(0)).select(superblock(number), k.u32(workgroups_a_row * parts));
            let at = Place::new(k, row, s, width);
            let b = (at.lane >> 2) << 5;
            let values = [0, 16].map(|half| scratch.load_vector(b + ((at.lane & 3) << 2) + half, 4));
            results.store(at, values, k.constant(Scalar::Bool.into(), 1));
        }
    });
    let flags_a_row = outputs.a16.map_or(0, |form| form.superblocks());
    GridKernel::rows(kernel, workgroups_a_row).with_flags(flags_a_row)
}

impl<'k> States<'k> {
    /// L and dimension `d` of O of all groups that a row sees, of a head among those of all rows.
    fn merged(&self, k: &'k Build, seen: Seen<'k>, head: V<'k>, d: V<'k>) -> (V<'k>, V<'k>) {
        let first = seen.first_chunk() / GROUP;
        let end = (seen.end_chunk() - 1) / GROUP + 1;
        let merged = k.fold(first, end, 1, State::none(k).parts(), |group, merged| {
            let state = head * self.groups + group;
            let later = State {
                max: self.maxima.load(state),
                sum: self.sums.load(state),
                output: self.outputs.load(state * self.head_len + d),
            };
            State::from_parts(merged).merge(k, later, group.eq(first)).parts()
        });
        let State { sum, output, .. } = State::from_parts(merged);
        (sum, output)
    }
}

/// `FWHT(o)*2^-s'` of heads whose elements are on neighbouring invocations; a block of the transform never
/// leaves the workgroup. Of a block that is longer, an invocation has an element of each part of the workgroup's length.
/// `scratch` may be written again at once.
fn fwht_of_lanes<'k>(k: &'k Build, scratch: Mem<'k>, head_len: u32, parts: Vec<V<'k>>) -> Vec<V<'k>> {
    let block = fwht_block(head_len as usize) as u32;
    let lane = k.local_id();
    let in_workgroup = |mut o: V<'k>| {
        let mut h = 1;
        while h < block.min(ROW_LANES) {
            let other = if h < CLUSTER {
                o.shuffle_xor(CLUSTER, h)
            } else {
                scratch.store(lane, o);
                k.barrier();
                let other = scratch.load(lane ^ h);
                k.barrier();
                other
            };
            o = (lane & h).eq(k.u32(0)).select(o + other, other - o);
            h *= 2;
        }
        o
    };
    let mut parts: Vec<V<'k>> = parts.into_iter().map(in_workgroup).collect();
    if let [a, b] = parts[..] {
        parts = vec![a + b, a - b];
    }
    let factor = k.f32(fwht_scales(head_len as usize).1);
    parts.into_iter().map(|o| o * factor).collect()
}
