//! States of groups of chunks.

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::launch::Hardware;

use super::super::elementary::{not, snap};
use super::super::fit::Room;
use super::super::heads::MAX_HEAD_LEN;
use super::super::kv::{KEYS, PageTable};
use super::super::reduce::CLUSTER;
use super::super::{Grid, GridKernel};
use super::chunk::{
    chunk_weights, number_of_word, query_scale, transpose, value_weights, where_visible, word_of_weights,
};
use super::state::State;
use super::{Attention, GROUP, Seen, States};

/// Words of weights of a chunk and query head: two planes of 64 bytes.
const WEIGHT_WORDS: u32 = 2 * KEYS / 4;

/// Most sixteens of dimensions that a turn of the loop over them has: all of their loads are on the way at
/// once.
const UNROLLED: u32 = 8;

/// Shared memory that is used of what there is.
const MOST_SHARED_LEN_BYTES: u32 = 96 * 1024;

/// What a workgroup of [`attention_decode`] has: what may be chosen freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeShape {
    /// Clusters of 32 invocations: 16, or a smaller power of two, so that each does several chunks one after the other.
    pub clusters: u32,
    /// Query heads of one KV head. More share what is read of the cache, fewer spread over more workgroups;
    /// each needs `4*head_len + 140` bytes of shared memory a cluster.
    pub heads: u32,
}

impl DecodeShape {
    /// As many clusters as there is room for, and of the heads that have room, up to eight, in equal parts: the fewest with
    /// which each multiprocessor still has at most one workgroup, or else the most. `states` are groups of rows (the sum, over
    /// the rows, of the groups that each sees). On an H200 the heads were within 10 % of the best from 128 to 32768
    /// positions and from 1 to 64 rows.
    pub fn new(attention: Attention, states: u32, hardware: &Hardware) -> Self {
        let shared_len_bytes = hardware.shared_len_bytes.min(MOST_SHARED_LEN_BYTES);
        let hardware = &Hardware { shared_len_bytes, ..*hardware };
        let fits = |shape: &Self| shape.room(attention.layout.head_len).fits(hardware);
        let one = [16, 8, 4, 2].map(|clusters| Self { clusters, heads: 1 }).into_iter().find(fits);
        let clusters = one.map_or(1, |shape| shape.clusters);
        let room_for = (1..=8).rev().find(|&heads| fits(&Self { clusters, heads })).unwrap_or(1);
        let of_kv_head = attention.heads_a_kv_head();
        let most = of_kv_head.div_ceil(of_kv_head.div_ceil(room_for));
        let is_spread = |&heads: &u32| {
            let of_row = attention.layout.heads * of_kv_head.div_ceil(heads);
            u64::from(states) * u64::from(of_row) <= u64::from(hardware.multiprocessors)
        };
        Self { clusters, heads: (1..most).find(is_spread).unwrap_or(most) }
    }

    fn lanes(self) -> u32 {
        self.clusters * CLUSTER
    }

    /// Turns in which the clusters go through a group.
    fn turns(self) -> u32 {
        GROUP / self.clusters
    }

