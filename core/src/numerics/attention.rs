//! Attention of one query head over one chunk of keys (docs/numerics.md "KV cache and attention").
//!
//! A chunk is 64 absolute positions and is computed without looking at any other chunk: [`attend_chunk`] gives its
//! [`State`]. States are merged in a fixed shape by [`super::merge::Merger`], and [`finish`] ends the head. Because
//! positions are absolute, prefix reuse, speculation, chunked prefill and split decoding all see the same partials.

use std::ops::Range;

use super::activation::soft_cap;
use super::elementary::{exp2_pair, recip, scale_exponent};
use super::float::{INV_16319, LOG2E, SNAP_LIMIT, abs_bits, amax, clamp, i2f, pow2, rne, snap, tree};
use super::fwht::{fwht, fwht_scales};
use super::integer::dot;
use super::merge::State;

/// Positions of a chunk.
pub const CHUNK: usize = 64;

/// A quantised query head.
#[derive(Clone, Copy, Debug)]
pub struct Q16<'a> {
    /// qh, one a dimension.
    pub high: &'a [i8],
    /// ql.
    pub low: &'a [i8],
    /// sq.
    pub scale: f32,
}

/// The keys of a chunk for one KV head.
#[derive(Clone, Copy, Debug)]
pub struct KeyChunk<'a> {
    /// kh, `[CHUNK][head_len]`.
    pub high: &'a [i8],
    /// kl, `[CHUNK][head_len]`.
    pub low: &'a [i8],
    /// sk, `[CHUNK]`.
    pub scales: &'a [f32],
}

/// A chunk of the cache for one KV head. What lies at positions that were never written is never read.
#[derive(Clone, Copy, Debug)]
pub struct KvChunk<'a> {
    /// kh, `[CHUNK][head_len]`.
    pub key_high: &'a [i8],
    /// kl, `[CHUNK][head_len]`.
    pub key_low: &'a [i8],
    /// sk, `[CHUNK]`.
    pub key_scales: &'a [f32],
    /// vq, `[CHUNK][head_len]`.
    pub value: &'a [i8],
    /// sv, `[CHUNK]`.
    pub value_scales: &'a [f32],
}

impl<'a> KvChunk<'a> {
    /// The keys alone.
    pub fn keys(&self) -> KeyChunk<'a> {
        KeyChunk { high: self.key_high, low: self.key_low, scales: self.key_scales }
    }
}

/// `kappa = f32(log2(e)/sqrt(n))`, the constant that scores are multiplied by under the default scale 1/sqrt(n): the
/// real number rounded once. `n` is the head length, or what a model has in its place; 1 to 2^20.
pub fn default_kappa(n: u32) -> f32 {
    // The error in f64 is far below an f32 step; tests/error_bounds.rs compares every n with exact integers.
    (std::f64::consts::LOG2_E / f64::from(n).sqrt()) as f32
}

/// `kappa = f32(scale*log2(e))`, under any other scale.
pub fn kappa(scale: f64) -> f32 {
    (scale * std::f64::consts::LOG2_E) as f32
}

/// `kappa = f32(scale)`, in layers with a soft cap.
pub fn kappa_with_soft_cap(scale: f64) -> f32 {
    scale as f32
}

/// `1/sqrt(head_len)` in f64.
pub fn default_scale(head_len: u32) -> f64 {
    1.0 / f64::from(head_len).sqrt()
}

/// Which keys of chunk `chunk` the query at `position` sees, as indices into the chunk: key j is visible iff
/// `j <= position` and, with a window W, `position - j < W`. An empty range where there is none: skip the chunk.
pub fn visible_in_chunk(position: u32, window: Option<u32>, chunk: u32) -> Range<usize> {
    let first = u64::from(chunk) * CHUNK as u64;
    let end = u64::from(position) + 1;
    let start = window.map_or(0, |window| end.saturating_sub(u64::from(window)));
    let in_chunk = |position: u64| position.saturating_sub(first).min(CHUNK as u64) as usize;
    in_chunk(start)..in_chunk(end)
}

/// State of a chunk with at least one visible key: M, l and o.
pub fn attend_chunk(
    query: &Q16<'_>,
    kappa: f32,
    soft_cap: Option<f32>,
    chunk: &KvChunk<'_>,
    visible: Range<usize>,
) -> State {
    let head_len = query.high.len();
    let weights = chunk_weights(query, kappa, soft_cap, &chunk.keys(), visible.clone());
    let value_weights = value_weights(&weights.p, chunk.value_scales, visible);
    let mut output = vec![0.0; head_len];
    weighted_values(&value_weights, chunk.value, &mut output);
    State { max_exponent: weights.max_exponent, sum: weights.sum, output }
}

/// The softmax weights of a chunk, relative to 2^M.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkWeights {
    /// M: the largest n_j of a visible key.
    pub max_exponent: i32,
    /// l: tree of the 64 p_j.
    pub sum: f32,
    /// p_j; +0 for keys that are not visible.
    pub p: [f32; CHUNK],
}

