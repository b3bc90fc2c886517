//! States of groups of chunks.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};

use super::super::elementary::{not, snap};
use super::super::kv::{KEYS, Pages};
use super::super::reduce::CLUSTER;
use super::super::{Grid, GridKernel};
use super::chunk::{
    chunk_weights, number_of_word, query_scale, transpose, value_weights, where_visible, word_of_weights,
};
use super::state::State;
use super::{Attention, GROUP, Seen, States};

/// Invocations of a workgroup: a cluster for each chunk of a group.
const LANES: u32 = GROUP * CLUSTER;

/// Words of weights of a chunk and query head: two planes of 64 bytes.
const WEIGHT_WORDS: u32 = 2 * KEYS / 4;

/// Most sixteens of dimensions that a turn of the loop over them has: all of their loads are on the way at
/// once.
const UNROLLED: u32 = 8;

/// What a workgroup of [`attention_decode`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeShape {
    /// Query heads of one KV head. More share what is read of the cache, fewer spread over more workgroups;
    /// each needs `64*head_len + 2048` bytes of shared memory.
    pub heads: u32,
}

impl DecodeShape {
    /// As many heads as there are, up to eight and to what shared memory has room for, in equal parts.
    pub fn largest(attention: Attention) -> Self {
        let fits = (96 * 1024) / (64 * attention.layout.head_len + 2176);
        let heads = attention.heads_a_kv_head();
        Self { heads: heads.div_ceil(heads.div_ceil(fits.min(8))) }
    }

    /// For a launch over `states` groups of rows (the sum, over the rows, of the groups that each sees): the
    /// fewest heads with which each multiprocessor still has at most one workgroup, or else the most. On an
    /// H200 this was within 10 % of the best from 128 to 32768 positions and from 1 to 64 rows.
    pub fn spread(attention: Attention, states: u32, multiprocessors: u32) -> Self {
        let (largest, heads) = (Self::largest(attention), attention.heads_a_kv_head());
        let workgroups = |shape: &u32| states * attention.layout.heads * heads.div_ceil(*shape);
        (1..largest.heads)
            .find(|shape| workgroups(shape) <= multiprocessors)
            .map_or(largest, |heads| Self { heads })
    }
}

/// The state of each group of 16 chunks that a row sees, for each query head
/// (`core::numerics::attention::attend_chunk`, level 1 of `core::numerics::merge`); [`super::attention_merge`]
/// makes the end of them.
///
/// A launch has `rows * workgroups_a_row * groups` workgroups, `groups` a parameter: at least the groups of the
/// longest sequence. Workgroups of groups that a row does not see do nothing.
///
/// Buffers: `high`, `low`, `scales` (Q16 as [`super::super::prepare_query`] writes it); `positions`, a u32 a
/// row; `sequences`, a u32 a row, and `pages`, the page numbers of each sequence; `cache`; `maxima` (i32) and
/// `sums` (f32), `[row][head][group]`; `outputs`, f32, `[row][head][group][head_len]`. Parameters:
/// `pages_a_sequence`, `groups`. Reads the cache of a KV head once for the heads of the shape, `3*head_len + 8`
/// bytes a key; `5*head_len/4` dot products of four a key and query head, about 80 more operations.
pub fn attention_decode(attention: Attention, shape: DecodeShape) -> GridKernel {
    let layout = attention.layout;
    let head_len = layout.head_len;
    assert!(head_len.is_multiple_of(16) && head_len <= 256, "heads of {head_len}");
    let tiles = attention.heads_a_kv_head().div_ceil(shape.heads);
    let workgroups_a_row = layout.heads * tiles;
    let kernel: Kernel = kernel("attention_decode", LANES, |k| {
        // Without it, NVIDIA's assembler spills on some targets.
        k.resident(1);
        let query = QueryIn::declare(k);
        let positions = k.read("positions", Scalar::U32);
        let pages = Pages::declare(k);
        let cache = k.read("cache", Scalar::I8x4);
        let states = States::declare(k, head_len);
        let shared = Shared::declare(k, shape.heads, head_len);

        let unit = k.group_id() / states.groups;
        let group = k.group_id() % states.groups;
        let (row, part) = (unit / workgroups_a_row, unit % workgroups_a_row);
        let (kv_head, tile) = (part / tiles, part % tiles);
        let seen = Seen::new(k, positions.load(row), attention.window);
        let first_chunk = seen.first_chunk().max(group * GROUP);
        let end_chunk = seen.end_chunk().min((group + 1) * GROUP);
        k.when(first_chunk.lt(end_chunk), || {
            let chunk = group * GROUP + k.local_id() / CLUSTER;
            let is_seen = chunk.lt(end_chunk) & not(chunk.lt(first_chunk));
            // A chunk that is not seen may have no page.
            let page = pages(row).page(is_seen.select(chunk, first_chunk));
            let work = Work {
                k,
                attention,
                row,
                kv_head,
                first_of_tile: tile * shape.heads,
                heads: shape.heads,
                cache,
                block: layout.block(page, kv_head),
                is_seen,
                lane: k.local_id() & (CLUSTER - 1),
                cluster: k.local_id() / CLUSTER,
            };
            work.weights(&query, &shared, chunk, seen);
            k.barrier();
            work.values(&shared);
            k.barrier();
            work.merge(&shared, &states, group, [first_chunk, end_chunk]);
        });
    });
    GridKernel { kernel, grid: Grid::RowGroups(workgroups_a_row), flags_a_row: 0 }
}

