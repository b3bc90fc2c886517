//! Choosing a token (docs/numerics.md "Sampling").
//!
//! Parts of [`super::sampling_chain`]: [`super::penalties`], logit bias, masks, [`super::filters`],
//! temperature, [`draw`]. Filters work on the list of ids that are still kept, ascending; a mask is an id
//! that is not on it. Everything is a pure function of the logits, so a device may do it too if it gives the
//! same.

use super::elementary::{log, log1m};
use super::float::{i2f, ord, pow2};
use super::philox::random_word;

/// A sampling option outside the range that the arithmetic is defined for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{option} is {found}, but it has to be {expected}")]
pub struct SamplingError {
    /// Name of the option.
    pub option: &'static str,
    /// Its value.
    pub found: f64,
    /// The range.
    pub expected: &'static str,
}

/// The id with the largest logit, by [`ord`]; the lower id of equals. None where nothing is kept.
pub fn greedy(z: &[f32], kept: &[u32]) -> Option<u32> {
    argmax(kept, |id| z[id as usize])
}

/// [`greedy`] over all ids. None for no logit.
pub fn most_likely(z: &[f32]) -> Option<u32> {
    let best = (0..z.len()).reduce(|best, id| if ord(z[id]) > ord(z[best]) { id } else { best });
    best.map(|id| id as u32)
}

/// Temperature of a draw; 0 is greedy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Temperature {
    /// T = 0.
    Greedy,
    /// `f32(1/T)` for T in [1e-4, 1e4].
    Inverse(f32),
}

impl Temperature {
    /// T = 0, or T in [1e-4, 1e4].
    pub fn new(t: f64) -> Result<Self, SamplingError> {
        if t == 0.0 {
            Ok(Self::Greedy)
        } else if (1e-4..=1e4).contains(&t) {
            Ok(Self::Inverse(reciprocal_of_f64(t)))
        } else {
            Err(SamplingError { option: "temperature", found: t, expected: "0, or from 0.0001 to 10000" })
        }
    }
}

/// Names a draw: the same key gives the same noise, on any machine and in any batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawKey {
    /// Seed of the request.
    pub seed: u64,
    /// Position of the token that is drawn, 0-based, BOS counted.
    pub position: u32,
    /// 0 for the draw itself; other users of randomness have their own.
    pub purpose: u32,
}

/// Draws one of the kept ids: argmax of `(z_i*f32(1/T)) + g_i` (two rounded operations), the lower id of
/// equals. None where nothing is kept.
pub fn draw(z: &[f32], kept: &[u32], temperature: Temperature, key: DrawKey) -> Option<u32> {
    match temperature {
        Temperature::Greedy => greedy(z, kept),
        Temperature::Inverse(inverse) => argmax(kept, |id| {
            let word = random_word(key.seed, key.position, id, key.purpose);
            perturbed(z[id as usize], inverse, gumbel(word))
        }),
    }
}

/// `(z*f32(1/T)) + g`.
#[inline]
pub fn perturbed(z: f32, inverse_temperature: f32, gumbel: f32) -> f32 {
    z * inverse_temperature + gumbel
}

/// A number in (0, 1) from a random word: `k = r >> 1; w = min((i2f(k) + 0.5)*2^-31, 1 - 2^-24)`.
pub fn uniform(word: u32) -> f32 {
    let w = (i2f((word >> 1) as i32) + 0.5) * pow2(-31);
    let largest = 1.0 - pow2(-24);
    if ord(w) < ord(largest) { w } else { largest }
}

/// `E = -log1m(w)`: exponentially distributed.
pub fn exponential(word: u32) -> f32 {
    -log1m(uniform(word))
}

/// `g = -log(E)`: Gumbel distributed.
pub fn gumbel(word: u32) -> f32 {
    -log(exponential(word))
}

fn argmax(kept: &[u32], score: impl Fn(u32) -> f32) -> Option<u32> {
    let mut best: Option<(i32, u32)> = None;
    for &id in kept {
        let score = ord(score(id));
        if best.is_none_or(|(largest, best_id)| score > largest || (score == largest && id < best_id)) {
            best = Some((score, id));
        }
    }
    best.map(|(_, id)| id)
}

/// `f32(1/x)`: the exact reciprocal of an f64, rounded once. For normal x whose reciprocal is a normal f32.
///
/// Dividing in f64 and converting would round twice; this divides integers and lets the remainder break ties.
pub fn reciprocal_of_f64(x: f64) -> f32 {
    let significand = u128::from((x.to_bits() & ((1 << 52) - 1)) | (1 << 52));
    let exponent = (x.to_bits() >> 52) as i32 - 1075;
    // 2^51 to 2^52, far more bits than the result; the lowest takes up what the division left over.
    let quotient = (1_u128 << 104) / significand;
    let inexact = u128::from(quotient * significand != 1 << 104);
    ((quotient | inexact) as f64) as f32 * pow2(-104 - exponent)
}
