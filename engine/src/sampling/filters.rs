//! The filters of docs/numerics.md "Sampling", as thresholds. Each keeps what the function of the same name in
//! `core::numerics::filters` keeps; where a threshold here is only a bound, the exact rule decides behind it.

use std::f32::consts::LN_2;

use unisonic_core::numerics::filters::{Fraction, Sigmas, sigma_grid};
use unisonic_core::numerics::float::{i2f, ord, pow2};

use super::kept::{Kept, MASKED};
use super::order::prefix_end;
use super::passes::{distance, grid_sums, integer_weight, weight_moment, weight_sum};

/// Distances from the largest logit within which a share of the weight is looked for, nearest first. Beyond the last one,
/// which is above 31*ln 2, every weight is 0.
const REACHES: [f32; 4] = [4.0, 8.0, 16.0, 24.0];

/// Keeps logits within n standard deviations of the largest.
pub fn top_n_sigma(kept: &mut Kept, n: Sigmas) {
    let grid = grid_sums(kept.logits());
    let largest = sigma_grid(kept.largest());
    // The rule holds for 0, and up to some distance; the largest on the grid is 2*4000*1024.
    let (mut inside, mut outside) = (0, 8_192_001);
    while outside - inside > 1 {
        let middle = (inside + outside) / 2;
        if n.keep(middle, grid) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    let lowest = largest - inside;
    // Rounding to the grid moves a logit by half a step, and the clamp takes in all below.
    let low = if lowest <= -4_096_000 { MASKED } else { ord(i2f(lowest - 1) * pow2(-10)) };
    kept.retain(low, |_, z| sigma_grid(z) >= lowest);
}

/// Keeps the first k in (ord(z) descending, id ascending).
pub fn top_k(kept: &mut Kept, k: u32) {
    let k = k as usize;
    if k >= kept.logits().len() {
        return;
    }
    let low = kept.bound_of_rank(k);
    if low > MASKED {
        kept.retain(low, |_, _| true);
    }
    kept.rank();
    if let Some(end) = prefix_end(kept.entries(), (k as u128) << 32) {
        kept.retain(end.key, |index, z| ord(z) > end.key || index <= end.index);
    }
}

/// Keeps the ids whose surprisal is nearest to the entropy and that reach a share p.
pub fn typical(kept: &mut Kept, p: Fraction) {
    let z_max = kept.largest();
    let (total, moment) = weight_moment(kept.logits(), z_max);
    // A total has at least the weight of z_max in it.
    let entropy = (moment / total.max(1)) as u32;
    let wanted = p.of(total);
    let deviation = |z: f32| distance(z, z_max).abs_diff(entropy);
    // In steps of a distance: 1, 2, 4, 8 and then all.
    for reach in [1 << 15, 1 << 16, 1 << 17, 1 << 18, u32::MAX] {
        let furthest = entropy.saturating_add(reach);
        // One step more than half of one, by which a distance is rounded.
        let low = if furthest < 24 << 15 { z_max - (furthest + 1) as f32 * pow2(-15) } else { z_max - 25.0 };
        let key = |z: f32| Some(deviation(z)).filter(|&deviation| deviation <= reach).map(|a| -(a as i32));
        kept.weigh(ord(low), z_max, key);
        if weight_of_entries(kept) << 32 >= wanted && !kept.entries().is_empty() {
            break;
        }
    }
    if let Some(end) = prefix_end(kept.entries(), wanted) {
        let low = ord(z_max - 25.0);
        kept.retain(low, |_, z| integer_weight(z, z_max) > 0 && -(deviation(z) as i32) >= end.key);
    }
}

/// Keeps the smallest prefix in (ord(z) descending, id ascending) that reaches a share p.
pub fn top_p(kept: &mut Kept, p: Fraction) {
    let z_max = kept.largest();
    let wanted = p.of(weight_sum(kept.logits(), z_max));
    for reach in REACHES {
        kept.weigh(ord(z_max - reach), z_max, |z| Some(ord(z)));
        if weight_of_entries(kept) << 32 >= wanted {
            break;
        }
    }
    if let Some(end) = prefix_end(kept.entries(), wanted) {
        kept.retain(end.key, |index, z| ord(z) > end.key || index <= end.index);
    }
}

/// Keeps ids with at least a fraction m of the largest weight.
pub fn min_p(kept: &mut Kept, m: Fraction) {
    let z_max = kept.largest();
    let largest = u128::from(integer_weight(z_max, z_max));
    // The smallest weight that is kept.
    let weight = m.of(largest).div_ceil(1 << 32) as u32;
    if weight == 0 {
        return;
    }
    // It is at least 2^-n of the largest, so the distance is at most n*ln 2.
    let n = 31 - weight.ilog2() as i32;
    let low = ord(z_max - (i2f(n) * LN_2 + 0.001));
    kept.retain(low, |_, z| integer_weight(z, z_max) >= weight);
}

fn weight_of_entries(kept: &mut Kept) -> u128 {
    kept.entries().iter().map(|entry| u128::from(entry.weight)).sum()
}
