//! Attention of one query head over its sequence (docs/numerics.md "KV cache and attention").
//!
//! Sixteen lanes are sixteen keys while scores are made, and sixteen dimensions while values are summed.

use unisonic_core::numerics::attention::{query_scale, visible_in_chunk};
use unisonic_core::numerics::elementary as scalar;
use unisonic_core::numerics::float::{INV_16319, LOG2E, SNAP_LIMIT, abs_bits as abs_bits_of, pow2, tree};
use unisonic_core::numerics::fwht::fwht_scales;

use super::elementary::{abs_bits, clamp, exp2_pair, rne, scale_exponent, snap, soft_cap};
use super::heads;
use super::kv::{KEYS, KvCache, LOW_BIAS, Parts};
use crate::simd::{LANES, Simd};

/// Longest head.
pub const MAX_HEAD_LEN: usize = 512;
/// Vectors of keys in a block.
const GROUPS: usize = KEYS / LANES;
/// Chunks of a group in the merging order.
const GROUP_CHUNKS: usize = unisonic_core::numerics::merge::GROUP_CHUNKS;

/// A quantised query head.
pub struct Query<'a> {
    /// Q16 high plane.
    pub high: &'a [i8],
    /// Q16 low plane.
    pub low: &'a [i8],
    /// Q16 scale.
    pub scale: f32,
}

/// The constants of an attention step.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Score scale.
    pub kappa: f32,
    /// Sliding window.
    pub window: Option<u32>,
    /// Soft cap of the scores.
    pub soft_cap: Option<f32>,
}

/// Where a sequence's keys are.
pub struct Keys<'a> {
    /// The layer's cache.
    pub cache: &'a KvCache,
    /// Which of its heads.
    pub head: usize,
    /// The sequence's pages.
    pub pages: &'a [u32],
    /// Position of the query.
    pub position: u32,
}

/// M, L and O of some keys.
struct State {
    max_exponent: i32,
    sum: f32,
    output: [f32; MAX_HEAD_LEN],
}

/// Attention of a head into `out`.
///
/// # Safety
/// As for [`Simd`]. The head is a multiple of 16 long and at most [`MAX_HEAD_LEN`].
#[inline(always)]
pub unsafe fn attend<S: Simd>(query: &Query<'_>, scores: Scores, keys: &Keys<'_>, out: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe {
        let empty = || State { max_exponent: 0, sum: 0.0, output: [0.0; MAX_HEAD_LEN] };
        let (mut chunk, mut group, mut total) = (empty(), empty(), empty());
        let (mut open_group, mut has_total) = (None, false);
        let last = keys.position / KEYS as u32;
        let first =
            scores.window.map_or(0, |window| (keys.position + 1).saturating_sub(window) / KEYS as u32);
        for number in first..=last {
            let visible = visible_in_chunk(keys.position, scores.window, number);
            let block = keys.cache.block(keys.pages[number as usize], keys.head);
            attend_block::<S>(query, scores, block, visible, &mut chunk);
            let of_group = number as usize / GROUP_CHUNKS;
            if open_group == Some(of_group) {
                merge::<S>(&mut group, &chunk, out.len());
            } else {
                if open_group.is_some() {
                    close_group::<S>(&mut group, &mut total, &mut has_total, out.len());
                }
                std::mem::swap(&mut group, &mut chunk);
                open_group = Some(of_group);
            }
        }
        close_group::<S>(&mut group, &mut total, &mut has_total, out.len());
        let inverse = S::splat_f(scalar::recip(total.sum));
        for d in (0..out.len()).step_by(LANES) {
            let o = S::mul_f(S::load_f(total.output.as_ptr().add(d)), inverse);
            S::store_f(out.as_mut_ptr().add(d), snap::<S>(o));
        }
        heads::fwht::<S>(out);
        heads::scale::<S>(out, fwht_scales(out.len()).1);
    }
}

/// `O = snap(O)`, then level 2 of the merging.
#[inline(always)]
unsafe fn close_group<S: Simd>(group: &mut State, total: &mut State, has_total: &mut bool, head_len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for d in (0..head_len).step_by(LANES) {
            let o = group.output.as_mut_ptr().add(d);
            S::store_f(o, snap::<S>(S::load_f(o)));
        }
        if *has_total {
            merge::<S>(total, group, head_len);
        } else {
            std::mem::swap(total, group);
            *has_total = true;
        }
    }
}