    fn room(self, head_len: u32) -> Room {
        // Of the three arrays of a word, each begins at a multiple of 16 bytes.
        let shared_len_bytes = 4 * self.clusters * self.heads * (WEIGHT_WORDS + 3 + head_len) + 3 * 12;
        Room { workgroup: self.lanes(), shared_len_bytes, exchanged: 1 }
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
    assert!(head_len.is_multiple_of(16) && head_len <= MAX_HEAD_LEN, "heads of {head_len}");
    assert!(GROUP.is_multiple_of(shape.clusters), "{shape:?} does a group in equal turns");
    let tiles = attention.heads_a_kv_head().div_ceil(shape.heads);
    let workgroups_a_row = layout.heads * tiles;
    let kernel: Kernel = kernel("attention_decode", shape.lanes(), |k| {
        // Without it, NVIDIA's assembler spills on some targets.
        k.resident(1);
        let query = QueryIn::declare(k);
        let positions = k.read("positions", Scalar::U32);
        let pages = PageTable::declare(k);
        let cache = k.read("cache", Scalar::I8x4);
        let states = States::declare(k, head_len);
        let shared = Shared::declare(k, shape, head_len);

        let unit = k.group_id() / states.groups;
        let group = k.group_id() % states.groups;
        let (row, part) = (unit / workgroups_a_row, unit % workgroups_a_row);
        let (kv_head, tile) = (part / tiles, part % tiles);
        let seen = Seen::new(k, positions.load(row), attention.window);
        let first_chunk = seen.first_chunk().max(group * GROUP);
        let end_chunk = seen.end_chunk().min((group + 1) * GROUP);
        k.when(first_chunk.lt(end_chunk), || {
            let chunks = [first_chunk, end_chunk];
            let place = Place { row, kv_head, tile, group, chunks, seen };
            let group = Group { k, attention, shape, place, pages, query, cache, shared };
            match shape.turns() {
                1 => group.at_once(&states),
                _ => group.in_turns(&states),
            }
        });
    });
    GridKernel { kernel, grid: Grid::RowGroups(workgroups_a_row), flags_a_row: 0 }
}

/// Q16 of all heads.
#[derive(Clone, Copy)]
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

/// What the clusters hand to each other, for each cluster (slot) and query head of the tile.
#[derive(Clone, Copy)]
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
    fn declare(k: &'k Build, shape: DecodeShape, head_len: u32) -> Self {
        let states = shape.clusters * shape.heads;
        Self {
            weights: k.shared("weights", Scalar::I8x4, states * WEIGHT_WORDS),
            steps: k.shared("steps", Scalar::F32, states),
            maxima: k.shared("chunk_maxima", Scalar::I32, states),
            sums: k.shared("chunk_sums", Scalar::F32, states),
            outputs: k.shared("chunk_outputs", Scalar::F32, states * head_len),
        }
    }
}

/// Where a workgroup is.
#[derive(Clone, Copy)]
struct Place<'k> {
    row: V<'k>,
    kv_head: V<'k>,
    /// Part of the query heads of the KV head.
    tile: V<'k>,
    /// The group of chunks.
    group: V<'k>,
    /// Its first chunk that the row sees, and the one after the last.
    chunks: [V<'k>; 2],
    /// What the row sees.
    seen: Seen<'k>,
}

/// A workgroup with its group of chunks.
#[derive(Clone, Copy)]
struct Group<'k> {
    k: &'k Build,
    attention: Attention,
    shape: DecodeShape,
    place: Place<'k>,
    pages: PageTable<'k>,
    query: QueryIn<'k>,
    cache: Mem<'k>,
    shared: Shared<'k>,
}

