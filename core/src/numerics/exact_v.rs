//! Diagnostic arithmetic `u1+exact-v`: u1 with exact values. It is another arithmetic, never the default, and shows
//! what of a difference to another runtime comes from the eight-bit values of the cache.
//!
//! Values stay f32 and are not rotated; the p_j are not quantised. Scores, exponentials and merges are those of u1.

use std::ops::Range;

use super::attention::{CHUNK, KeyChunk, Q16, chunk_weights, divide_by_sum};
use super::merge::State;

/// The name of this arithmetic.
pub const PROFILE: &str = "u1+exact-v";

/// State of a chunk with at least one visible key: M and l as in u1, and
/// `o[d] = sum over visible j ascending of p_j*v_j[d]`, each product and each sum one rounded operation, from +0.
///
/// `values` is `[CHUNK][head_len]`.
pub fn attend_chunk(
    query: &Q16<'_>,
    kappa: f32,
    soft_cap: Option<f32>,
    keys: &KeyChunk<'_>,
    values: &[f32],
    visible: Range<usize>,
) -> State {
    let head_len = query.high.len();
    let weights = chunk_weights(query, kappa, soft_cap, keys, visible.clone());
    let mut output = vec![0.0; head_len];
    for (j, value) in values.chunks_exact(head_len).enumerate().take(CHUNK) {
        if visible.contains(&j) {
            for (o, &v) in output.iter_mut().zip(value) {
                *o += weights.p[j] * v;
            }
        }
    }
    State { max_exponent: weights.max_exponent, sum: weights.sum, output }
}

/// End of a head: `o = snap(O*recip(L))`.
pub fn finish(state: &State, out: &mut [f32]) {
    divide_by_sum(state, out);
}