/// Softmax weights of the visible keys.
///
/// ```text
/// (P_j, n_j) = exp2 pair(t_j);  M = max n_j over visible keys;  e_j = n_j - M
/// p_j = e_j < -32 ? +0 : bitcast(Bits(P_j) + (e_j << 23));  l = tree of the 64 p_j
/// ```
pub fn chunk_weights(
    query: &Q16<'_>,
    kappa: f32,
    soft_cap: Option<f32>,
    keys: &KeyChunk<'_>,
    visible: Range<usize>,
) -> ChunkWeights {
    let head_len = query.high.len();
    let query_scale = query_scale(query.scale, kappa);
    let mut p = [0.0; CHUNK];
    let mut exponents = [0_i32; CHUNK];
    let mut max_exponent = i32::MIN;
    for j in visible.clone() {
        let at = j * head_len..(j + 1) * head_len;
        let dot = score_dot(query, &keys.high[at.clone()], &keys.low[at]);
        (p[j], exponents[j]) = exp2_pair(score(dot, keys.scales[j], query_scale, soft_cap));
        max_exponent = max_exponent.max(exponents[j]);
    }
    for j in visible {
        let below = exponents[j] - max_exponent;
        p[j] = if below < -32 { 0.0 } else { scale_exponent(p[j], below) };
    }
    ChunkWeights { max_exponent, sum: tree(p), p }
}

/// `qs = (sq*128)*kappa`.
pub fn query_scale(scale: f32, kappa: f32) -> f32 {
    (scale * 128.0) * kappa
}

/// `S = 128*HH + (HL + LH)`: HH = sum qh*kh, HL = sum qh*kl, LH = sum ql*kh; the product of the low planes is dropped
/// by definition. |S| < 2^31 for heads of up to 1024.
pub fn score_dot(query: &Q16<'_>, key_high: &[i8], key_low: &[i8]) -> i32 {
    128 * dot(query.high, key_high) + (dot(query.high, key_low) + dot(query.low, key_high))
}

/// `t = clamp(i2f(S)*(sk*qs), -2^20, 2^20)`; with a soft cap c, `x = softcap_c(i2f(S)*(sk*qs))` and
/// `t = clamp(x*LOG2E, -2^20, 2^20)`.
pub fn score(dot: i32, key_scale: f32, query_scale: f32, cap: Option<f32>) -> f32 {
    let product = i2f(dot) * (key_scale * query_scale);
    let t = match cap {
        Some(cap) => soft_cap(product, cap) * LOG2E,
        None => product,
    };
    clamp(t, -pow2(20), pow2(20))
}

/// The weights of a chunk's values as integers (P15).
#[derive(Clone, Debug, PartialEq)]
pub struct ValueWeights {
    /// w_j in 0..=16319; 0 for keys that are not visible.
    pub w: [i16; CHUNK],
    /// a: the largest u_j.
    pub amax: f32,
}

/// `u_j = p_j*sv_j; a = amax(u); w_j = rne(u_j*(recip(a)*16319))`, all 0 where a < 2^-60.
pub fn value_weights(p: &[f32; CHUNK], value_scales: &[f32], visible: Range<usize>) -> ValueWeights {
    let mut u = [0.0; CHUNK];
    for j in visible {
        u[j] = p[j] * value_scales[j];
    }
    let amax = amax(&u);
    let mut w = [0; CHUNK];
    if !is_negligible(amax) {
        let steps = recip(amax) * 16319.0;
        for (w, &u) in w.iter_mut().zip(&u) {
            *w = rne(u * steps) as i16;
        }
    }
    ValueWeights { w, amax }
}

/// `o[d] = i2f(O[d])*(a*f32(1/16319))`, `O[d] = sum_j w_j*vq_j[d]`, an exact i32 sum that is equal to
/// `128*sum h_j*vq_j + sum l_j*vq_j` over the planes of w; o = 0 where a < 2^-60. `output` starts as zeros.
pub fn weighted_values(weights: &ValueWeights, value: &[i8], output: &mut [f32]) {
    if is_negligible(weights.amax) {
        return;
    }
    let mut sums = vec![0_i32; output.len()];
    for (&w, value) in weights.w.iter().zip(value.chunks_exact(output.len())) {
        // Also keeps positions that were never written from being read.
        if w == 0 {
            continue;
        }
        for (sum, &v) in sums.iter_mut().zip(value) {
            *sum = sum.wrapping_add(i32::from(w) * i32::from(v));
        }
    }
    let step = weights.amax * INV_16319;
    for (output, sum) in output.iter_mut().zip(sums) {
        *output = i2f(sum) * step;
    }
}

fn is_negligible(amax: f32) -> bool {
    abs_bits(amax) < SNAP_LIMIT.to_bits()
}

/// End of a head: `o = snap(O*recip(L)); o = FWHT(o)*2^-s'`. Not snapped again.
pub fn finish(state: &State, out: &mut [f32]) {
    divide_by_sum(state, out);
    fwht(out);
    let (_, scale) = fwht_scales(out.len());
    for out in out {
        *out *= scale;
    }
}

/// `o = snap(O*recip(L))`.
pub(super) fn divide_by_sum(state: &State, out: &mut [f32]) {
    let inverse = recip(state.sum);
    for (out, &o) in out.iter_mut().zip(&state.output) {
        *out = snap(o * inverse);
    }
}
