//! Attention of many rows of a sequence at once, with integer matrix products.
//!
//! A cluster of 32 invocations has 16 *pairs* of a row and a query head of one KV head, and goes through the
//! chunks alone: scores, weights and sums of values stay in registers, in the order in which the instructions
//! leave and take them. Invocation `4g + t` has pairs g and g + 8.
//!
//! **Keys.** A chunk is eight products of 8 keys, its *columns*. Column c of product n is key `16*(n/2) +
//! 4*(c/2) + 2*(n%2) + c%2`, so that the invocation, which gets columns 2t and 2t + 1 of each, has four keys on
//! end of each sixteen: with four dimensions of them, 16 bytes of the cache.
//!
//! **Dimensions.** A product over keys has 8 dimensions. Column c of product j of a group of 32 is dimension
//! `4c + j`, so that the four words that those 16 bytes become are the operands of four products, and the
//! invocation ends with eight dimensions on end of each 32.
//!
//! Values are vectors: of two, (pair g, pair g + 8); of four, (pair g: columns 2t, 2t + 1; pair g + 8: columns
//! 2t, 2t + 1).

use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::launch::Hardware;
use unisonic_core::numerics::fwht::{fwht_block, fwht_scales};

use super::super::elementary::{abs_bits, exp2_pair, recip, snap};
use super::super::fit::Room;
use super::super::kv::{KEYS, PageTable, Pages};
use super::super::reduce::CLUSTER;
use super::super::{Grid, GridKernel};
use super::chunk::{ValueSteps, query_scale, score, transpose, weight, where_visible};
use super::fragments::{PlaneRow, multiply, parts, rows_of_a};
use super::state::{Merging, in_pairs};
use super::{Attention, GROUP, Seen};

/// Pairs of a cluster.
const PAIRS: u32 = 16;
/// Products over the dimensions of a chunk's keys.
const KEY_PRODUCTS: u32 = KEYS / 8;
/// Longest head: an invocation holds its outputs in registers, half as many as the head has values.
const LONGEST_HEAD: u32 = 256;
/// M of no keys.
const NOTHING: i32 = i32::MIN;

/// What a workgroup of [`attention_prefill`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefillShape {
    /// Clusters of 32 invocations, each with 16 pairs of a row and a query head; all read the same keys.
    pub clusters: u32,
}

impl PrefillShape {
    /// Four clusters, which was measured to be fast, or as many as the device has room for. None if a KV head has more query
    /// heads than fit, for heads that registers have no room for, and without matrix instructions: dot products from shared
    /// memory are slower than [`super::attention_decode`]'s.
    pub fn new(attention: Attention, hardware: &Hardware) -> Option<Self> {
        let fits = |shape: &Self| {
            let total_len_bytes = 4 * shape.total_len(attention.layout.head_len);
            // The transform exchanges vectors of four.
            let room = Room { workgroup: shape.lanes(), shared_len_bytes: total_len_bytes, exchanged: 4 };
            attention.layout.head_len <= LONGEST_HEAD
                && shape.rows_a_tile(attention) > 0
                && room.fits(hardware)
        };
        [4, 2, 1].map(|clusters| Self { clusters }).into_iter().find(fits).filter(|_| hardware.caps.mma32)
    }

    /// Invocations.
    fn lanes(self) -> u32 {
        self.clusters * CLUSTER
    }

    /// Elements of the state of all groups: four values of each product for each invocation.
    fn total_len(self, head_len: u32) -> u32 {
        4 * products(head_len) * self.lanes()
    }

    /// Rows of a tile; 0 if a KV head has more query heads than the workgroup has room for.
    pub fn rows_a_tile(self, attention: Attention) -> u32 {
        PAIRS * self.clusters / attention.heads_a_kv_head()
    }
}

