//! Bits, comparison, rounding and the one order of float sums (docs/numerics.md "Ground rules").

/// `2^exponent` for -126 <= exponent <= 127.
pub const fn pow2(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// `Bits(|x|)`: the pattern without its sign. Ordered like |x|; infinities and NaN come last.
pub const fn abs_bits(x: f32) -> u32 {
    x.to_bits() & 0x7FFF_FFFF
}

/// Magnitudes below this are taken as 0: by [`snap`], and by attention for the values of a chunk.
pub const SNAP_LIMIT: f32 = pow2(-60);

/// `+0 if Bits(|x|) < Bits(2^-60), else x`. Both zeros become +0.
pub fn snap(x: f32) -> f32 {
    if abs_bits(x) < SNAP_LIMIT.to_bits() { 0.0 } else { x }
}

/// Nearest integer, ties to even, for |v| < 2^22: `Bits(v + 12582912.0) - 0x4B400000`.
#[inline]
pub fn rne(v: f32) -> i32 {
    (v + ROUNDER).to_bits().wrapping_sub(0x4B40_0000) as i32
}

/// 1.5 * 2^23: adding it rounds to an integer.
pub const ROUNDER: f32 = 12_582_912.0;

/// The largest |x|, found on bit patterns: `max of Bits(x) & 0x7FFFFFFF`, read back as a float. +0 for no
/// element.
pub fn amax(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |largest, &x| largest.max(abs_bits(x))))
}

/// The ordered integer of a float, used for every comparison: -0 < +0, and NaN has its place.
///
/// `i = Bits(x) as i32; i < 0 ? i ^ 0x7FFFFFFF : i`
#[inline]
pub const fn ord(x: f32) -> i32 {
    let i = x.to_bits() as i32;
    if i < 0 { i ^ 0x7FFF_FFFF } else { i }
}

/// `x`, or the nearer of `low` and `high` when [`ord`] places x outside them.
#[inline]
pub fn clamp(x: f32, low: f32, high: f32) -> f32 {
    if ord(x) < ord(low) {
        low
    } else if ord(x) > ord(high) {
        high
    } else {
        x
    }
}

/// i32 to f32, correctly rounded. Equal to `f32(I >> 12)*4096 + f32(I & 4095)`.
#[inline]
pub fn i2f(i: i32) -> f32 {
    i as f32
}

/// `F(I) = i2f(I(h))*128 + i2f(I(l))`: an integer sum from its values on the two planes, in this order.
pub fn join_planes(high: i32, low: i32) -> f32 {
    i2f(high) * 128.0 + i2f(low)
}

/// Halving tree over N lanes, N a power of two: for h = N/2, ..., 2, 1: `L_i = L_i + L_{i+h}`, i < h. The
/// result is L_0.
pub fn tree<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of a row: 256 lanes start at +0, element j is added to lane j mod 256 in ascending order, then
/// [`tree`].
pub fn tree256(values: impl IntoIterator<Item = f32>) -> f32 {
    let mut lanes = [0.0; 256];
    for (j, value) in values.into_iter().enumerate() {
        lanes[j % 256] += value;
    }
    tree(lanes)
}

/// `f32(1/x)`: the reciprocal rounded once. For constants of a plan (lengths, soft caps), never on the way of
/// a token.
pub fn reciprocal_constant(x: f32) -> f32 {
    1.0 / x
}

/// `f32(1/n)` of a row length; n <= 2^24, so that n itself is exact.
pub fn reciprocal_of_len(n: usize) -> f32 {
    debug_assert!(n <= 1 << 24, "row of {n} values: lengths up to 2^24 are exact");
    reciprocal_constant(n as f32)
}

/// `f32(1/16319)`, the step of a 16-bit plane pair.
pub const INV_16319: f32 = f32::from_bits(0x3880_8285);
/// `f32(1/127)`, the step of an 8-bit plane.
pub const INV_127: f32 = f32::from_bits(0x3C01_0204);
/// `f32(log2(e))`.
pub const LOG2E: f32 = f32::from_bits(0x3FB8_AA3B);