/// Q16 of all heads.
struct QueryIn<'k> {
    high: Mem<'k>,
    low: Mem<'k>,
    scales: Mem<'k>,
}

impl<'k> QueryIn<'k> {
    fn declare(k: &'k Build) -> Self {
        Self {
            high: k.read("high", Scalar::I8x4),
            low: k.read("low", Scalar::I8x4),
            scales: k.read("scales", Scalar::F32),
        }
    }
}

impl<'k> States<'k> {
    /// Declares the buffers to write, and the parameter `groups`.
    fn declare(k: &'k Build, head_len: u32) -> Self {
        let (maxima, sums) = (k.write("maxima", Scalar::I32), k.write("sums", Scalar::F32));
        let outputs = k.write("outputs", Scalar::F32);
        Self { maxima, sums, outputs, head_len, groups: k.param("groups", Scalar::U32) }
    }
}

/// What the clusters hand to each other, for each chunk of the group and query head of the tile.
struct Shared<'k> {
    /// [`WEIGHT_WORDS`] words.
    weights: Mem<'k>,
    steps: Mem<'k>,
    maxima: Mem<'k>,
    sums: Mem<'k>,
    /// `head_len` values of o.
    outputs: Mem<'k>,
}

impl<'k> Shared<'k> {
    fn declare(k: &'k Build, heads: u32, head_len: u32) -> Self {
        let states = GROUP * heads;
        Self {
            weights: k.shared("weights", Scalar::I8x4, states * WEIGHT_WORDS),
            steps: k.shared("steps", Scalar::F32, states),
            maxima: k.shared("chunk_maxima", Scalar::I32, states),
            sums: k.shared("chunk_sums", Scalar::F32, states),
            outputs: k.shared("chunk_outputs", Scalar::F32, states * head_len),
        }
    }
}

/// A workgroup's group of chunks, and an invocation's chunk in it.
#[derive(Clone, Copy)]
struct Work<'k> {
    k: &'k Build,
    attention: Attention,
    row: V<'k>,
    kv_head: V<'k>,
    /// The tile's first query head of those of the KV head.
    first_of_tile: V<'k>,
    /// Query heads of the tile.
    heads: u32,
    cache: Mem<'k>,
    /// First word of the chunk's block.
    block: V<'k>,
    /// Whether the row sees the chunk.
    is_seen: V<'k>,
    lane: V<'k>,
    cluster: V<'k>,
}

