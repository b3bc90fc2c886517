//! Position tables, made on the host in f64, and their application to a head
//! (docs/numerics.md "Position tables").
//!
//! `libm` is pinned: its `pow` is not correctly rounded, so another version would be another profile. A table row is a
//! function of the position alone.

use super::float::{abs_bits, pow2};
use crate::plan::RopeStyle;

/// `inv_i = pow(base, -(2i)/rot)` for i in 0..rot/2; `rot` is the number of rotated dimensions of a head.
pub fn inverse_frequencies(base: f64, rot: u32) -> Vec<f64> {
    (0..rot / 2).map(|i| libm::pow(base, -f64::from(2 * i) / f64::from(rot))).collect()
}

/// `inv_i / factor_i`, with the factors that the file's `rope_freqs` holds.
pub fn divide_by_factors(inverse: &mut [f64], factors: &[f32]) {
    for (inverse, &factor) in inverse.iter_mut().zip(factors) {
        *inverse /= f64::from(factor);
    }
}

/// Linear scaling: `inv_i / factor`.
pub fn scale_linear(inverse: &mut [f64], factor: f64) {
    for inverse in inverse {
        *inverse /= factor;
    }
}

/// Parameters of YaRN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// f: how far the context is stretched.
    pub factor: f64,
    /// c0: the context of training.
    pub original_context: f64,
    /// m: factor on cosine and sine; 1 where the file has none.
    pub attention_factor: f64,
}

/// YaRN, beta 32 and 1. Changes the inverse frequencies and returns `mscale`, which cosine and sine are multiplied by.
///
/// ```text
/// dim(n) = rot*ln(c0/(n*2*pi))/(2*ln(base));  lo = max(0, floor(dim(32)));  hi = min(rot-1, ceil(dim(1)))
/// ramp_i = 1 - clamp((i - lo)/max(0.001, hi - lo), 0, 1);  inv_i = (inv_i/f)*(1 - ramp_i) + inv_i*ramp_i
/// mscale = m*(1 + 0.1*ln(f))
/// ```
pub fn scale_yarn(inverse: &mut [f64], base: f64, yarn: &Yarn) -> f64 {
    let rot = 2.0 * inverse.len() as f64;
    let dim = |turns: f64| {
        rot * libm::log(yarn.original_context / ((turns * 2.0) * std::f64::consts::PI))
            / (2.0 * libm::log(base))
    };
    let low = libm::floor(dim(32.0)).max(0.0);
    let high = libm::ceil(dim(1.0)).min(rot - 1.0);
    for (i, inverse) in inverse.iter_mut().enumerate() {
        let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        *inverse = (*inverse / yarn.factor) * (1.0 - ramp) + *inverse * ramp;
    }
    yarn.attention_factor * (1.0 + 0.1 * libm::log(yarn.factor))
}

/// Cosines and sines of one position: `theta = pos*inv_i; c = f32(cos(theta)*scale), s = f32(sin(theta)*scale)`;
/// those below 2^-20 in magnitude become +0.
pub fn table_row(inverse: &[f64], scale: f64, position: u32, cosines: &mut [f32], sines: &mut [f32]) {
    for ((&inverse, cosine), sine) in inverse.iter().zip(cosines).zip(sines) {
        let theta = f64::from(position) * inverse;
        *cosine = zero_if_tiny((libm::cos(theta) * scale) as f32);
        *sine = zero_if_tiny((libm::sin(theta) * scale) as f32);
    }
}

fn zero_if_tiny(x: f32) -> f32 {
    if abs_bits(x) < pow2(-20).to_bits() { 0.0 } else { x }
}

/// Rotates the pairs (a, b) of a head: `a' = a*c - b*s; b' = a*s + b*c`. Dimensions beyond the table pass through.
/// Not snapped.
pub fn rotate(style: RopeStyle, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let pairs = cosines.len();
    for (i, (&c, &s)) in cosines.iter().zip(sines).enumerate() {
        let (at_a, at_b) = match style {
            RopeStyle::Interleaved => (2 * i, 2 * i + 1),
            RopeStyle::HalfSplit => (i, i + pairs),
        };
        let (a, b) = (head[at_a], head[at_b]);
        head[at_a] = a * c - b * s;
        head[at_b] = a * s + b * c;
    }
}
