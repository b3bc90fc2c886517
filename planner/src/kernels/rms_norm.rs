//! RMSNorm of rows.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::float::reciprocal_of_len;
use unisonic_core::numerics::range::SQUARES_LIMIT;

use super::a16::{Place, SUPERBLOCK, four};
use super::elementary::{is_below, rsqrt, snap};
use super::quantize::{Outputs, Results};
use super::reduce::{CLUSTER, tree256};
use super::{GridKernel, ROW_LANES};

/// What an RMSNorm does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Values of a row.
    pub width: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether the normed row is added to another: `out = add + norm(x)`.
    pub add: bool,
    /// Where the result goes.
    pub outputs: Outputs,
}

/// `y = snap((x*r)*w)`, `r = rsqrt(tree256(snap(x*x))*f32(1/width) + eps)`, one workgroup a row
/// (`core::numerics::norm::rms_norm`), then `add + y` if asked; to f32, to A16 or to both.
///
/// Buffers: `x`, rows of `width` f32; `weight`, one row; `add`, rows, if asked; `out`, rows, if asked; the
/// regions of A16, if asked; `flags`. Flags are a word a superblock with A16, else a word a row: 1 where the
/// row's y is +0, being out of range, or the superblock is. Reads x twice (once from a cache), the
/// weight once, and writes 4 bytes an element and about 2: about 25 operations.
pub fn rms_norm(norm: RmsNorm) -> GridKernel {
    let kernel: Kernel = kernel("rms_norm", ROW_LANES, |k| write(k, norm));
    let flags_a_row = norm.outputs.a16.map_or(1, |form| form.superblocks());
    GridKernel::rows(kernel, 1).with_flags(flags_a_row)
}

fn write<'k>(k: &'k Build, RmsNorm { width, eps, add, outputs }: RmsNorm) {
    let (x, weight) = (k.read("x", Scalar::F32), k.read("weight", Scalar::F32));
    let add = add.then(|| k.read("add", Scalar::F32));
    let results = Results::declare(k, width, outputs);
    let row_flags = outputs.a16.is_none().then(|| k.write("flags", Scalar::U32));
    let scratch = k.shared("scratch", Scalar::F32, ROW_LANES);
    let (row, lane) = (k.group_id(), k.local_id());
    let input = Input { k, width, first: row * width };

    let superblocks = width.div_ceil(SUPERBLOCK);
    let place = |s: V<'k>| Place::new(k, row, s + lane / CLUSTER, width);
    let load_weight = |at: Place<'k>| input.weights(weight, at);
    let load_row = |at: Place<'k>| (input.row(x, at), add.map(|add| input.row(add, at)));
    // What is read for the result is under way while the sum is made, if registers hold it; the weight, which no launch
    // writes, even before the launches are waited for that make the row.
    let turns: Vec<V<'k>> =
        (0..superblocks).step_by((ROW_LANES / CLUSTER) as usize).map(|s| k.u32(s)).collect();
    let early = (turns.len() <= MOST_EARLY_TURNS).then(|| {
        let places: Vec<Place<'k>> = turns.iter().map(|&s| place(s)).collect();
        let weights: Vec<_> = places.iter().map(|&at| load_weight(at)).collect();
        k.wait_launches();
        let rows: Vec<_> = places.iter().map(|&at| load_row(at)).collect();
        places.into_iter().zip(weights).zip(rows)
    });

    let squares = tree256(k, scratch, sum_of_lane(k, x, input.first, width));
    let in_range = is_below(k, squares, SQUARES_LIMIT);
    let r = rsqrt(k, squares * k.f32(reciprocal_of_len(width as usize)) + k.f32(eps));
    let (r, zero) = (k.vector([r; 4]), k.vector([k.f32(0.0); 4]));
    let keeps = k.vector([in_range; 4]);
    let store = |at: Place<'k>, weights: [V<'k>; 2], (x, add): ([V<'k>; 2], Option<[V<'k>; 2]>)| {
        let values = [0, 1].map(|half| {
            let y = keeps.select(snap(k, (x[half] * r) * weights[half]), zero);
            add.map_or(y, |add| add[half] + y)
        });
        results.store(at, values, in_range);
    };
    match early {
        Some(early) => early.for_each(|((at, weights), row)| store(at, weights, row)),
        None => k.each(k.u32(0), k.u32(superblocks), ROW_LANES / CLUSTER, |s| {
            let at = place(s);
            store(at, load_weight(at), load_row(at));
        }),
    }
    if let Some(flags) = row_flags {
        k.when(lane.eq(k.u32(0)), || flags.store(row, in_range.select(k.u32(0), k.u32(1))));
    }
}

/// Turns over a row whose loads are under way before the norm is known.
const MOST_EARLY_TURNS: usize = 2;

/// Where a row is read.
struct Input<'k> {
    k: &'k Build,
    width: u32,
    /// Its first element.
    first: V<'k>,
}

impl<'k> Input<'k> {
    /// The invocation's weights for a superblock.
    fn weights(&self, from: Mem<'k>, at: Place<'k>) -> [V<'k>; 2] {
        at.columns()
            .map(|column| four(self.k, self.width, column, |column, len| from.load_vector(column, len)))
    }

    /// The invocation's elements of a superblock.
    fn row(&self, from: Mem<'k>, at: Place<'k>) -> [V<'k>; 2] {
        at.columns().map(|column| {
            four(self.k, self.width, column, |column, len| from.load_vector(self.first + column, len))
        })
    }
}

/// Loads that are on the way at once.
const LOADS: usize = 8;

/// The invocation's lane of the sum of squares: `snap(x*x)` of elements lane, lane + 256, ... in ascending
/// order.
fn sum_of_lane<'k>(k: &'k Build, x: Mem<'k>, first: V<'k>, width: u32) -> V<'k> {
    let lane = k.local_id();
    let turns: Vec<u32> = (0..width).step_by(ROW_LANES as usize).collect();
    let mut sum = k.f32(0.0);
    for turns in turns.chunks(LOADS) {
        let loaded: Vec<V<'k>> = turns
            .iter()
            .map(|&turn| {
                let column = lane + turn;
                if turn + ROW_LANES <= width {
                    return x.load(first + column);
                }
                // What is past the row adds +0.
                let [x] = k.choose(column.lt(k.u32(width)), || [x.load(first + column)], || [k.f32(0.0)]);
                x
            })
            .collect();
        sum = loaded.into_iter().fold(sum, |sum, x| sum + snap(k, x * x));
    }
    sum
}
