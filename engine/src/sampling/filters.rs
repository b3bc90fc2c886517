//! The filters of docs/numerics.md "Sampling", as thresholds. Each keeps what the function of the same name
//! in `core::numerics::filters` keeps; where a threshold here is only a bound, the exact rule decides behind
//! it.

use unisonic_core::numerics::elementary::log;
use unisonic_core::numerics::filters::{Fraction, Sigmas};
use unisonic_core::numerics::float::{i2f, ord, pow2};

use super::kept::{Kept, MASKED, from_ord};
use super::order::{Entry, least, prefix_end};
use super::passes::{
    distance, grid_sums, histogram, in_bucket, integer_weight, reaching, sigma_grid, weight_moment,
    weight_sum,
};

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
    let key = kept.key_of_rank(k);
    // Of equals of the last one, as many as are left when all above are in.
    let mut equals = k;
    kept.retain(key, |_, z| {
        equals -= usize::from(ord(z) > key);
        true
    });
    kept.retain(key, |_, z| {
        let is_equal = ord(z) == key;
        let keep = !is_equal || equals > 0;
        equals -= usize::from(is_equal && keep);
        keep
    });
}

/// Keeps the ids whose surprisal is nearest to the entropy and that reach a share p.
pub fn typical(kept: &mut Kept, p: Fraction) {
    let z_max = kept.largest();
    let (total, moment) = weight_moment(kept.logits(), z_max);
    // A total has at least the weight of z_max in it.
    let entropy = (moment / u128::from(total.max(1))) as u32;
    let deviation = |z: f32| distance(z, z_max).abs_diff(entropy);
    let end = end_of_share(kept, z_max, entropy, p.of(total.into()), |z| -(deviation(z) as i32));
    let Some(Entry { key, .. }) = end else { return };
    let (nearest, furthest) = (entropy.saturating_sub(key.unsigned_abs()), entropy + key.unsigned_abs());
    if furthest > HAS_WEIGHT {
        let low = below(z_max, furthest);
        kept.retain(low, |_, z| deviation(z) <= key.unsigned_abs() && integer_weight(z, z_max) > 0);
        return;
    }
    // A larger logit is never further away.
    let first_within = |furthest: u32| {
        least(MASKED.into(), ord(z_max).into(), |key| distance(from_ord(key as i32), z_max) <= furthest)
            as i32
    };
    let high = nearest.checked_sub(1).map_or(i32::MAX, |nearer| first_within(nearer) - 1);
    kept.span(first_within(furthest), high);
}

/// An id of this [`distance`], 21 logits, has a weight for sure: `exp2(-21*LOG2E)` is 2^-30.3, and weights end at 2^-31.
const HAS_WEIGHT: u32 = 21 << 15;

/// Keeps the smallest prefix in (ord(z) descending, id ascending) that reaches a share p.
pub fn top_p(kept: &mut Kept, p: Fraction) {
    kept.settle();
    let z_max = kept.largest();
    let total = weight_sum(kept.logits(), z_max);
    if let Some(end) = end_of_share(kept, z_max, 0, p.of(total.into()), ord) {
        kept.cut(end.key, end.index);
    }
}

/// Keeps ids with at least a fraction m of the largest weight.
pub fn min_p(kept: &mut Kept, m: Fraction) {
    kept.settle();
    let z_max = kept.largest();
    let largest = u128::from(integer_weight(z_max, z_max));
    // The smallest weight that is kept.
    let weight = m.of(largest).div_ceil(1 << 32) as u32;
    if weight == 0 {
        return;
    }
    // The distance of that weight; a thousandth more than covers every rounding, here and in weights.
    let furthest = -log(i2f(weight.min(i32::MAX as u32) as i32) * pow2(-31));
    let (low, sure) = (ord(z_max - (furthest + 0.001)), ord(z_max - (furthest - 0.001)));
    kept.retain(low, |_, z| ord(z) > sure || integer_weight(z, z_max) >= weight);
}

/// Where `sum of weights * 2^32` reaches `wanted` in an order by how far the [`distance`] of an id is from
/// `centre`, nearest first; within one such deviation by `key`, larger first, then by index. At least one id.
/// A larger deviation never has a larger key.
fn end_of_share(
    kept: &mut Kept,
    z_max: f32,
    centre: u32,
    wanted: u128,
    key: impl Fn(f32) -> i32,
) -> Option<Entry> {
    // Mostly a few ids have it all: those within 4 or 8 logits.
    for reach in [4 << 15, 8 << 15] {
        let low = below(z_max, centre.saturating_add(reach));
        if !kept.few_reach(low) {
            break;
        }
        let near = |z: f32| distance(z, z_max).abs_diff(centre) <= reach;
        kept.weigh(low, z_max, |block| reaching(block, low), |z| near(z).then(|| key(z)));
        let sum: u64 = kept.entries().iter().map(|entry| u64::from(entry.weight)).sum();
        if sum > 0 && u128::from(sum) << 32 >= wanted {
            return prefix_end(kept.entries(), wanted);
        }
    }
    let sums = histogram(kept.logits(), z_max, centre);
    let mut sum = 0;
    for (bucket, &more) in (0..).zip(sums.iter()) {
        if more > 0 && u128::from(sum + more) << 32 >= wanted {
            kept.weigh(MASKED, z_max, |block| in_bucket(block, z_max, centre, bucket), |z| Some(key(z)));
            return prefix_end(kept.entries(), wanted.saturating_sub(u128::from(sum) << 32));
        }
        sum += more;
    }
    None
}

/// Not above [`ord`] of any logit with a weight and a [`distance`] of at most this.
fn below(z_max: f32, furthest: u32) -> i32 {
    // One step more than half of one, by which a distance is rounded. Weights end before 24.
    ord(if furthest < 24 << 15 { z_max - (furthest + 1) as f32 * pow2(-15) } else { z_max - 25.0 })
}