/// `core::numerics::merge::State::merge`.
#[inline(always)]
unsafe fn merge<S: Simd>(state: &mut State, later: &State, head_len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let raises = later.max_exponent > state.max_exponent;
        let below = -(later.max_exponent - state.max_exponent).abs();
        let factor = if below < -32 { 0.0 } else { pow2(below) };
        let g = S::splat_f(factor);
        for d in (0..head_len).step_by(LANES) {
            let at = state.output.as_mut_ptr().add(d);
            let (mine, other) = (S::load_f(at), S::load_f(later.output.as_ptr().add(d)));
            let sum = if raises {
                S::add_f(snap::<S>(S::mul_f(mine, g)), other)
            } else {
                S::add_f(mine, snap::<S>(S::mul_f(other, g)))
            };
            S::store_f(at, snap::<S>(sum));
        }
        if raises {
            state.sum = state.sum * factor + later.sum;
            state.max_exponent = later.max_exponent;
        } else {
            state.sum += later.sum * factor;
        }
    }
}

/// State of a block with at least one visible key.
#[inline(always)]
unsafe fn attend_block<S: Simd>(
    query: &Query<'_>,
    scores: Scores,
    block: &[u8],
    visible: std::ops::Range<usize>,
    state: &mut State,
) {
    // SAFETY: the caller's promise; a block has the parts that `Parts` says.
    unsafe {
        let parts = Parts { head_len: query.high.len() };
        let (weights, max_exponent, sum) = softmax::<S>(query, scores, block, visible.clone());
        (state.max_exponent, state.sum) = (max_exponent, sum);
        let mask = |group: usize, x: S::I| select_visible::<S>(group, &visible, x, S::splat_i(0));

        let value_scales = block.as_ptr().add(parts.value_scales()).cast::<i32>();
        let mut u = [S::splat_f(0.0); GROUPS];
        let mut largest = S::splat_i(0);
        for (group, u) in u.iter_mut().enumerate() {
            let scale = S::from_bits(mask(group, S::load_i(value_scales.add(group * LANES))));
            *u = S::mul_f(weights[group], scale);
            largest = S::max_i(largest, abs_bits::<S>(*u));
        }
        let mut lanes = [0_i32; LANES];
        S::store_i(lanes.as_mut_ptr(), largest);
        let amax = f32::from_bits(lanes.into_iter().fold(0, i32::max) as u32);
        if abs_bits_of(amax) < SNAP_LIMIT.to_bits() {
            state.output[..query.high.len()].fill(0.0);
            return;
        }
        let steps = S::splat_f(scalar::recip(amax) * 16319.0);
        let mut w = [0_i32; KEYS];
        for (group, &u) in u.iter().enumerate() {
            S::store_i(w.as_mut_ptr().add(group * LANES), rne::<S>(S::mul_f(u, steps)));
        }
        let pairs = pair_up(&w);
        let step = S::splat_f(amax * INV_16319);
        // Pairs of keys past the last visible one weigh nothing.
        let visible_pairs = visible.start / 2..visible.end.div_ceil(2);
        let values = block.as_ptr().add(parts.values()).cast::<i8>();
        let vectors = query.high.len() / LANES;
        for v in 0..vectors {
            let mut sum = S::splat_i(0);
            for pair in visible_pairs.clone() {
                sum = S::dot2(sum, values.add(32 * (pair * vectors + v)), pairs[pair]);
            }
            S::store_f(state.output.as_mut_ptr().add(v * LANES), S::mul_f(S::to_f(sum), step));
        }
    }
}

/// Two weights in the halves of a word.
#[inline(always)]
fn pair_up(w: &[i32; KEYS]) -> [i32; KEYS / 2] {
    std::array::from_fn(|i| w[2 * i] | (w[2 * i + 1] << 16))
}

