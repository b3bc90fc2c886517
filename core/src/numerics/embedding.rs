//! One row of an embedding table as f32 (docs/numerics.md "Linear layer", "Embedding rows").

use super::float::{abs_bits, i2f, pow2, snap};
use super::integer::join;
use super::w16::{BLOCK, W16Row};
use crate::format::blocks::{DecodedRow, ScaleLayout};

/// What is smaller than this in a row of the host counts as zero.
pub const HOST_FLOOR: f32 = pow2(-100);

/// Row that the host gives; `out` has its length. Sums of snapped values are multiples of 2^-83, so what a model has made
/// goes through unchanged, and subnormals, which some hardware flushes, do not enter.
///
/// `Bits(|x|) < Bits(2^-100) ? 0 with the sign of x : x`
pub fn host_row(x: &[f32], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        let floored = f32::from_bits(x.to_bits() & 0x8000_0000);
        *out = if abs_bits(x) < HOST_FLOOR.to_bits() { floored } else { x };
    }
}

/// Row of a table in quantised blocks; `out` has one value for each element.
///
/// | format | element |
/// |---|---|
/// | blocks with a scale | `snap(i2f(q)*d)` |
/// | sub-blocks with integer scales | `snap(i2f(sc*q)*d)`, sc*q exact |
/// | Q4_1, Q5_1 | `snap(RN(d*q) + m)` |
/// | Q2_K, Q4_K, Q5_K | `snap(RN(RN(d*sc)*q) - RN(dmin*mn))` |
pub fn embed_row(row: &DecodedRow, out: &mut [f32]) {
    let has_minimum = row.format.has_minimum();
    let block_elems = row.format.elems();
    let sub_len = match row.format.scale_layout() {
        ScaleLayout::Block32 | ScaleLayout::Block256 => None,
        ScaleLayout::Sub16 => Some(16),
        ScaleLayout::Sub32 => Some(32),
    };
    for (i, (out, &q)) in out.iter_mut().zip(&row.q).enumerate() {
        let block = i / block_elems;
        let d = row.scales[block];
        let q = i32::from(q);
        *out = snap(match (sub_len, has_minimum) {
            (None, false) => i2f(q) * d,
            (None, true) => d * i2f(q) + row.minima[block],
            (Some(sub_len), false) => i2f(i32::from(row.sub_scales[i / sub_len]) * q) * d,
            (Some(sub_len), true) => {
                let scale = d * i2f(i32::from(row.sub_scales[i / sub_len]));
                let minimum = row.minima[block] * i2f(i32::from(row.sub_minima[i / sub_len]));
                scale * i2f(q) - minimum
            }
        });
    }
}

/// Row of a W16 table: `snap(i2f(X)*d)`.
pub fn embed_w16_row(row: &W16Row<'_>, out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = snap(i2f(join(row.high[i], row.low[i])) * row.scales[i / BLOCK]);
    }
}

/// Gemma's `f32(sqrt(n_embd))`, by which its embedding rows are multiplied. A constant of the plan.
pub fn embedding_scale(n_embd: u32) -> f32 {
    // The f64 root has more than twice the bits of the result, so rounding twice equals rounding once.
    f64::from(n_embd).sqrt() as f32
}
