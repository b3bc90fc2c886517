//! Passes over many logits, written so that the compiler makes vectors of them, for the widest registers that
//! the processor has. Each gives what the scalar functions of `core::numerics` give, and says which.

use multiversion::multiversion;
use unisonic_core::numerics::elementary::EXP2;
use unisonic_core::numerics::filters::GridSums;
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
/// The float `P * 2^n` is never made: its significand is shifted to where `trunc(.. * 2^31)` leaves it. What
/// is below 2^-32 gives 0 either way, so t is held above -33.
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
pub fn weight_sum(z: &[f32], z_max: f32) -> u64 {
    let mut total = 0;
    for part in z.chunks(1 << 16) {
        // The upper halves of 2^16 weights fit u32, and so do the lower ones, whose sum is the whole one less
        // the upper, mod 2^32.
        let (mut upper, mut all) = (0_u32, 0_u32);
        for &z in part {
            let weight = integer_weight(z, z_max);
            upper = upper.wrapping_add(weight >> 16);
            all = all.wrapping_add(weight);
        }
        total += (u64::from(upper) << 16) + u64::from(all.wrapping_sub(upper << 16));
    }
    total
}

/// Sums of the integer weights, and of weight times distance.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn weight_moment(z: &[f32], z_max: f32) -> (u64, u128) {
    let (mut total, mut total_moment) = (0, 0);
    // A weight is below 2^32 and a distance at most 2^21, so 2^10 products fit u64.
    for part in z.chunks(1 << 10) {
        let (mut sum, mut moment) = (0_u64, 0_u64);
        for &z in part {
            let weight = u64::from(integer_weight(z, z_max));
            sum = sum.wrapping_add(weight);
            moment = moment.wrapping_add(weight * u64::from(distance(z, z_max)));
        }
        total += sum;
        total_moment += u128::from(moment);
    }
    (total, total_moment)
}

/// A block with -inf in the places that it does not have: loops of a length that the compiler knows are three times as fast.
#[inline(always)]
fn padded(block: &[f32]) -> [f32; BLOCK] {
    match block.try_into() {
        Ok(whole) => whole,
        Err(_) => {
            let mut whole = [f32::NEG_INFINITY; BLOCK];
            whole.iter_mut().zip(block).for_each(|(whole, &z)| *whole = z);
            whole
        }
    }
}

/// The integer weights of a block.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn weights(block: &[f32], z_max: f32, weights: &mut [u32; BLOCK]) {
    for (weight, &z) in weights.iter_mut().zip(&padded(block)) {
        *weight = integer_weight(z, z_max);
    }
}

/// Buckets of [`histogram`].
pub const BUCKETS: usize = 1024;

/// The bucket of a logit by how far its [`distance`] is from `centre`: 32 buckets to a logit, the last for
/// all that is beyond.
#[inline(always)]
fn bucket(z: f32, z_max: f32, centre: u32) -> u32 {
    let bucket = distance(z, z_max).abs_diff(centre) >> 10;
    if bucket < BUCKETS as u32 { bucket } else { BUCKETS as u32 - 1 }
}

/// Sums of the integer weights by bucket: of logits within 1/32 of each other in distance from `centre`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn histogram(z: &[f32], z_max: f32, centre: u32) -> Box<[u64; BUCKETS]> {
    // Neighbours often are in one bucket: with four sums for each, an addition does not wait for the one before.
    let mut sums = vec![[0_u64; 4]; BUCKETS];
    let (mut weights, mut buckets) = ([0_u32; BLOCK], [0_u32; BLOCK]);
    for block in z.chunks(BLOCK) {
        for ((weight, place), &z) in weights.iter_mut().zip(&mut buckets).zip(&padded(block)) {
            *weight = integer_weight(z, z_max);
            *place = bucket(z, z_max, centre);
        }
        // What fills a block up weighs nothing.
        for (weights, places) in weights.as_chunks::<4>().0.iter().zip(buckets.as_chunks::<4>().0) {
            for i in 0..4 {
                if let Some(sums) = sums.get_mut(places[i] as usize) {
                    sums[i] += u64::from(weights[i]);
                }
            }
        }
    }
    let mut all = Box::new([0; BUCKETS]);
    all.iter_mut().zip(sums).for_each(|(all, [a, b, c, d])| *all = a + b + c + d);
    all
}

/// Which logits of a block, at most [`BLOCK`] of them, are in a bucket of [`histogram`]: bit i for the i-th.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn in_bucket(block: &[f32], z_max: f32, centre: u32, wanted: u32) -> u64 {
    let mut flags = [0; BLOCK];
    for (flag, &z) in flags.iter_mut().zip(&padded(block)) {
        *flag = u8::from(bucket(z, z_max, centre) == wanted);
    }
    mask(&flags) & first(block.len())
}

/// Which logits of a block, at most [`BLOCK`] of them, have an [`ord`] of at least `low`: bit i for the i-th.
pub fn reaching(block: &[f32], low: i32) -> u64 {
    within(block, low, i32::MAX)
}

/// Which logits of a block, at most [`BLOCK`] of them, have an [`ord`] from `low` to `high`: bit i for the i-th.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn within(block: &[f32], low: i32, high: i32) -> u64 {
    mask_within(block, low, high)
}

#[inline(always)]
fn mask_within(block: &[f32], low: i32, high: i32) -> u64 {
    let mut flags = [0; BLOCK];
    for (flag, &z) in flags.iter_mut().zip(&padded(block)) {
        *flag = u8::from((ord(z) >= low) & (ord(z) <= high));
    }
    mask(&flags) & first(block.len())
}