impl<'k> Group<'k> {
    /// Its first chunk.
    fn first(&self) -> V<'k> {
        self.place.group * GROUP
    }

    /// The tile's first query head of those of the KV head.
    fn first_of_tile(&self) -> V<'k> {
        self.place.tile * self.shape.heads
    }

    /// Query head `i` from `first_of_tile` on among all of the row, and whether there is one; else it repeats the last.
    fn head(&self, first_of_tile: V<'k>, i: V<'k>) -> (V<'k>, V<'k>) {
        let of_kv_head = self.attention.heads_a_kv_head();
        let number = first_of_tile + i;
        let exists = number.lt(self.k.u32(of_kv_head));
        let number = number.min(self.k.u32(of_kv_head - 1));
        (self.place.row * self.attention.heads + self.place.kv_head * of_kv_head + number, exists)
    }

    /// States of the chunks from `first` on, one a cluster, into shared memory; the tile's first query head.
    fn chunks(&self, first: V<'k>) -> V<'k> {
        let (k, [first_seen, end_seen]) = (self.k, self.place.chunks);
        let number = first + k.local_id() / CLUSTER;
        let is_seen = number.lt(end_seen) & not(number.lt(first_seen));
        // A chunk that is not seen may have no page.
        let page = self.pages.of(self.place.row).page(is_seen.select(number, first_seen));
        let chunk = Chunk {
            group: *self,
            number,
            first_of_tile: self.first_of_tile(),
            block: self.attention.layout.block(page, self.place.kv_head),
            is_seen,
            lane: k.local_id() & (CLUSTER - 1),
            cluster: k.local_id() / CLUSTER,
        };
        chunk.weights();
        k.barrier();
        chunk.values();
        k.barrier();
        chunk.first_of_tile
    }

    /// With a cluster for each chunk.
    fn at_once(&self, states: &States<'k>) {
        let k = self.k;
        let first_of_tile = self.chunks(self.first());
        let slots = self.place.chunks.map(|chunk| chunk - self.first());
        k.each(k.local_id(), k.u32(self.outputs()), self.shape.lanes(), |number| {
            let output = self.output(first_of_tile, number);
            let merged = self.merged(State::none(k), output, slots, slots[0]);
            self.store(states, output, merged);
        });
    }

    /// With fewer clusters: what they have of some chunks merges before they go on to the next.
    fn in_turns(&self, states: &States<'k>) {
        let (k, clusters, lanes) = (self.k, self.shape.clusters, self.shape.lanes());
        let [first_seen, end_seen] = self.place.chunks;
        let turns = [(first_seen - self.first()) / clusters, (end_seen - 1 - self.first()) / clusters + 1];
        // Past the last output is the last once more.
        let last = k.u32(self.outputs() - 1);
        let numbers = (0..self.outputs()).step_by(lanes as usize).map(|at| k.local_id() + at);
        let numbers: Vec<V<'k>> = numbers.collect();
        let outputs = numbers.iter().map(|number| self.output(self.first_of_tile(), number.min(last)));
        let outputs: Vec<Output<'k>> = outputs.collect();
        let none = State::none(k).parts().repeat(outputs.len());
        let merged = k.fold_any(turns, 1, &none, |turn, merged| {
            let first = self.first() + turn * clusters;
            self.chunks(first);
            let slots = [first_seen.max(first) - first, end_seen.min(first + clusters) - first];
            // After the turn of the first chunk no slot has its number.
            let of_first = first_seen - first;
            let merge = |(&output, &state): (&Output<'k>, &[V<'k>; 3])| {
                self.merged(State::from_parts(state), output, slots, of_first).parts()
            };
            let merged = outputs.iter().zip(merged.as_chunks().0).flat_map(merge).collect();
            k.barrier();
            merged
        });
        for ((number, &output), &state) in numbers.iter().zip(&outputs).zip(merged.as_chunks().0) {
            let exists = not(last.lt(*number));
            k.when(exists, || self.store(states, output, State::from_parts(state)));
        }
    }

    /// Outputs of the workgroup: dimensions of the tile's heads.
    fn outputs(&self) -> u32 {
        self.shape.heads * self.attention.layout.head_len
    }

    fn output(&self, first_of_tile: V<'k>, number: V<'k>) -> Output<'k> {
        let head_len = self.attention.layout.head_len;
        let (i, d) = (number / head_len, number % head_len);
        let (head, exists) = self.head(first_of_tile, i);
        Output { i, d, head, exists }
    }

    /// Level 1: the states in slots `start..end` merge in ascending order into one; `first` is the slot of the group's
    /// first chunk.
    fn merged(
        &self,
        state: State<'k>,
        Output { i, d, .. }: Output<'k>,
        [start, end]: [V<'k>; 2],
        first: V<'k>,
    ) -> State<'k> {
        let (k, shared) = (self.k, &self.shared);
        let merged = k.fold(start, end, 1, state.parts(), |slot, merged| {
            let state = slot * self.shape.heads + i;
            let later = State {
                max: shared.maxima.load(state),
                sum: shared.sums.load(state),
                output: shared.outputs.load(state * self.attention.layout.head_len + d),
            };
            State::from_parts(merged).merge(k, later, slot.eq(first)).parts()
        });
        State::from_parts(merged)
    }

    fn store(&self, states: &States<'k>, Output { d, head, exists, .. }: Output<'k>, merged: State<'k>) {
        let k = self.k;
        let at = head * states.groups + self.place.group;
        k.when(exists, || states.outputs.store(at * states.head_len + d, snap(k, merged.output)));
        k.when(exists & d.eq(k.u32(0)), || {
            states.maxima.store(at, merged.max);
            states.sums.store(at, merged.sum);
        });
    }
}

/// A dimension of a head: what an invocation merges.
#[derive(Clone, Copy)]
struct Output<'k> {
    /// Head of the tile.
    i: V<'k>,
    /// Dimension.
    d: V<'k>,
    /// Head among those of all rows.
    head: V<'k>,
    /// Whether there is such a head.
    exists: V<'k>,
}

