//! One head in the registers of a cluster of 32 invocations: norm, RoPE, the Walsh-Hadamard transform.
//!
//! Invocation `l` of the cluster has the *words* (four elements each) l, l + 32, ... of the head. Heads are
//! multiples of four long; invocations past a shorter head repeat its last word, and what they have is left out
//! of sums and maxima.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::numerics::float::reciprocal_of_len;
use unisonic_core::numerics::fwht::{fwht_block, fwht_scales};
use unisonic_core::numerics::range::SQUARES_LIMIT;
use unisonic_core::plan::RopeStyle;

use super::elementary::{abs_bits, is_below, rsqrt, snap};
use super::reduce::{CLUSTER, cluster_max};

/// Longest head.
pub const MAX_HEAD_LEN: u32 = 512;

/// A position table as a kernel reads it: a row a position, its cosines and then its sines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rope {
    /// Where the pairs lie in a head.
    pub style: RopeStyle,
    /// Pairs; 2*pairs elements of a head are rotated, the others pass.
    pub pairs: u32,
}

/// The objects of a norm over heads.
#[derive(Clone, Copy)]
pub struct HeadNormIn<'k> {
    /// `head_len` weights, if it has weights.
    pub weight: Option<Mem<'k>>,
    /// Added to the mean square.
    pub eps: f32,
}

/// The objects of a rotation, and the row's position.
#[derive(Clone, Copy)]
pub struct RopeIn<'k> {
    /// Where the pairs lie.
    pub rope: Rope,
    /// Rows of the position table.
    pub table: Mem<'k>,
    /// Row of the table.
    pub position: V<'k>,
}

/// A head in memory, and the cluster's invocation.
#[derive(Clone, Copy)]
pub struct Head<'k> {
    k: &'k Build,
    x: Mem<'k>,
    first: V<'k>,
    len: u32,
    lane: V<'k>,
    /// The norm's weights and factor, and whether the head is in its range.
    norm: Option<(Option<Mem<'k>>, V<'k>, V<'k>)>,
}

/// Words of a head of `len` that an invocation has.
pub fn words_a_lane(len: u32) -> u32 {
    (len / 4).div_ceil(CLUSTER)
}

/// Number of word `index` of an invocation, and whether the head has it.
pub fn word<'k>(k: &'k Build, len: u32, lane: V<'k>, index: u32) -> (V<'k>, V<'k>) {
    let word = lane + index * CLUSTER;
    (word.min(k.u32(len / 4 - 1)), word.lt(k.u32(len / 4)))
}

impl<'k> Head<'k> {
    /// The head of `len` values from element `first` of `x` on, after a norm if there is one:
    /// `core::numerics::norm::rms_norm`, without weights `rms_norm_plain`.
    pub fn new(k: &'k Build, x: Mem<'k>, first: V<'k>, len: u32, norm: Option<HeadNormIn<'k>>) -> Self {
        assert!(len.is_multiple_of(4) && (4..=MAX_HEAD_LEN).contains(&len), "heads of {len}");
        let lane = k.local_id() & (CLUSTER - 1);
        let head = Self { k, x, first, len, lane, norm: None };
        let Some(HeadNormIn { weight, eps }) = norm else { return head };
        let squares = head.sum_of_squares();
        let in_range = is_below(k, squares, SQUARES_LIMIT);
        let r = rsqrt(k, squares * k.f32(reciprocal_of_len(len as usize)) + k.f32(eps));
        Self { norm: Some((weight, r, in_range)), ..head }
    }

