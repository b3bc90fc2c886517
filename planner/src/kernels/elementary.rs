//! `core::numerics::{float, elementary, range}` on values of a kernel: the same operations in the same order.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::float::{ROUNDER, SNAP_LIMIT};

/// `Bits(|x|)`, as i32: patterns without a sign are ordered like integers.
pub fn abs_bits(x: V<'_>) -> V<'_> {
    x.cast(Scalar::I32) & 0x7FFF_FFFF
}

/// Whether |x| is below a limit; false for infinities and NaN.
pub fn is_below<'k>(k: &'k Build, x: V<'k>, limit: f32) -> V<'k> {
    abs_bits(x).lt(k.i32(limit.to_bits() as i32))
}

/// `+0 if |x| < 2^-60, else x`.
pub fn snap<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    is_below(k, x, SNAP_LIMIT).select(k.f32(0.0), x)
}

/// Nearest integer, ties to even, for |v| < 2^22.
pub fn rne<'k>(k: &'k Build, v: V<'k>) -> V<'k> {
    (v + k.f32(ROUNDER)).cast(Scalar::I32) - 0x4B40_0000
}

/// `1/x` for 2^-125 <= x <= 2^125.
pub fn recip<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    let mut r = (k.i32(0x7EF3_11C7) - x.cast(Scalar::I32)).cast(Scalar::F32);
    for _ in 0..3 {
        r = r * (k.f32(2.0) - x * r);
    }
    r
}

/// `1/sqrt(x)` for 2^-125 <= x <= 2^125.
pub fn rsqrt<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    let half_bits = x.cast(Scalar::U32) >> 1;
    let mut y = (k.u32(0x5F37_5A86) - half_bits).cast(Scalar::F32);
    let h = k.f32(0.5) * x;
    for _ in 0..3 {
        y = y * (k.f32(1.5) - (h * y) * y);
    }
    y
}
