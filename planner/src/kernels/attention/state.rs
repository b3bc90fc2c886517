//! States of keys and how they merge (`core::numerics::merge`).

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::float::pow2;

use super::super::elementary::{scale_exponent, snap};

/// M, L and a dimension of O.
#[derive(Clone, Copy)]
pub struct State<'k> {
    /// M, i32.
    pub max: V<'k>,
    /// L.
    pub sum: V<'k>,
    /// O.
    pub output: V<'k>,
}

impl<'k> State<'k> {
    /// No keys yet; what it holds is replaced by the first that are merged.
    pub fn none(k: &'k Build) -> Self {
        Self { max: k.i32(0), sum: k.f32(0.0), output: k.f32(0.0) }
    }

    /// As an array, for loops to carry.
    pub fn parts(self) -> [V<'k>; 3] {
        [self.max, self.sum, self.output]
    }

    /// From [`State::parts`].
    pub fn from_parts([max, sum, output]: [V<'k>; 3]) -> Self {
        Self { max, sum, output }
    }

    /// This state merged with that of later keys; the later one as it is where this one is of no keys,
    /// `is_first`.
    pub fn merge(self, k: &'k Build, later: Self, is_first: V<'k>) -> Self {
        let merging = Merging::new(k, self.max, later.max, is_first);
        Self {
            max: is_first.select(later.max, merging.max),
            sum: merging.sum(self.sum, later.sum),
            output: merging.output(k, self.output, later.output),
        }
    }
}

/// How a state merges with that of later keys, for one row or, in vectors, for some.
#[derive(Clone, Copy)]
pub struct Merging<'k> {
    /// The larger M.
    pub max: V<'k>,
    /// Whether the later M is larger.
    raises: V<'k>,
    /// What the state with the smaller M is multiplied by.
    factor: V<'k>,
    /// Whether the later state is taken as it is.
    is_first: V<'k>,
}

impl<'k> Merging<'k> {
    /// Of states with these M.
    pub fn new(k: &'k Build, max: V<'k>, later_max: V<'k>, is_first: V<'k>) -> Self {
        let raises = max.lt(later_max);
        let larger = raises.select(later_max, max);
        let smaller = raises.select(max, later_max);
        Self { max: larger, raises, factor: factor(k, smaller - larger), is_first }
    }

    /// The same where each component of the vectors stands for two on end.
    pub fn of_pairs(self, k: &'k Build) -> Self {
        let [max, raises, factor, is_first] =
            [self.max, self.raises, self.factor, self.is_first].map(|x| in_pairs(k, x));
        Self { max, raises, factor, is_first }
    }

    /// Who keeps its value and who is multiplied: sums are commutative, so that the two cases differ in nothing
    /// else.
    fn order(&self, own: V<'k>, later: V<'k>) -> (V<'k>, V<'k>) {
        (self.raises.select(later, own), self.raises.select(own, later))
    }

    /// L.
    pub fn sum(&self, own: V<'k>, later: V<'k>) -> V<'k> {
        let (kept, scaled) = self.order(own, later);
        self.is_first.select(later, kept + scaled * self.factor)
    }

    /// O.
    pub fn output(&self, k: &'k Build, own: V<'k>, later: V<'k>) -> V<'k> {
        let (kept, scaled) = self.order(own, later);
        self.is_first.select(later, snap(k, kept + snap(k, scaled * self.factor)))
    }
}

/// (a, a, b, b) of (a, b).
pub fn in_pairs<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    k.vector([x.part(0), x.part(0), x.part(1), x.part(1)])
}

