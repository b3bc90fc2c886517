//! Passes over many logits, written so that the compiler makes vectors of them, for the widest registers that the
//! processor has. Each gives what the scalar functions of `core::numerics` give, and says which.

use multiversion::multiversion;
use unisonic_core::numerics::elementary::EXP2;
use unisonic_core::numerics::filters::{GridSums, sigma_grid};
use unisonic_core::numerics::float::{LOG2E, ROUNDER, ord};

/// Ids of a block: the maxima of blocks say which of them need no look.
pub const BLOCK: usize = 64;

/// The largest [`ord`] of each block of [`BLOCK`] logits, the last one short.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn block_maxima(z: &[f32], maxima: &mut Vec<i32>) {
    let (blocks, rest) = z.as_chunks::<BLOCK>();
    maxima.clear();
    maxima.extend(blocks.iter().map(|block| block.iter().fold(i32::MIN, |largest, &z| largest.max(ord(z)))));
    maxima.extend(rest.iter().map(|&z| ord(z)).max());
}

/// `numerics::filters::integer_weight`: for z <= z_max, -inf included.
///
/// The float `P * 2^n` is never made: its significand is shifted to where `trunc(.. * 2^31)` leaves it. What is below 2^-32
/// gives 0 either way, so t is held above -33.
#[inline(always)]
pub fn integer_weight(z: f32, z_max: f32) -> u32 {
    let t = (z - z_max) * LOG2E;
    let t = if t < -33.0 { -33.0 } else { t };
    let rounded = t + ROUNDER;
    let r = t - (rounded - ROUNDER);
    let [c0, c1, c2, c3, c4, c5] = EXP2;
    let p = ((((c5 * r + c4) * r + c3) * r + c2) * r + c1) * r + c0;
    let power = p.to_bits().wrapping_add(rounded.to_bits() << 23);
    let significand = (power << 8) | 0x8000_0000;
    let shift = 127_u32.wrapping_sub(power >> 23);
    if shift < 32 { significand >> shift } else { 0 }
}

/// `numerics::filters::distance`: for z <= z_max, -inf included.
#[inline(always)]
pub fn distance(z: f32, z_max: f32) -> u32 {
    let below = z_max - z;
    let below = if below > 64.0 { 64.0 } else { below };
    ((below * 32_768.0 + ROUNDER).to_bits()).wrapping_sub(ROUNDER.to_bits())
}

/// Sum of the integer weights.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn weight_sum(z: &[f32], z_max: f32) -> u128 {
    // Halves of weights are added in u32: (2^16 - 1) * 2^16 and 2^15 * 2^16 both fit.
    let part = |part: &[f32]| {
        let (mut high, mut low) = (0_u32, 0_u32);
        for &z in part {
            let weight = integer_weight(z, z_max);
            high = high.wrapping_add(weight >> 16);
            low = low.wrapping_add(weight & 0xFFFF);
        }
        (u128::from(high) << 16) + u128::from(low)
    };
    z.chunks(1 << 16).map(part).sum()
}

/// Sums of the integer weights, and of weight times distance.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn weight_moment(z: &[f32], z_max: f32) -> (u128, u128) {
    // A weight is below 2^32 and a distance at most 2^21, so 2^10 products fit u64.
    let part = |part: &[f32]| {
        let (mut sum, mut moment) = (0_u64, 0_u64);
        for &z in part {
            let weight = u64::from(integer_weight(z, z_max));
            sum = sum.wrapping_add(weight);
            moment = moment.wrapping_add(weight * u64::from(distance(z, z_max)));
        }
        (u128::from(sum), u128::from(moment))
    };
    z.chunks(1 << 10).map(part).fold((0, 0), |(sum, moment), (s, m)| (sum + s, moment + m))
}

/// The integer weights of a block.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn weights(z: &[f32], z_max: f32, weights: &mut [u32]) {
    for (weight, &z) in weights.iter_mut().zip(z) {
        *weight = integer_weight(z, z_max);
    }
}

/// The sums of top-n-sigma over all logits but -inf.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn grid_sums(z: &[f32]) -> GridSums {
    // |Z| is below 2^22: 2^9 of them fit i32, and their squares i64.
    let part = |part: &[f32]| {
        let (mut count, mut sum, mut squares) = (0_i32, 0_i32, 0_i64);
        for &z in part {
            let kept = z != f32::NEG_INFINITY;
            let grid = if kept { sigma_grid(z) } else { 0 };
            count = count.wrapping_add(i32::from(kept));
            sum = sum.wrapping_add(grid);
            squares = squares.wrapping_add(i64::from(grid) * i64::from(grid));
        }
        GridSums { count: count.into(), sum: sum.into(), squares: squares.into() }
    };
    z.chunks(1 << 9).map(part).fold(GridSums::default(), |all, part| GridSums {
        count: all.count + part.count,
        sum: all.sum + part.sum,
        squares: all.squares + part.squares,
    })
}
