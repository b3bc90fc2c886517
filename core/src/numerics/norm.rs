//! RMSNorm and LayerNorm (docs/numerics.md "Norms and elementwise"). Norm inputs are 0 or multiples of 2^-83.

use super::elementary::rsqrt;
use super::float::{reciprocal_of_len, snap, tree256};
use super::range::{SQUARES_LIMIT, is_below};

/// RMSNorm of a row into `out`. Returns whether the row is in range; else `out` is +0 and has no meaning.
///
/// `L_0 = sum_of_squares(x); r = inverse_rms(L_0, n, eps); y_i = snap((x_i*r)*w_i)`. The norms of q and k are the same
/// over one head.
#[must_use]
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> bool {
    let Some(r) = factor(x, eps) else {
        out.fill(0.0);
        return false;
    };
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = snap((x * r) * w);
    }
    true
}

/// RMSNorm without weights: `y_i = snap(x_i*r)`, as [`rms_norm`] with weights of 1.
#[must_use]
pub fn rms_norm_plain(x: &[f32], eps: f32, out: &mut [f32]) -> bool {
    let Some(r) = factor(x, eps) else {
        out.fill(0.0);
        return false;
    };
    out.iter_mut().zip(x).for_each(|(out, &x)| *out = snap(x * r));
    true
}

/// r of a row; none if the row is out of range.
fn factor(x: &[f32], eps: f32) -> Option<f32> {
    let squares = sum_of_squares(x);
    is_below(squares, SQUARES_LIMIT).then(|| inverse_rms(squares, x.len(), eps))
}

/// The epsilon with which an RMSNorm of x gives what one with `eps` gives of `x*s`, where `s*s = f32(1/inverse_square)`:
/// `f32(eps*inverse_square)`. A constant factor in front of a norm is never multiplied with; it is a part of the epsilon.
pub fn eps_before_scale(eps: f32, inverse_square: u32) -> f32 {
    eps * inverse_square as f32
}

/// `L_0`: [`tree256`] of `snap(x*x)`.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    tree256(x.iter().map(|&x| snap(x * x)))
}

/// `r = rsqrt(L_0*f32(1/n) + eps)`.
pub fn inverse_rms(squares: f32, n: usize, eps: f32) -> f32 {
    rsqrt(squares * reciprocal_of_len(n) + eps)
}

/// `tree256(x)*f32(1/n)`.
pub fn mean(x: &[f32]) -> f32 {
    tree256(x.iter().copied()) * reciprocal_of_len(x.len())
}

/// LayerNorm of a row into `out`. Returns whether the row is in range; else `out` is +0 and has no meaning.
///
/// ```text
/// mean = tree256(x)*f32(1/n);  d_i = x_i - mean;  L_0 = tree256(snap(d_i*d_i))
/// r = rsqrt(L_0*f32(1/n) + eps);  y_i = snap(snap((d_i*r)*w_i) + b_i)
/// ```
#[must_use]
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) -> bool {
    let mean = mean(x);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = x - mean;
    }
    let squares = sum_of_squares(out);
    if !is_below(squares, SQUARES_LIMIT) {
        out.fill(0.0);
        return false;
    }
    let r = inverse_rms(squares, x.len(), eps);
    for ((out, &w), &b) in out.iter_mut().zip(weight).zip(bias) {
        *out = snap(snap((*out * r) * w) + b);
    }
    true
}
