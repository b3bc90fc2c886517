//! Activations: A16, two int8 planes and one scale for each superblock of 256 (docs/numerics.md "Activations: A16").

use super::elementary::recip;
use super::float::{INV_16319, abs_bits, amax, rne};
use super::integer::split;
use super::range::{ACTIVATION_LIMIT, QUANTIZER_FLOOR, is_below};

/// Values that share a scale. The last superblock of a row may be shorter.
pub const SUPERBLOCK: usize = 256;

/// Planes are padded with zeros to a multiple of this.
pub const PLANE_ALIGN: usize = 32;

/// The largest integer of a plane pair: 127*128 + 63.
pub const MAX_16: i32 = 16319;

/// A quantised activation row: `x_i ≈ (128*high_i + low_i) * scales[i / 256]`.
#[derive(Clone, Copy, Debug)]
pub struct A16Row<'a> {
    /// h in [-127, 127]; length a multiple of [`PLANE_ALIGN`], zeros past the row.
    pub high: &'a [i8],
    /// l in [-64, 63]; as long as `high`.
    pub low: &'a [i8],
    /// D, one a superblock.
    pub scales: &'a [f32],
}

/// Length of the planes of a row of `len` values.
pub fn plane_len(len: usize) -> usize {
    len.next_multiple_of(PLANE_ALIGN)
}

/// Number of scales of a row of `len` values.
pub fn scales_len(len: usize) -> usize {
    len.div_ceil(SUPERBLOCK)
}

/// Quantises a row of f32. Returns whether every superblock kept the range contract; one that did not is written as
/// zeros, and the row has no meaning.
///
/// `high` and `low` are [`plane_len`] long, `scales` [`scales_len`]. For each superblock, [`quantize_16`].
#[must_use]
pub fn quantize_a16(x: &[f32], high: &mut [i8], low: &mut [i8], scales: &mut [f32]) -> bool {
    let mut in_range = true;
    let planes = high.chunks_mut(SUPERBLOCK).zip(low.chunks_mut(SUPERBLOCK));
    for ((x, (high, low)), scale) in x.chunks(SUPERBLOCK).zip(planes).zip(scales) {
        in_range &= quantize_16(x, ACTIVATION_LIMIT, high, low, scale);
    }
    in_range
}

/// Sixteen-bit quantiser of one block, shared by A16, K16, Q16 and W16. Returns whether the block is in range.
///
/// ```text
/// A = amax(block);   A >= limit: X = 0, D = 0, out of range;   A < 2^-40: X = 0, D = 0
/// inv = recip(A);  D = A*f32(1/16319);  X_i = clamp(rne(x_i*(inv*16319)), -16319, 16319)
/// h_i = (X_i + 64) >> 7;  l_i = X_i - 128*h_i
/// ```
/// Planes may be longer than the block: the rest becomes zero.
#[must_use]
pub fn quantize_16(x: &[f32], limit: f32, high: &mut [i8], low: &mut [i8], scale: &mut f32) -> bool {
    high.fill(0);
    low.fill(0);
    *scale = 0.0;
    let a = amax(x);
    if !is_below(a, limit) {
        return false;
    }
    if abs_bits(a) < QUANTIZER_FLOOR.to_bits() {
        return true;
    }
    *scale = a * INV_16319;
    let steps = recip(a) * 16319.0;
    for (i, &x) in x.iter().enumerate() {
        (high[i], low[i]) = split(rne(x * steps).clamp(-MAX_16, MAX_16));
    }
    true
}
