//! Linear layer over quantised blocks: `y[r] = sum_k W[r,k]*x[k]` (docs/numerics.md "Linear layer").
//!
//! The integers of a weight block are multiplied with both planes of the activation exactly; floats come in once a
//! block (formats of 32) or once a superblock (all others), in ascending order.

use super::a16::{A16Row, SUPERBLOCK};
use super::float::{i2f, join_planes, snap};
use super::integer::{dot, dot_n, sum_n};
use crate::format::blocks::{DecodedRow, ScaleLayout};

/// `y = snap(acc [+ bias])`.
pub fn linear_row(row: &DecodedRow, x: &A16Row<'_>, bias: Option<f32>) -> f32 {
    finish(dot_row(row, x), bias)
}

/// `snap(acc [+ bias])`.
pub fn finish(acc: f32, bias: Option<f32>) -> f32 {
    match bias {
        Some(bias) => snap(acc + bias),
        None => snap(acc),
    }
}

/// `acc` of a row, before bias and snap: `acc = +0; for s ascending: acc = acc + T_s*D_s`.
pub fn dot_row(row: &DecodedRow, x: &A16Row<'_>) -> f32 {
    let mut acc = 0.0;
    for (s, &scale) in x.scales.iter().enumerate() {
        acc += superblock_total(row, x, s) * scale;
    }
    acc
}

/// `T_s`: superblock s of the row times superblock s of the activation, without the activation's scale.
pub fn superblock_total(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> f32 {
    match row.format.scale_layout() {
        ScaleLayout::Block32 => total_of_blocks(row, x, s),
        ScaleLayout::Sub16 => total_of_sub_blocks::<16>(row, x, s),
        ScaleLayout::Sub32 => total_of_sub_blocks::<32>(row, x, s),
        ScaleLayout::Block256 => total_of_whole(row, x, s),
    }
}

/// The integer sum I on both planes: (I(h), I(l)).
pub type PlaneSums = (i32, i32);

/// `I` of sub-block `index`, N elements long, on both planes.
pub fn sub_block_dot<const N: usize>(row: &DecodedRow, x: &A16Row<'_>, index: usize) -> PlaneSums {
    let q = sub_block::<N>(&row.q, index);
    (dot_n(q, sub_block(x.high, index)), dot_n(q, sub_block(x.low, index)))
}

/// `bs`: the exact sum of X over sub-block `index`, N elements long. |bs| < 2^19 for N = 32.
pub fn sub_block_sum<const N: usize>(x: &A16Row<'_>, index: usize) -> i32 {
    128 * sum_n::<N>(sub_block(x.high, index)) + sum_n::<N>(sub_block(x.low, index))
}

/// Blocks of 32 with a scale, b ascending, T = +0:
/// `T = T + F(I_b)*d_b`, then, where the format has a minimum, `T = T + i2f(bs_b)*m_b`.
fn total_of_blocks(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> f32 {
    let first = s * (SUPERBLOCK / 32);
    let end = row.scales.len().min(first + SUPERBLOCK / 32);
    let mut total = 0.0;
    for b in first..end {
        let (high, low) = sub_block_dot::<32>(row, x, b);
        total += join_planes(high, low) * row.scales[b];
        if row.format.has_minimum() {
            total += i2f(sub_block_sum::<32>(x, b)) * row.minima[b];
        }
    }
    total
}

/// `I = sum_j sc_j*I_j` over the sub-blocks of superblock s, on both planes.
pub fn scaled_dot<const N: usize>(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> PlaneSums {
    let mut sums = (0_i32, 0_i32);
    for j in s * (SUPERBLOCK / N)..(s + 1) * (SUPERBLOCK / N) {
        let scale = i32::from(row.sub_scales[j]);
        let (high, low) = sub_block_dot::<N>(row, x, j);
        sums.0 += scale * high;
        sums.1 += scale * low;
    }
    sums
}

/// `I2 = sum_j mn_j*bs_j` over the sub-blocks of superblock s. |I2| < 2^28.
pub fn scaled_sum<const N: usize>(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> i32 {
    let sub_blocks = s * (SUPERBLOCK / N)..(s + 1) * (SUPERBLOCK / N);
    sub_blocks.map(|j| i32::from(row.sub_minima[j]) * sub_block_sum::<N>(x, j)).sum()
}

/// Superblocks with integer scales of sub-blocks: `T = F(I)*d`, and with minima `T = F(I)*d - i2f(I2)*dmin`.
fn total_of_sub_blocks<const N: usize>(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> f32 {
    let (high, low) = scaled_dot::<N>(row, x, s);
    let total = join_planes(high, low) * row.scales[s];
    if row.format.has_minimum() { total - i2f(scaled_sum::<N>(row, x, s)) * row.minima[s] } else { total }
}

/// `I = sum_256` of superblock s, on both planes.
pub fn whole_dot(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> PlaneSums {
    let at = s * SUPERBLOCK..(s + 1) * SUPERBLOCK;
    let q = &row.q[at.clone()];
    (dot(q, &x.high[at.clone()]), dot(q, &x.low[at]))
}

/// One scale for 256 elements: `T = F(I)*d`.
fn total_of_whole(row: &DecodedRow, x: &A16Row<'_>, s: usize) -> f32 {
    let (high, low) = whole_dot(row, x, s);
    join_planes(high, low) * row.scales[s]
}

/// Elements `N*index .. N*(index + 1)` of a plane.
fn sub_block<const N: usize>(plane: &[i8], index: usize) -> &[i8; N] {
    &plane.as_chunks::<N>().0[index]
}