impl<'k> Work<'k> {
    /// Query head `i` of the tile among all of the row, and whether there is one; else it repeats the last.
    fn head(&self, i: V<'k>) -> (V<'k>, V<'k>) {
        let of_kv_head = self.attention.heads_a_kv_head();
        let number = self.first_of_tile + i;
        let exists = number.lt(self.k.u32(of_kv_head));
        let number = number.min(self.k.u32(of_kv_head - 1));
        (self.row * self.attention.heads + self.kv_head * of_kv_head + number, exists)
    }

    /// Scores and weights of the chunk for each head, into shared memory.
    fn weights(&self, query: &QueryIn<'k>, shared: &Shared<'k>, chunk: V<'k>, seen: Seen<'k>) {
        let (k, layout) = (self.k, self.attention.layout);
        let position = chunk * KEYS + self.lane;
        let visible = [0, CLUSTER].map(|apart| seen.holds(position + apart) & self.is_seen);
        let visible = k.vector(visible);
        let scales = |first: u32| {
            let at = self.block + self.lane + first;
            let bits = [0, CLUSTER].map(|apart| self.cache.load(at + apart).cast(Scalar::I32));
            // What lies at keys that are not visible is no float.
            where_visible(visible, k.vector(bits)).cast(Scalar::F32)
        };
        let (key_scales, value_scales) = (scales(layout.key_scales()), scales(layout.value_scales()));
        for (i, scores) in (0..).zip(self.scores(query)) {
            let (head, _) = self.head(k.u32(i));
            let scale = query_scale(k, query.scales.load(head), self.attention.kappa);
            let weights = chunk_weights(k, self.attention, scores, key_scales, scale, visible);
            let of_values = value_weights(k, &weights, value_scales);
            let word = word_of_weights(k, &of_values);
            let state = self.cluster * self.heads + i;
            shared.weights.store(state * WEIGHT_WORDS + number_of_word(k), word);
            k.when(self.lane.eq(k.u32(0)), || {
                shared.steps.store(state, of_values.step);
                shared.maxima.store(state, weights.max);
                shared.sums.store(state, weights.sum);
            });
        }
    }