/// Output rows of tiles of rows, each of one sequence (`core::numerics::attention`, `core::numerics::merge`):
/// the same bits as [`super::attention_decode`] and [`super::attention_merge`].
///
/// A launch has `tiles * layout.heads` workgroups. Buffers: `high`, `low`, `scales` (Q16 as
/// [`super::super::prepare_query`] writes it); `positions`, a u32 a row; `tiles`, two u32 a tile: its first
/// row, and how many, 1 to [`PrefillShape::rows_a_tile`], whose positions ascend; `sequences`, a u32 a row, and
/// `pages`, the page numbers of each sequence; `cache`; `out`, rows of `heads*head_len` f32. Parameter:
/// `pages_a_sequence`. Tiles that see most come best first.
///
/// Reads the keys and values that a tile sees once a tile, from a cache once a cluster; `5*head_len`
/// multiply-adds of bytes and about 60 operations a key, row and head.
pub fn attention_prefill(attention: Attention, shape: PrefillShape) -> GridKernel {
    let layout = attention.layout;
    let head_len = layout.head_len;
    assert!(head_len.is_multiple_of(16) && head_len <= LONGEST_HEAD, "heads of {head_len}");
    assert!(shape.rows_a_tile(attention) > 0, "{attention:?} has too many heads for {shape:?}");
    let kernel: Kernel = kernel("attention_prefill", shape.lanes(), |k| {
        let planes = [k.read("high", Scalar::I8x4), k.read("low", Scalar::I8x4)];
        let scales = k.read("scales", Scalar::F32);
        let (positions, tiles) = (k.read("positions", Scalar::U32), k.read("tiles", Scalar::U32));
        let pages = PageTable::declare(k);
        let cache = k.read("cache", Scalar::I8x4);
        let out = k.write("out", Scalar::F32);
        // The state of all groups, which is touched once a group.
        let (products, lanes) = (products(head_len), shape.lanes());
        let total = k.shared("total", Scalar::F32, shape.total_len(head_len));

        let (tile, kv_head) = (k.group_id() / layout.heads, k.group_id() % layout.heads);
        let (first_row, rows) = (tiles.load(tile * 2), tiles.load(tile * 2 + 1));
        let seen_at = |row| Seen::new(k, positions.load(row), attention.window);
        let (first_seen, last_seen) = (seen_at(first_row), seen_at(first_row + rows - 1));
        let pages = pages.of(first_row);

        let lane = k.local_id() & (CLUSTER - 1);
        let (g, t) = (lane >> 2, lane & 3);
        let pairs = [0, 8].map(|half| {
            let pair = (k.local_id() / CLUSTER) * PAIRS + g + half;
            let heads = attention.heads_a_kv_head();
            let row = pair / heads;
            // What has no row repeats the last.
            let exists = row.lt(rows);
            let row = first_row + row.min(rows - 1);
            Pair { row, head: row * attention.heads + kv_head * heads + pair % heads, exists }
        });
        let work = Work { k, attention, cache, kv_head, t, g, pairs };
        let query = work.query(planes, scales, pairs.map(|pair| seen_at(pair.row)));

        let slot = |product: u32| (k.local_id() + product * lanes) << 2;
        for product in 0..products {
            total.store(slot(product), k.vector([k.f32(0.0); 4]));
        }
        let (first_chunk, end_chunk) = (first_seen.first_chunk(), last_seen.end_chunk());
        let nothing = [k.vector([k.i32(NOTHING); 2]), k.vector([k.f32(0.0); 2])];
        let groups = [first_chunk / GROUP, (end_chunk - 1) / GROUP + 1];
        let [_, sum] = k.fold(groups[0], groups[1], 1, nothing, |group, [max, sum]| {
            let chunks = [first_chunk.max(group * GROUP), end_chunk.min((group + 1) * GROUP)];
            let of_group = work.group(&query, pages, chunks);
            let joins = Joins::new(k, max, of_group.max);
            for (product, &output) in (0..).zip(&of_group.outputs) {
                let at = slot(product);
                // The end of a group is a snap.
                total.store(at, joins.output(k, total.load_vector(at, 4), snap(k, output)));
            }
            [joins.max(), joins.sum(sum, of_group.sum)]
        });
        let outputs: Vec<V<'_>> = (0..products).map(|product| total.load_vector(slot(product), 4)).collect();
        work.finish(out, sum, outputs);
    });
    GridKernel { kernel, grid: Grid::Tiles(layout.heads), flags_a_row: 0 }
}

/// Groups of 32 dimensions of a head; of the last, only half may exist.
fn dimension_groups(head_len: u32) -> u32 {
    head_len.div_ceil(32)
}

/// Products over keys of a chunk.
fn products(head_len: u32) -> u32 {
    dimension_groups(head_len) * 4
}

/// A row of the batch and a head of it.
#[derive(Clone, Copy)]
struct Pair<'k> {
    row: V<'k>,
    /// Number of the head among those of all rows.
    head: V<'k>,
    exists: V<'k>,
}

/// An invocation's two pairs.
struct Work<'k> {
    k: &'k Build,
    attention: Attention,
    cache: Mem<'k>,
    kv_head: V<'k>,
    t: V<'k>,
    g: V<'k>,
    pairs: [Pair<'k>; 2],
}

