//! W16: float matrices as two int8 planes and a scale for each 32 elements of a row
//! (docs/numerics.md "Linear layer", row W16 of the table).

use super::a16::{A16Row, PLANE_ALIGN, SUPERBLOCK, plane_len, quantize_16};
use super::float::{amax, i2f, pow2, snap};
use super::integer::dot_n;
use super::linear::finish;
use super::range::W16_LIMIT;
use crate::format::blocks::BadBlock;

/// Elements that share a scale.
pub const BLOCK: usize = PLANE_ALIGN;

/// A row of a W16 matrix: `w_i ≈ (128*high_i + low_i) * scales[i / 32]`.
#[derive(Clone, Copy, Debug)]
pub struct W16Row<'a> {
    /// wh; the row's length padded to a multiple of 32 with zeros.
    pub high: &'a [i8],
    /// wl; as long as `high`.
    pub low: &'a [i8],
    /// d, one a block of 32.
    pub scales: &'a [f32],
}

/// Length of the planes of a row of `len` elements.
pub fn w16_plane_len(len: usize) -> usize {
    plane_len(len)
}

/// Number of scales of a row of `len` elements.
pub fn w16_scales_len(len: usize) -> usize {
    len.div_ceil(BLOCK)
}

/// Turns a row of floats into W16 as a matrix is loaded; an error where a block holds a value above 2^24 in magnitude,
/// an infinity or a NaN.
///
/// For each block of 32, the last one padded with zeros, with A = amax(block): `A < 2^-40: X = 0, d = 0`; else
/// `d = A*f32(1/16319), X = clamp(rne(w*(recip(A)*16319)), -16319, 16319)`, split into planes.
pub fn quantize_w16(
    weights: &[f32],
    high: &mut [i8],
    low: &mut [i8],
    scales: &mut [f32],
) -> Result<(), BadBlock> {
    let planes = high.chunks_mut(BLOCK).zip(low.chunks_mut(BLOCK));
    let blocks = weights.chunks(BLOCK).zip(planes).zip(scales).enumerate();
    for (block, ((weights, (high, low)), scale)) in blocks {
        let largest = amax(weights);
        // The limit is itself allowed, and quantisers refuse what reaches theirs.
        let above = largest.to_bits() > W16_LIMIT.to_bits();
        if above || !quantize_16(weights, pow2(25), high, low, scale) {
            return Err(BadBlock::Magnitude { block, found: largest });
        }
    }
    Ok(())
}

/// `y = snap(acc [+ bias])`.
pub fn w16_linear_row(row: &W16Row<'_>, x: &A16Row<'_>, bias: Option<f32>) -> f32 {
    finish(w16_dot_row(row, x), bias)
}

/// `acc` of a row, before bias and snap: `for s ascending: acc = acc + snap(T_s*(D_s*128))`.
pub fn w16_dot_row(row: &W16Row<'_>, x: &A16Row<'_>) -> f32 {
    let mut acc = 0.0;
    for (s, &scale) in x.scales.iter().enumerate() {
        acc += snap(w16_superblock_total(row, x, s) * (scale * 128.0));
    }
    acc
}

/// `T_s`: blocks b ascending, T = +0: `T = T + (i2f(HH_b)*128 + i2f(C_b))*d_b`.
pub fn w16_superblock_total(row: &W16Row<'_>, x: &A16Row<'_>, s: usize) -> f32 {
    let first = s * (SUPERBLOCK / BLOCK);
    let end = row.scales.len().min(first + SUPERBLOCK / BLOCK);
    let mut total = 0.0;
    for b in first..end {
        let (hh, c) = w16_block_dot(row, x, b);
        total += (i2f(hh) * 128.0 + i2f(c)) * row.scales[b];
    }
    total
}

/// `HH = sum wh*xh` and `C = sum wh*xl + wl*xh` of block b; the product of the low planes is dropped by definition.
pub fn w16_block_dot(row: &W16Row<'_>, x: &A16Row<'_>, b: usize) -> (i32, i32) {
    let block = |plane| <[i8]>::as_chunks::<BLOCK>(plane).0[b];
    let (wh, wl): ([i8; BLOCK], [i8; BLOCK]) = (block(row.high), block(row.low));
    let (xh, xl) = (block(x.high), block(x.low));
    (dot_n(&wh, &xh), dot_n(&wh, &xl) + dot_n(&wl, &xh))
}