    /// `S = 128*HH + (HL + LH)` of the invocation's two keys, for each head
    /// (`core::numerics::attention::score_dot`).
    fn scores(&self, query: &QueryIn<'k>) -> Vec<V<'k>> {
        let (k, layout) = (self.k, self.attention.layout);
        let blocks = layout.head_len / 16;
        let step = (1..=UNROLLED).rev().find(|step| blocks.is_multiple_of(*step)).unwrap_or(1);
        // HH and HL + LH of both keys, for each head; nothing is read of a chunk that is not seen.
        let zeros = vec![k.vector([k.i32(0); 4]); self.heads as usize];
        let end = self.is_seen.select(k.u32(blocks), k.u32(0));
        let sums = k.fold_any([k.u32(0), end], step, &zeros, |first, sums| {
            let mut sums: Vec<[V<'k>; 4]> =
                sums.iter().map(|sums| [0, 1, 2, 3].map(|i| sums.part(i))).collect();
            for block in 0..step {
                self.add_dots(query, first + block, &mut sums);
            }
            sums.into_iter().map(|sums| k.vector(sums)).collect()
        });
        let score = |sums: V<'k>| k.vector([0, 1].map(|key| (sums.part(key) << 7) + sums.part(2 + key)));
        sums.into_iter().map(score).collect()
    }

    /// Adds the dot products of dimensions `16e..` of both keys and each head.
    fn add_dots(&self, query: &QueryIn<'k>, e: V<'k>, sums: &mut [[V<'k>; 4]]) {
        let (k, layout) = (self.k, self.attention.layout);
        let at = self.block + (self.lane << 2) + e * (4 * KEYS);
        let keys = [0, CLUSTER].map(|apart| {
            [0, layout.key_low()].map(|plane| self.cache.load_vector(at + (4 * apart + plane), 4))
        });
        for (i, sums) in (0..).zip(sums) {
            let word = self.head(k.u32(i)).0 * (layout.head_len / 4) + (e << 2);
            let (high, low) = (query.high.load_vector(word, 4), query.low.load_vector(word, 4));
            for t in 0..4 {
                let (qh, ql) = (high.part(t), low.part(t));
                for (key, [kh, kl]) in keys.iter().enumerate() {
                    let (kh, kl) = (kh.part(t), kl.part(t));
                    sums[key] = k.dot4(qh, kh, sums[key]);
                    sums[2 + key] = k.dot4(ql, kh, k.dot4(qh, kl, sums[2 + key]));
                }
            }
        }
    }

    /// o of the chunk for each head, into shared memory: exact sums over its keys
    /// (`core::numerics::attention::weighted_values`).
    fn values(&self, shared: &Shared<'k>) {
        let (k, layout) = (self.k, self.attention.layout);
        let words = layout.head_len / 4;
        let first_state = self.cluster * self.heads;
        for first in (0..words).step_by(CLUSTER as usize) {
            let e = self.lane + first;
            k.when(self.is_seen & e.lt(k.u32(words)), || {
                let mut sums = vec![[[k.i32(0); 4]; 2]; self.heads as usize];
                for quarter in 0..4 {
                    let keys: Vec<[V<'k>; 4]> = (4 * quarter..4 * quarter + 4)
                        .map(|q| {
                            let at = self.block + (e << 2) + (layout.values() + 4 * q * words);
                            transpose(self.cache.load_vector(at, 4))
                        })
                        .collect();
                    for (i, sums) in (0..).zip(&mut sums) {
                        for (plane, sums) in (0..).zip(sums) {
                            let at = (first_state + i) * WEIGHT_WORDS + (16 * plane + 4 * quarter);
                            let weights = shared.weights.load_vector(at, 4);
                            for (q, keys) in (0..).zip(&keys) {
                                for (sum, dimension) in sums.iter_mut().zip(keys) {
                                    *sum = k.dot4(*dimension, weights.part(q), *sum);
                                }
                            }
                        }
                    }
                }
                for (i, [high, low]) in (0..).zip(sums) {
                    let state = first_state + i;
                    let sum = (k.vector(high) << 7) + k.vector(low);
                    let o = sum.to_f32() * k.vector([shared.steps.load(state); 4]);
                    shared.outputs.store(state * layout.head_len + (e << 2), o);
                }
            });
        }
    }

    /// Level 1: the chunks that are seen merge in ascending order, a dimension of a head to an invocation.
    fn merge(&self, shared: &Shared<'k>, states: &States<'k>, group: V<'k>, chunks: [V<'k>; 2]) {
        let k = self.k;
        let head_len = states.head_len;
        let [first, end] = chunks.map(|chunk| chunk - group * GROUP);
        let all = self.heads * head_len;
        k.each(k.local_id(), k.u32(all), LANES, |pair| {
            let (i, d) = (pair / head_len, pair % head_len);
            let (head, exists) = self.head(i);
            let merged = k.fold(first, end, 1, State::none(k).parts(), |chunk, merged| {
                let state = chunk * self.heads + i;
                let later = State {
                    max: shared.maxima.load(state),
                    sum: shared.sums.load(state),
                    output: shared.outputs.load(state * head_len + d),
                };
                State::from_parts(merged).merge(k, later, chunk.eq(first)).parts()
            });
            let merged = State::from_parts(merged);
            let at = head * states.groups + group;
            k.when(exists, || states.outputs.store(at * head_len + d, snap(k, merged.output)));
            k.when(exists & d.eq(k.u32(0)), || {
                states.maxima.store(at, merged.max);
                states.sums.store(at, merged.sum);
            });
        });
    }
}