/// What the chunks have in common.
struct Query<'k> {
    /// Planes h and l of the two pairs.
    planes: [[PlaneRow<'k>; 2]; 2],
    /// qs, of two.
    scales: V<'k>,
    /// What the pairs see.
    seen: [Seen<'k>; 2],
}

/// States of two pairs: `max` and `sum` of two, an output of four for each product over keys.
struct States<'k> {
    max: V<'k>,
    sum: V<'k>,
    outputs: Vec<V<'k>>,
}

impl<'k> Work<'k> {
    fn query(&self, planes: [Mem<'k>; 2], scales: Mem<'k>, seen: [Seen<'k>; 2]) -> Query<'k> {
        let k = self.k;
        let planes = planes.map(|mem| {
            self.pairs.map(|pair| {
                let first = pair.head * (self.attention.layout.head_len / 4);
                PlaneRow { mem, first, stride: 4 }
            })
        });
        let scales = self.pairs.map(|pair| query_scale(k, scales.load(pair.head), self.attention.kappa));
        Query { planes, scales: k.vector(scales), seen }
    }

    /// Level 1: the chunks of a group merge in ascending order; those without a visible key change nothing.
    fn group(&self, query: &Query<'k>, pages: Pages<'k>, [first, end]: [V<'k>; 2]) -> States<'k> {
        let k = self.k;
        let products = products(self.attention.layout.head_len);
        let mut nothing = vec![k.vector([k.i32(NOTHING); 2]), k.vector([k.f32(0.0); 2])];
        nothing.resize(2 + products as usize, k.vector([k.f32(0.0); 4]));
        let merged = k.fold_any([first, end], 1, &nothing, |chunk, state| {
            let block = self.attention.layout.block(pages.page(chunk), self.kv_head);
            let later = self.chunk(query, block, chunk);
            let joins = Joins::new(k, state[0], later.max);
            let mut next = vec![joins.max(), joins.sum(state[1], later.sum)];
            next.extend(
                state[2..].iter().zip(later.outputs).map(|(&own, later)| joins.output(k, own, later)),
            );
            next
        });
        States { max: merged[0], sum: merged[1], outputs: merged[2..].to_vec() }
    }

    /// State of a chunk.
    fn chunk(&self, query: &Query<'k>, block: V<'k>, chunk: V<'k>) -> States<'k> {
        let weights = self.weights(query, block, chunk);
        let step = in_pairs(self.k, weights.step);
        let outputs =
            self.values(block, &weights.planes).into_iter().map(|sum| sum.to_f32() * step).collect();
        States { max: weights.max, sum: weights.sum, outputs }
    }

    /// First key of the invocation's columns of product `n`.
    fn first_key(&self, n: u32) -> V<'k> {
        (self.t << 2) + (16 * (n / 2) + 2 * (n % 2))
    }

    /// Softmax weights and those of the values (`core::numerics::attention::{chunk_weights, value_weights}`).
    fn weights(&self, query: &Query<'k>, block: V<'k>, chunk: V<'k>) -> Weights<'k> {
        let (k, layout) = (self.k, self.attention.layout);
        let mut terms = vec![];
        for (n, dots) in (0..).zip(self.scores(query, block)) {
            let key = self.first_key(n);
            let position = chunk * KEYS + key;
            let [upper, lower] = query.seen.map(|seen| [seen.holds(position), seen.holds(position + 1)]);
            let visible = k.vector([upper[0], upper[1], lower[0], lower[1]]);
            let scales = |first: u32| {
                let two = self.cache.load_vector(block + key + first, 2).cast(Scalar::I32);
                let four = k.vector([two.part(0), two.part(1), two.part(0), two.part(1)]);
                // What lies at keys that are not visible is no float.
                where_visible(visible, four).cast(Scalar::F32)
            };
            let (key_scales, value_scales) = (scales(layout.key_scales()), scales(layout.value_scales()));
            let t = score(k, self.attention, dots, key_scales, in_pairs(k, query.scales));
            terms.push(Term { pair: exp2_pair(k, t), visible, value_scales });
        }
        self.joined(terms)
    }

    /// The weights from those of each product.
    fn joined(&self, terms: Vec<Term<'k>>) -> Weights<'k> {
        let k = self.k;
        let exponents = terms
            .iter()
            .map(|Term { pair: (_, n), visible, .. }| visible.select(*n, n.constant(NOTHING as u32)));
        let max = self.max_of_pairs(exponents);
        let maxima = in_pairs(k, max);
        let p: Vec<V<'k>> = terms.iter().map(|term| weight(term.visible, term.pair, maxima)).collect();
        let u: Vec<V<'k>> = p.iter().zip(&terms).map(|(&p, term)| p * term.value_scales).collect();
        let amax = self.max_of_pairs(u.iter().map(|&u| abs_bits(u))).cast(Scalar::F32);
        let steps = ValueSteps::new(k, amax);
        let w = u.into_iter().map(|u| steps.integers(k, u, |x| in_pairs(k, x)));
        let (high, low): (Vec<V<'k>>, Vec<V<'k>>) = w.unzip();
        let planes = [high, low].map(|plane| self.operands(&plane));
        Weights { max, sum: self.tree(&p), planes, step: steps.step }
    }

    /// S of the two pairs and two keys of each product (`core::numerics::attention::score_dot`).
    ///
    /// The queries are loaded again for each chunk, from a cache: there are not registers enough to keep them.
    fn scores(&self, query: &Query<'k>, block: V<'k>) -> Vec<V<'k>> {
        let (k, layout) = (self.k, self.attention.layout);
        let blocks = layout.head_len / 16;
        let column = ((self.g >> 1) << 2) + (self.g & 1);
        let zero = k.vector([k.i32(0); 4]);
        // HH and HL + LH.
        let mut sums = [[zero; 2]; KEY_PRODUCTS as usize];
        for part in 0..parts(blocks) {
            let [qh, ql] = query.planes.map(|pairs| {
                let [upper, lower] = pairs.map(|pair| pair.load(self.t, blocks, part));
                rows_of_a(k, &upper, &lower)
            });
            for (n, [hh, rest]) in (0..).zip(&mut sums) {
                let key = column + (16 * (n / 2) + 2 * (n % 2));
                let [kh, kl] = [0, layout.key_low()].map(|plane| {
                    let first = block + (key << 2) + plane;
                    PlaneRow { mem: self.cache, first, stride: 4 * KEYS }.load(self.t, blocks, part)
                });
                *hh = multiply(k, &qh, &kh, *hh);
                *rest = multiply(k, &ql, &kh, multiply(k, &qh, &kl, *rest));
            }
        }
        sums.into_iter().map(|[hh, rest]| (hh << 7) + rest).collect()
    }

    /// For each pair, the largest of the integers of all products and columns: of two.
    fn max_of_pairs(&self, products: impl Iterator<Item = V<'k>>) -> V<'k> {
        let k = self.k;
        let four = products.reduce(|a, b| a.max(b)).unwrap_or(k.vector([k.i32(NOTHING); 4]));
        let two = k.vector([four.part(0).max(four.part(1)), four.part(2).max(four.part(3))]);
        let two = two.max(two.shuffle_xor(8, 2));
        two.max(two.shuffle_xor(8, 1))
    }

    /// The tree of the 64 p of each pair. Bits of a key, from the highest: product n/4, n/2 % 2, t/2, t % 2, n
    /// % 2, column.
    fn tree(&self, p: &[V<'k>]) -> V<'k> {
        let k = self.k;
        let level = |i: usize| (p[i] + p[i + 4]) + (p[i + 2] + p[i + 6]);
        let [even, odd] = [level(0), level(1)].map(|sum| {
            let sum = sum + sum.shuffle_xor(8, 2);
            sum + sum.shuffle_xor(8, 1)
        });
        let sum = even + odd;
        k.vector([sum.part(0) + sum.part(1), sum.part(2) + sum.part(3)])
    }

    /// Weights of all keys as operands A of products over 32 keys.
    fn operands(&self, plane: &[V<'k>]) -> Vec<V<'k>> {
        let k = self.k;
        let word = |pair: &[V<'k>], i: u32| {
            k.pack([pair[0].part(i), pair[0].part(i + 1), pair[1].part(i), pair[1].part(i + 1)])
        };
        let step = |four: &[V<'k>]| {
            let (first, second) = four.split_at(2);
            k.vector([word(first, 0), word(first, 2), word(second, 0), word(second, 2)])
        };
        plane.chunks(4).map(step).collect()
    }

    /// The exact sums of weighted values, for each product (`core::numerics::attention::weighted_values`).
    fn values(&self, block: V<'k>, planes: &[Vec<V<'k>>; 2]) -> Vec<V<'k>> {
        let (k, layout) = (self.k, self.attention.layout);
        let words = layout.head_len / 4;
        let mut sums = vec![];
        for group in 0..dimension_groups(layout.head_len) {
            // Past the head, its last dimensions again.
            let e = (self.g + 8 * group).min(k.u32(words - 1));
            let keys: Vec<[V<'k>; 4]> = (0..4)
                .map(|sixteen| {
                    let at = block + (((self.t + 4 * sixteen) * words + e) << 2) + layout.values();
                    transpose(self.cache.load_vector(at, 4))
                })
                .collect();
            for j in 0..4 {
                let zero = k.vector([k.i32(0); 4]);
                let [high, low] = [0, 1].map(|plane: usize| {
                    let steps = planes[plane].iter().zip(keys.chunks(2));
                    steps.fold(zero, |sum, (&a, keys)| k.mma(a, k.vector([keys[0][j], keys[1][j]]), sum))
                });
                sums.push((high << 7) + low);
            }
        }
        sums
    }

    /// `o = snap(O*recip(L)); o = FWHT(o)*2^-s'` (`core::numerics::attention::finish`), stored.
    fn finish(&self, out: Mem<'k>, sum: V<'k>, outputs: Vec<V<'k>>) {
        let (k, head_len) = (self.k, self.attention.layout.head_len);
        let inverse = in_pairs(k, recip(k, sum));
        let mut o: Vec<V<'k>> = outputs.into_iter().map(|output| snap(k, output * inverse)).collect();
        self.fwht(&mut o);
        let factor = k.vector([k.f32(fwht_scales(head_len as usize).1); 4]);
        for (group, o) in (0..).zip(o.chunks(4)) {
            let d = (self.t << 3) + 32 * group;
            for (pair, part) in self.pairs.iter().zip([0, 2]) {
                k.when(pair.exists & d.lt(k.u32(head_len)), || {
                    for half in 0..2 {
                        let four = k.vector([0, 1, 2, 3].map(|j: usize| o[j].part(part + half)));
                        out.store(pair.head * head_len + d + 4 * half, four * factor);
                    }
                });
            }
        }
    }

    /// The transform of dimensions `32*group + 8t + 4*column + j`, product `4*group + j`.
    fn fwht(&self, o: &mut [V<'k>]) {
        let k = self.k;
        let block = fwht_block(self.attention.layout.head_len as usize) as u32;
        let mut h = 1;
        while h < block {
            match h {
                4 => {
                    for o in o.iter_mut() {
                        let [a, b, c, d] = [0, 1, 2, 3].map(|i| o.part(i));
                        *o = k.vector([a + b, a - b, c + d, c - d]);
                    }
                }
                8 | 16 => {
                    let is_first = k.vector([(self.t & (h / 8)).eq(k.u32(0)); 4]);
                    for o in o.iter_mut() {
                        let other = o.shuffle_xor(8, h / 8);
                        *o = is_first.select(*o + other, other - *o);
                    }
                }
                _ => {
                    let apart = if h < 4 { h } else { h / 8 } as usize;
                    for i in (0..o.len()).filter(|i| i & apart == 0) {
                        (o[i], o[i + apart]) = (o[i] + o[i + apart], o[i] - o[i + apart]);
                    }
                }
            }
            h *= 2;
        }
    }
}

/// What a product gives before M is known: (P, n), of which keys, and sv.
struct Term<'k> {
    pair: (V<'k>, V<'k>),
    visible: V<'k>,
    value_scales: V<'k>,
}

/// Weights of a chunk; vectors of two but for the operands.
struct Weights<'k> {
    /// M, [`NOTHING`] where no key is visible.
    max: V<'k>,
    /// l.
    sum: V<'k>,
    /// Operands of planes h and l of w.
    planes: [Vec<V<'k>>; 2],
    /// [`ValueSteps::step`].
    step: V<'k>,
}

/// Merging of two pairs' states, either of which may be of no keys.
struct Joins<'k> {
    sums: Merging<'k>,
    outputs: Merging<'k>,
    /// Whether the later state is of no keys: of two, and of four.
    keeps: [V<'k>; 2],
    max: V<'k>,
}

impl<'k> Joins<'k> {
    fn new(k: &'k Build, max: V<'k>, later: V<'k>) -> Self {
        let is_nothing = |max: V<'k>| max.eq(max.constant(NOTHING as u32));
        let (is_first, keeps) = (is_nothing(max), is_nothing(later));
        let sums = Merging::new(k, max, later, is_first);
        // The larger of a number and the least integer.
        Self { sums, outputs: sums.of_pairs(k), keeps: [keeps, in_pairs(k, keeps)], max: sums.max }
    }

    fn max(&self) -> V<'k> {
        self.max
    }

    fn sum(&self, own: V<'k>, later: V<'k>) -> V<'k> {
        self.keeps[0].select(own, self.sums.sum(own, later))
    }

    fn output(&self, k: &'k Build, own: V<'k>, later: V<'k>) -> V<'k> {
        self.keeps[1].select(own, self.outputs.output(k, own, later))
    }
}
