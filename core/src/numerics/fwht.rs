//! Fast Walsh-Hadamard transform of a head (docs/numerics.md "KV cache and attention"). It spreads a value's outliers
//! over all dimensions, so that eight bits are enough, and undoes itself at the end of attention.

use super::float::pow2;

/// `B`, the largest power of two that divides the head: the transform works on consecutive blocks of B.
pub fn fwht_block(head_len: usize) -> usize {
    1 << head_len.trailing_zeros()
}

/// The factors that the two ends of attention multiply by: `2^-s` when a value is written, `2^-s'` on the output, with
/// s = floor(log2(B)/2) and s' = log2(B) - s.
pub fn fwht_scales(head_len: usize) -> (f32, f32) {
    let log = head_len.trailing_zeros() as i32;
    (pow2(-(log / 2)), pow2(-(log - log / 2)))
}

/// Stages h = 1, 2, 4, ..., B/2: `(a, b) -> (a + b, a - b)` on pairs of indices that differ in bit h, a the one with
/// the bit clear. Unscaled.
pub fn fwht(head: &mut [f32]) {
    let block = fwht_block(head.len());
    let mut h = 1;
    while h < block {
        for pairs in head.chunks_exact_mut(2 * h) {
            let (first, second) = pairs.split_at_mut(h);
            for (a, b) in first.iter_mut().zip(second) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        h *= 2;
    }
}