/// Bits below `len`, which is from 1 to 64.
#[inline(always)]
fn first(len: usize) -> u64 {
    u64::MAX >> (BLOCK - len.clamp(1, BLOCK))
}

/// Bit i is flag i, each 0 or 1: eight rows of eight flags become bits of eight bytes at once, then rows and columns change
/// places (Warren, "Hacker's Delight", 7-3).
#[inline(always)]
fn mask(flags: &[u8; BLOCK]) -> u64 {
    let rows = flags.as_chunks::<8>().0.iter().enumerate();
    let mut bits = rows.fold(0, |bits, (row, &eight)| bits | u64::from_le_bytes(eight) << row);
    for (shift, wanted) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0xF0F0_F0F0)] {
        let changed = (bits ^ (bits >> shift)) & wanted;
        bits ^= changed ^ (changed << shift);
    }
    bits
}

/// Places of the bits of a byte, ascending, in the first of eight numbers.
static PLACES: [[u32; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut len) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte][len] = bit;
                len += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// The ids with an [`ord`] from `low` to `high`, ascending, of blocks with a maximum from `low` to below `top`. Eight ids are
/// written for each eight logits, and those after the ones that are meant are written over by the next.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+popcnt", "x86_64+avx2+popcnt"))]
pub fn collect(z: &[f32], maxima: &[i32], [low, high, top]: [i32; 3], ids: &mut Vec<u32>) {
    // In two loops, of which the first is one of vectors.
    let mut masks = vec![0; maxima.len()];
    for ((mask, block), &largest) in masks.iter_mut().zip(z.chunks(BLOCK)).zip(maxima) {
        if largest >= low && largest < top {
            *mask = mask_within(block, low, high);
        }
    }
    ids.clear();
    ids.resize(z.len() + 8, 0);
    let mut len = 0;
    for (mask, first) in masks.into_iter().zip((0_u32..).step_by(BLOCK)) {
        for at in (0..8).filter(|_| mask != 0) {
            let byte = (mask >> (8 * at)) as u8;
            // There is always room: so many ids have been looked at, and eight more.
            let Some(eight) = ids.get_mut(len..).and_then(|rest| rest.first_chunk_mut::<8>()) else { break };
            for (id, place) in eight.iter_mut().zip(&PLACES[byte as usize]) {
                *id = first.wrapping_add(8 * at).wrapping_add(*place);
            }
            len += byte.count_ones() as usize;
        }
    }
    ids.truncate(len);
}

/// `numerics::filters::sigma_grid`, for any z but NaN.
#[inline(always)]
pub fn sigma_grid(z: f32) -> i32 {
    let z = if z > -4000.0 { z } else { -4000.0 };
    let z = if z < 4000.0 { z } else { 4000.0 };
    (z * 1024.0 + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i32
}

/// The sums of top-n-sigma over all logits but -inf.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub fn grid_sums(z: &[f32]) -> GridSums {
    let mut all = GridSums::default();
    // |Z| is below 2^22: 2^9 of them fit i32, and their squares i64.
    for part in z.chunks(1 << 9) {
        let (mut count, mut sum, mut squares) = (0_i32, 0_i32, 0_i64);
        for &z in part {
            let kept = z != f32::NEG_INFINITY;
            let grid = if kept { sigma_grid(z) } else { 0 };
            count = count.wrapping_add(i32::from(kept));
            sum = sum.wrapping_add(grid);
            squares = squares.wrapping_add(i64::from(grid) * i64::from(grid));
        }
        all.count += i128::from(count);
        all.sum += i128::from(sum);
        all.squares += i128::from(squares);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_bit_for_each_logit() {
        for pattern in [0, 1, 1 << 63, u64::MAX, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210_u64] {
            let block: [f32; BLOCK] = std::array::from_fn(|i| if pattern >> i & 1 == 1 { 1.0 } else { -1.0 });
            assert_eq!(reaching(&block, ord(0.0)), pattern);
            assert_eq!(reaching(&block[..20], ord(0.0)), pattern & 0xF_FFFF);
            assert_eq!(in_bucket(&block, 1.0, 0, 64), !pattern, "two logits further");
            assert_eq!(within(&block, ord(-1.0), ord(0.0)), !pattern);
            for len in 1..=BLOCK {
                let mut ids = Vec::new();
                collect(&block[..len], &[ord(1.0)], [ord(0.0), i32::MAX, i32::MAX], &mut ids);
                let right: Vec<u32> = (0..len as u32).filter(|i| pattern >> i & 1 == 1).collect();
                assert_eq!(ids, right);
            }
        }
    }

    #[test]
    fn blocks_are_collected_by_their_maxima() {
        let z: Vec<f32> = (0..200).map(|i| (i % 70) as f32).collect();
        let mut maxima = Vec::new();
        block_maxima(&z, &mut maxima);
        let mut ids = Vec::new();
        collect(&z, &maxima, [ord(60.0), ord(62.0), ord(69.0)], &mut ids);
        let right: Vec<u32> = [0, 1, 2, 3]
            .into_iter()
            .filter(|&block| maxima[block] < ord(69.0))
            .flat_map(|block| (block * BLOCK..200.min((block + 1) * BLOCK)).map(|id| id as u32))
            .filter(|&id| (60.0..=62.0).contains(&z[id as usize]))
            .collect();
        assert!(!right.is_empty());
        assert_eq!(ids, right);
    }
}
