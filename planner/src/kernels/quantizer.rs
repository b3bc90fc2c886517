//! The quantiser of one block, shared by A16, K16, Q16, W16 and V8 (`core::numerics::a16::quantize_16`,
//! `core::numerics::kv::quantize_value_8`).

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::float::{INV_127, INV_16319};
use unisonic_core::numerics::range::QUANTIZER_FLOOR;

use super::elementary::{is_below, recip, rne};

/// Bits of the integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// -127 to 127: one plane.
    Eight,
    /// -16319 to 16319: two planes.
    Sixteen,
}

impl Bits {
    fn largest(self) -> i32 {
        match self {
            Bits::Eight => 127,
            Bits::Sixteen => 16319,
        }
    }

    fn reciprocal(self) -> f32 {
        match self {
            Bits::Eight => INV_127,
            Bits::Sixteen => INV_16319,
        }
    }
}

/// How the values of a block become integers.
#[derive(Clone, Copy)]
pub struct Quantizer<'k> {
    bits: Bits,
    /// Whether the block is in range.
    pub in_range: V<'k>,
    /// Whether every integer is 0: the block is out of range, or below the floor.
    is_zero: V<'k>,
    /// `A*f32(1/largest)`, +0 for zeros.
    pub scale: V<'k>,
    /// `recip(A)*largest`.
    steps: V<'k>,
}

impl<'k> Quantizer<'k> {
    /// For a block with largest magnitude `amax`, out of range from `limit` on.
    pub fn new(k: &'k Build, bits: Bits, amax: V<'k>, limit: f32) -> Self {
        let in_range = is_below(k, amax, limit);
        let is_zero = in_range.select(is_below(k, amax, QUANTIZER_FLOOR), k.constant(Scalar::Bool.into(), 1));
        let scale = is_zero.select(k.f32(0.0), amax * k.f32(bits.reciprocal()));
        let steps = recip(k, amax) * k.f32(bits.largest() as f32);
        Self { bits, in_range, is_zero, scale, steps }
    }

    /// `clamp(rne(x*steps), -largest, largest)` of a value or a vector of them.
    pub fn integers(&self, k: &'k Build, x: V<'k>) -> V<'k> {
        let wide = |value: V<'k>| match x.ty().width {
            4 => k.vector([value; 4]),
            2 => k.vector([value; 2]),
            _ => value,
        };
        let rounded = rne(k, x * wide(self.steps));
        let largest = self.bits.largest();
        let limited = rounded.max(rounded.constant(-largest as u32)).min(rounded.constant(largest as u32));
        wide(self.is_zero).select(limited.constant(0), limited)
    }
}

/// `X = 128*h + l`: (h, l).
pub fn split(integers: V<'_>) -> (V<'_>, V<'_>) {
    let high = (integers + 64) >> 7;
    (high, integers - (high << 7))
}

/// The bytes of a vector of four integers.
pub fn pack<'k>(k: &'k Build, integers: V<'k>) -> V<'k> {
    k.pack([0, 1, 2, 3].map(|i| integers.part(i)))
}
