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

    /// This state merged with that of later keys; the later one as it is where this one is of no keys, `is_first`.
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

    /// Who keeps its value and who is multiplied: sums are commutative, so that the two cases differ in nothing else.
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
