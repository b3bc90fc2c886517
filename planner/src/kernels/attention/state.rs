//! States of keys and how they merge (`core::numerics::merge`).

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::float::pow2;

use super::super::elementary::{scale_exponent, snap};

/// M, L and a dimension of O, or some of them as a vector.
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
        // Sums are commutative, so that the two cases differ by who is multiplied.
        let raises = self.max.lt(later.max);
        let larger = raises.select(later.max, self.max);
        let smaller = raises.select(self.max, later.max);
        let factor = factor(k, smaller - larger);
        let join = |a: V<'k>, b: V<'k>| (raises.select(b, a), raises.select(a, b));
        let (kept, scaled) = join(self.sum, later.sum);
        let sum = kept + scaled * factor;
        let (kept, scaled) = join(self.output, later.output);
        let output = snap(k, kept + snap(k, scaled * factor));
        Self {
            max: is_first.select(later.max, larger),
            sum: is_first.select(later.sum, sum),
            output: is_first.select(later.output, output),
        }
    }
}

/// `e < -32 ? 0 : 2^e` for e <= 0.
pub fn factor<'k>(k: &'k Build, exponent: V<'k>) -> V<'k> {
    let wide = |word: u32, scalar: Scalar| k.constant(exponent.ty().with(scalar), word);
    let power = scale_exponent(wide(pow2(0).to_bits(), Scalar::F32), exponent);
    exponent.lt(wide(-32_i32 as u32, Scalar::I32)).select(wide(0, Scalar::F32), power)
}