/// A cluster with its chunk.
struct Chunk<'k> {
    group: Group<'k>,
    number: V<'k>,
    /// [`Group::first_of_tile`].
    first_of_tile: V<'k>,
    /// First word of its block in the cache.
    block: V<'k>,
    /// Whether the row sees it.
    is_seen: V<'k>,
    lane: V<'k>,
    cluster: V<'k>,
}

impl<'k> Chunk<'k> {
    /// Scores and weights of the chunk for each head, into shared memory.
    fn weights(&self) {
        let Group { k, attention, shape, query, cache, shared, .. } = self.group;
        let layout = attention.layout;
        let position = self.number * KEYS + self.lane;
        let visible = [0, CLUSTER].map(|apart| self.group.place.seen.holds(position + apart) & self.is_seen);
        let visible = k.vector(visible);
        let scales = |first: u32| {
            let at = self.block + self.lane + first;
            let bits = [0, CLUSTER].map(|apart| cache.load(at + apart).cast(Scalar::I32));
            // What lies at keys that are not visible is no float.
            where_visible(visible, k.vector(bits)).cast(Scalar::F32)
        };
        let (key_scales, value_scales) = (scales(layout.key_scales()), scales(layout.value_scales()));
        for (i, scores) in (0..).zip(self.scores()) {
            let (head, _) = self.group.head(self.first_of_tile, k.u32(i));
            let scale = query_scale(k, query.scales.load(head), attention.kappa);
            let weights = chunk_weights(k, attention, scores, key_scales, scale, visible);
            let of_values = value_weights(k, &weights, value_scales);
            let word = word_of_weights(k, &of_values);
            let state = self.cluster * shape.heads + i;
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
    fn scores(&self) -> Vec<V<'k>> {
        let Group { k, attention, shape, .. } = self.group;
        let blocks = attention.layout.head_len / 16;
        let step = (1..=UNROLLED).rev().find(|step| blocks.is_multiple_of(*step)).unwrap_or(1);
        // HH and HL + LH of both keys, for each head; nothing is read of a chunk that is not seen.
        let zeros = vec![k.vector([k.i32(0); 4]); shape.heads as usize];
        let end = self.is_seen.select(k.u32(blocks), k.u32(0));
        let sums = k.fold_any([k.u32(0), end], step, &zeros, |first, sums| {
            let mut sums: Vec<[V<'k>; 4]> =
                sums.iter().map(|sums| [0, 1, 2, 3].map(|i| sums.part(i))).collect();
            for block in 0..step {
                self.add_dots(first + block, &mut sums);
            }
            sums.into_iter().map(|sums| k.vector(sums)).collect()
        });
        let score = |sums: V<'k>| k.vector([0, 1].map(|key| (sums.part(key) << 7) + sums.part(2 + key)));
        sums.into_iter().map(score).collect()
    }

    /// Adds the dot products of dimensions `16e..` of both keys and each head.
    fn add_dots(&self, e: V<'k>, sums: &mut [[V<'k>; 4]]) {
        let Group { k, attention, query, cache, .. } = self.group;
        let layout = attention.layout;
        let at = self.block + (self.lane << 2) + e * (4 * KEYS);
        let keys = [0, CLUSTER]
            .map(|apart| [0, layout.key_low()].map(|plane| cache.load_vector(at + (4 * apart + plane), 4)));
        for (i, sums) in (0..).zip(sums) {
            let word = self.group.head(self.first_of_tile, k.u32(i)).0 * (layout.head_len / 4) + (e << 2);
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
    fn values(&self) {
        let Group { k, attention, shape, cache, shared, .. } = self.group;
        let layout = attention.layout;
        let words = layout.head_len / 4;
        let first_state = self.cluster * shape.heads;
        for first in (0..words).step_by(CLUSTER as usize) {
            let e = self.lane + first;
            k.when(self.is_seen & e.lt(k.u32(words)), || {
                let mut sums = vec![[[k.i32(0); 4]; 2]; shape.heads as usize];
                for quarter in 0..4 {
                    let keys: Vec<[V<'k>; 4]> = (4 * quarter..4 * quarter + 4)
                        .map(|q| {
                            let at = self.block + (e << 2) + (layout.values() + 4 * q * words);
                            transpose(cache.load_vector(at, 4))
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
}