/// `x` in the lanes of visible keys, else `other`.
#[inline(always)]
unsafe fn select_visible<S: Simd>(
    group: usize,
    visible: &std::ops::Range<usize>,
    x: S::I,
    other: S::I,
) -> S::I {
    const NUMBERS: [i32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    // SAFETY: the caller's promise.
    unsafe {
        let key = S::add_i(S::load_i(NUMBERS.as_ptr()), S::splat_i((group * LANES) as i32));
        let below_end = S::select_lt(key, S::splat_i(visible.end as i32), x, other);
        S::select_lt(key, S::splat_i(visible.start as i32), other, below_end)
    }
}

/// p_j of the 64 keys, +0 where not visible; M; l (`core::numerics::attention::chunk_weights`).
#[inline(always)]
unsafe fn softmax<S: Simd>(
    query: &Query<'_>,
    scores: Scores,
    block: &[u8],
    visible: std::ops::Range<usize>,
) -> ([S::F; GROUPS], i32, f32) {
    // SAFETY: the caller's promise; a block has the parts that `Parts` says.
    unsafe {
        let parts = Parts { head_len: query.high.len() };
        let key_scales = block.as_ptr().add(parts.key_scales()).cast::<i32>();
        let query_scale = S::splat_f(query_scale(query.scale, scores.kappa));
        let sum = |plane: &[i8]| plane.iter().map(|&q| i32::from(q)).sum::<i32>();
        let (sum_high, sum_low) = (sum(query.high), sum(query.low));
        let mut p = [S::splat_f(0.0); GROUPS];
        let mut n = [S::splat_i(i32::MIN); GROUPS];
        let mut largest = S::splat_i(i32::MIN);
        for group in visible.start / LANES..visible.end.div_ceil(LANES) {
            let dot = score_dots::<S>(query, block, group, sum_high, sum_low);
            let scale =
                select_visible::<S>(group, &visible, S::load_i(key_scales.add(group * LANES)), S::splat_i(0));
            let mut t = S::mul_f(S::to_f(dot), S::mul_f(S::from_bits(scale), query_scale));
            if let Some(cap) = scores.soft_cap {
                t = S::mul_f(soft_cap::<S>(t, cap), S::splat_f(LOG2E));
            }
            let (mantissa, exponent) = exp2_pair::<S>(clamp::<S>(t, -pow2(20), pow2(20)));
            p[group] = mantissa;
            n[group] = select_visible::<S>(group, &visible, exponent, S::splat_i(i32::MIN));
            largest = S::max_i(largest, n[group]);
        }
        let mut lanes = [0_i32; LANES];
        S::store_i(lanes.as_mut_ptr(), largest);
        let max_exponent = lanes.into_iter().fold(i32::MIN, i32::max);
        for group in 0..GROUPS {
            // Below the smallest exponent that counts: too small, or not visible.
            let limit = S::splat_i(max_exponent - 32);
            let e = S::sub_i(n[group], S::splat_i(max_exponent));
            let scaled = S::bits(scale_exponent::<S>(p[group], e));
            p[group] = S::from_bits(S::select_lt(n[group], limit, S::splat_i(0), scaled));
        }
        let halves = [S::add_f(p[0], p[2]), S::add_f(p[1], p[3])];
        let mut last = [0.0; LANES];
        S::store_f(last.as_mut_ptr(), S::add_f(halves[0], halves[1]));
        (p, max_exponent, tree(last))
    }
}

/// `S = 128*HH + (HL + LH)` of 16 keys.
#[inline(always)]
unsafe fn score_dots<S: Simd>(
    query: &Query<'_>,
    block: &[u8],
    group: usize,
    sum_high: i32,
    sum_low: i32,
) -> S::I {
    // SAFETY: the caller's promise; a block has the parts that `Parts` says, a head is whole vectors of 4.
    unsafe {
        let head_len = query.high.len();
        let vectors = head_len / 4;
        let high = block.as_ptr().add(64 * group * vectors);
        let low = high.add(Parts { head_len }.key_low());
        let wide = if S::WIDE_IS_BIASED { 128 } else { 0 };
        let mut hh = S::splat_i(-wide * sum_high);
        let mut hl = S::splat_i(-LOW_BIAS * sum_high);
        let mut lh = S::splat_i(-wide * sum_low);
        for i in 0..vectors {
            let word = |plane: &[i8]| plane.as_ptr().add(4 * i).cast::<i32>().read_unaligned();
            let key_high = S::load_b(high.add(64 * i));
            hh = S::dot4_wide(hh, key_high, word(query.high));
            lh = S::dot4_wide(lh, key_high, word(query.low));
            hl = S::dot4(hl, S::load_b(low.add(64 * i)), word(query.high));
        }
        S::add_i(S::shl_i::<7>(hh), S::add_i(hl, lh))
    }
}