/// `e < -32 ? 0 : 2^e` for e <= 0.
fn factor<'k>(k: &'k Build, exponent: V<'k>) -> V<'k> {
    let like = |word: u32, scalar: Scalar| k.constant(exponent.ty().with(scalar), word);
    let power = scale_exponent(like(pow2(0).to_bits(), Scalar::F32), exponent);
    exponent.lt(like(-32_i32 as u32, Scalar::I32)).select(like(0, Scalar::F32), power)
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::{Scalar, build::kernel};
    use unisonic_core::numerics::merge;

    use super::super::super::tests::{launch_groups, random, word_bytes, words};
    use super::{Merging, State, in_pairs};

    const LEN: usize = 4096;

    /// States whose M are often 32 apart and whose O lie around 2^-60: lists of M, L and O.
    fn states(seed: u64) -> [Vec<u32>; 3] {
        let mut next = random(seed);
        let maxima = [-33, -32, -31, -1, 0, 1, 31, 32, 33];
        let max = (0..LEN).map(|_| maxima[(next() >> 40) as usize % 9] as u32).collect();
        let sum = (0..LEN).map(|_| (127 << 23) + (next() >> 40) as u32).collect();
        let output = (0..LEN).map(|_| {
            let (word, exponent) = (next(), (next() >> 40) as u32 % 60);
            let magnitude = (60 + exponent) << 23 | word as u32 & 0x7F_FFFF;
            (if word.is_multiple_of(9) { 0 } else { magnitude }) | (word >> 32) as u32 & 1 << 31
        });
        [max, sum, output.collect()]
    }

    /// Both kinds of merging, with the factor's threshold and every snap from both sides.
    #[test]
    fn merging_equals_the_reference() {
        let (own, later) = (states(3), states(4));
        let merge_all = kernel("merge", 64, |k| {
            let types = [Scalar::I32, Scalar::F32, Scalar::F32];
            let names = [["m", "l", "o"], ["later_m", "later_l", "later_o"], ["out_m", "out_l", "out_o"]];
            let [own, later] =
                [0, 1].map(|of: usize| [0, 1, 2].map(|part: usize| k.read(names[of][part], types[part])));
            let out = [0, 1, 2].map(|part: usize| k.write(names[2][part], types[part]));
            let pairs = k.write("of_pairs", Scalar::F32);
            let i = k.group_id() * 64 + k.local_id();
            let [a, b] = [own, later].map(|of| State::from_parts(of.map(|part| part.load(i))));
            let is_first = i.lt(k.u32(100));
            let merged = a.merge(k, b, is_first);
            out.into_iter().zip(merged.parts()).for_each(|(out, part)| out.store(i, part));
            let two = |x| k.vector([x; 2]);
            let merging = Merging::new(k, two(a.max), two(b.max), two(is_first)).of_pairs(k);
            let [a, b] = [a.output, b.output].map(|o| in_pairs(k, two(o)));
            pairs.store(i * 4, merging.output(k, a, b));
        });
        let mut buffers: Vec<Vec<u8>> = own.iter().chain(&later).map(|list| word_bytes(list)).collect();
        buffers.extend([vec![0; 4 * LEN], vec![0; 4 * LEN], vec![0; 4 * LEN], vec![0; 16 * LEN]]);
        let found = launch_groups(&merge_all, LEN as u32 / 64, vec![], buffers);
        let found: Vec<Vec<u32>> = found.iter().map(|buffer| words(buffer)).collect();
        let state = |[max, sum, output]: &[Vec<u32>; 3], i: usize| merge::State {
            max_exponent: max[i] as i32,
            sum: f32::from_bits(sum[i]),
            output: vec![f32::from_bits(output[i])],
        };
        for i in 0..LEN {
            let (mut merged, later) = (state(&own, i), state(&later, i));
            if i < 100 {
                merged = later;
            } else {
                merged.merge(&later);
            }
            let expected = [merged.max_exponent as u32, merged.sum.to_bits(), merged.output[0].to_bits()];
            assert_eq!([6, 7, 8].map(|buffer: usize| found[buffer][i]), expected, "{i}");
            assert_eq!(found[9][4 * i..4 * i + 4], [expected[2]; 4], "{i}");
        }
    }
}