    /// tree256 of `snap(x*x)`. A lane of the tree is a component of an invocation's word; lanes that it does
    /// not have are +0 and change nothing.
    fn sum_of_squares(&self) -> V<'k> {
        let k = self.k;
        let zero = k.vector([k.f32(0.0); 4]);
        let squares: Vec<V<'k>> = (0..words_a_lane(self.len))
            .map(|index| {
                let (word, exists) = word(k, self.len, self.lane, index);
                let x = self.x.load_vector(self.first + (word << 2), 4);
                k.vector([exists; 4]).select(snap(k, x * x), zero)
            })
            .collect();
        // Elements 256 apart share a lane, then h = 128 joins words 32 apart.
        let lanes = |first: usize| squares.iter().skip(first).step_by(2).copied().reduce(|a, b| a + b);
        let mut sum = match (lanes(0), lanes(1)) {
            (Some(a), Some(b)) => a + b,
            (a, _) => a.unwrap_or(zero),
        };
        let mut h = CLUSTER / 2;
        while h > 0 {
            if h < (self.len / 4).next_power_of_two() {
                sum = sum + sum.shuffle_xor(CLUSTER, h);
            }
            h /= 2;
        }
        // Invocations past a power of two have summed zeros: they have no words of the head either.
        (sum.part(0) + sum.part(2)) + (sum.part(1) + sum.part(3))
    }

    /// Whether the head is in the range of its norm.
    pub fn in_range(&self) -> V<'k> {
        self.norm.map_or(self.k.constant(Scalar::Bool.into(), 1), |(_, _, in_range)| in_range)
    }

    /// `len` elements (1, 2 or 4) from `element` on, a multiple of it, after the norm.
    fn load(&self, element: V<'k>, len: u8) -> V<'k> {
        let k = self.k;
        let wide = |value: V<'k>| match len {
            4 => k.vector([value; 4]),
            2 => k.vector([value; 2]),
            _ => value,
        };
        let x = self.x.load_vector(self.first + element, len);
        let Some((weight, r, in_range)) = self.norm else { return x };
        let normed = x * wide(r);
        let normed = snap(k, weight.map_or(normed, |weight| normed * weight.load_vector(element, len)));
        wide(in_range).select(normed, wide(k.f32(0.0)))
    }

    /// The invocation's words after norm and rotation, with their numbers and whether the head has them.
    pub fn values(&self, rope: Option<RopeIn<'k>>) -> Vec<Word<'k>> {
        let k = self.k;
        let words = (0..words_a_lane(self.len)).map(|index| {
            let (number, exists) = word(k, self.len, self.lane, index);
            let four = match rope {
                Some(rope) => self.rotated(rope, number << 2),
                None => self.load(number << 2, 4),
            };
            Word { number, exists, four }
        });
        words.collect()
    }

    /// Four elements from `element` on, rotated: `core::numerics::rope::rotate`.
    fn rotated(&self, rope: RopeIn<'k>, element: V<'k>) -> V<'k> {
        let k = self.k;
        let pairs = rope.rope.pairs;
        match rope.rope.style {
            RopeStyle::HalfSplit if pairs.is_multiple_of(4) => self.rotated_half(rope, element, 4),
            RopeStyle::HalfSplit => k.vector([0, 1, 2, 3].map(|i| self.rotated_half(rope, element + i, 1))),
            RopeStyle::Interleaved => {
                let [first, second] = [0, 2].map(|i| self.rotated_pair(rope, element + i));
                k.vector([first.part(0), first.part(1), second.part(0), second.part(1)])
            }
        }
    }

    /// Elements i and i + pairs turn together: `len` elements, all of one half or past both.
    fn rotated_half(&self, rope: RopeIn<'k>, element: V<'k>, len: u8) -> V<'k> {
        let (k, pairs) = (self.k, rope.rope.pairs);
        let own = self.load(element, len);
        let is_first = element.lt(k.u32(pairs));
        let [turned] = k.choose(
            element.lt(k.u32(2 * pairs)),
            || {
                let other = self.load(is_first.select(element + pairs, element - pairs), len);
                let at = rope.position * (2 * pairs) + is_first.select(element, element - pairs);
                let (c, s) = (rope.table.load_vector(at, len), rope.table.load_vector(at + pairs, len));
                // a*c - b*s and b*c + a*s.
                let is_first = if len == 4 { k.vector([is_first; 4]) } else { is_first };
                let (kept, crossed) = (own * c, other * s);
                [is_first.select(kept - crossed, kept + crossed)]
            },
            || [own],
        );
        turned
    }

    /// Elements 2i and 2i + 1 turn together.
    fn rotated_pair(&self, rope: RopeIn<'k>, element: V<'k>) -> V<'k> {
        let (k, pairs) = (self.k, rope.rope.pairs);
        let own = self.load(element, 2);
        let [turned] = k.choose(
            element.lt(k.u32(2 * pairs)),
            || {
                let at = rope.position * (2 * pairs) + (element >> 1);
                let (c, s) = (rope.table.load(at), rope.table.load(at + pairs));
                let (a, b) = (own.part(0), own.part(1));
                [k.vector([a * c - b * s, a * s + b * c])]
            },
            || [own],
        );
        turned
    }
}

/// Four elements of a head.
#[derive(Clone, Copy)]
pub struct Word<'k> {
    /// Which.
    pub number: V<'k>,
    /// Whether the head has it: else it repeats another.
    pub exists: V<'k>,
    /// The elements.
    pub four: V<'k>,
}

/// The largest |x| of a head, in every invocation of the cluster.
pub fn amax<'k>(k: &'k Build, words: &[Word<'k>]) -> V<'k> {
    let largest = words.iter().map(|word| {
        let bits = abs_bits(word.four);
        let largest = bits.part(0).max(bits.part(1)).max(bits.part(2).max(bits.part(3)));
        word.exists.select(largest, k.i32(0))
    });
    let largest = largest.reduce(|a, b| a.max(b)).unwrap_or(k.i32(0));
    cluster_max(largest, CLUSTER).cast(Scalar::F32)
}

/// `FWHT(v)*2^-s` (`core::numerics::fwht`), of a value that is written.
pub fn rotate_value<'k>(k: &'k Build, len: u32, words: &mut [Word<'k>]) {
    let block = fwht_block(len as usize) as u32;
    for word in words.iter_mut() {
        let four = word.four;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| four.part(i));
        let [a, b, c, d] = if block >= 2 { [a + b, a - b, c + d, c - d] } else { [a, b, c, d] };
        let [a, b, c, d] = if block >= 4 { [a + c, b + d, a - c, b - d] } else { [a, b, c, d] };
        word.four = k.vector([a, b, c, d]);
    }
    let lane = k.local_id() & (CLUSTER - 1);
    let mut h = 4;
    while h < block.min(4 * CLUSTER) {
        let is_first = k.vector([(lane & (h / 4)).eq(k.u32(0)); 4]);
        for word in words.iter_mut() {
            let other = word.four.shuffle_xor(CLUSTER, h / 4);
            word.four = is_first.select(word.four + other, other - word.four);
        }
        h *= 2;
    }
    // Whole words of an invocation differ in the bits that are left.
    while h < block {
        let apart = (h / (4 * CLUSTER)) as usize;
        for i in 0..words.len() {
            if i & apart == 0 {
                let (a, b) = (words[i].four, words[i + apart].four);
                (words[i].four, words[i + apart].four) = (a + b, a - b);
            }
        }
        h *= 2;
    }
    let factor = k.f32(fwht_scales(len as usize).0);
    for word in words {
        word.four = word.four * k.vector([factor; 4]);
    }
}
