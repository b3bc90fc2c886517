//! Filters of sampling, in integers, so that no order of summation exists (docs/numerics.md "Sampling").
//!
//! Each takes the logits and the ids kept by the one before it, ascending, and keeps some of them; z_max, W_max, S and
//! N are over the ids it is given. None leaves a list empty that was not.

use std::cmp::Reverse;

use super::elementary::exp2;
use super::float::{LOG2E, clamp, ord, pow2, rne};
use super::sampling::SamplingError;

/// An option p in [0, 1], as `floor(p*2^32)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction(u64);

impl Fraction {
    /// `option` names it in the error.
    pub fn new(option: &'static str, p: f64) -> Result<Self, SamplingError> {
        if (0.0..=1.0).contains(&p) {
            // The product is exact: a change of exponent.
            Ok(Self((p * 4_294_967_296.0) as u64))
        } else {
            Err(SamplingError { option, found: p, expected: "from 0 to 1" })
        }
    }
}

/// The option n of top-n-sigma in [0, 64], as `floor(n^2*2^20)` of the exact square.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sigmas(i128);

impl Sigmas {
    /// n in [0, 64].
    pub fn new(n: f64) -> Result<Self, SamplingError> {
        if !(0.0..=64.0).contains(&n) {
            return Err(SamplingError { option: "top-n-sigma", found: n, expected: "from 0 to 64" });
        }
        // Below n = 2^-10 the product is below 1.
        if n < 0.0009765625 {
            return Ok(Self(0));
        }
        let significand = i128::from((n.to_bits() & ((1 << 52) - 1)) | (1 << 52));
        let exponent = (n.to_bits() >> 52) as i32 - 1075;
        Ok(Self((significand * significand) >> -(2 * exponent + 20)))
    }
}

/// `W = trunc(exp2((z - z_max)*LOG2E)*2^31)`.
pub fn integer_weight(z: f32, z_max: f32) -> u32 {
    (exp2((z - z_max) * LOG2E) * pow2(31)) as u32
}

/// Key of (ord(z) descending, id ascending).
fn rank(z: &[f32], id: u32) -> (Reverse<i32>, u32) {
    (Reverse(ord(z[id as usize])), id)
}

/// z_max; the list is not empty.
fn largest(z: &[f32], kept: &[u32]) -> Option<f32> {
    kept.iter().map(|&id| z[id as usize]).max_by_key(|&z| ord(z))
}

/// Keeps the k ids that come first by (ord(z) descending, id ascending); k of at least 1.
pub fn top_k(z: &[f32], kept: &mut Vec<u32>, k: usize) {
    let k = k.max(1);
    if k < kept.len() {
        kept.select_nth_unstable_by_key(k, |&id| rank(z, id));
        kept.truncate(k);
        kept.sort_unstable();
    }
}

/// Keeps the smallest prefix in (ord(z) descending, id ascending), of at least one id, with
/// `sum W*2^32 >= floor(p*2^32)*S` in u128.
pub fn top_p(z: &[f32], kept: &mut Vec<u32>, p: Fraction) {
    let Some(z_max) = largest(z, kept) else { return };
    let weight = |id: u32| u128::from(integer_weight(z[id as usize], z_max));
    let total: u128 = kept.iter().map(|&id| weight(id)).sum();
    let wanted = u128::from(p.0) * total;
    // The prefix is short for most distributions, so the best ids are sorted in growing portions, never all at once
    // unless all are needed.
    let (mut done, mut sum, mut portion) = (0, 0, 64);
    while done < kept.len() {
        let rest = &mut kept[done..];
        let len = portion.min(rest.len());
        if len < rest.len() {
            rest.select_nth_unstable_by_key(len, |&id| rank(z, id));
        }
        rest[..len].sort_unstable_by_key(|&id| rank(z, id));
        for &id in &rest[..len] {
            done += 1;
            sum += weight(id);
            if sum << 32 >= wanted {
                kept.truncate(done);
                break;
            }
        }
        portion *= 8;
    }
    kept.sort_unstable();
}

/// Keeps ids with `W*2^32 >= floor(m*2^32)*W_max`.
pub fn min_p(z: &[f32], kept: &mut Vec<u32>, m: Fraction) {
    let Some(z_max) = largest(z, kept) else { return };
    let wanted = u128::from(m.0) * u128::from(integer_weight(z_max, z_max));
    kept.retain(|&id| u128::from(integer_weight(z[id as usize], z_max)) << 32 >= wanted);
}

/// Keeps ids whose logit is within n standard deviations of the largest, in integers: `Z = rne(clamp(z, -4000, 4000)*1024)`,
/// keep iff `(Zmax - Z)^2*N^2*2^20 <= floor(n^2*2^20)*(N*sum Z^2 - (sum Z)^2)` in i128.
pub fn top_n_sigma(z: &[f32], kept: &mut Vec<u32>, n: Sigmas) {
    let integer = |id: u32| i128::from(rne(clamp(z[id as usize], -4000.0, 4000.0) * 1024.0));
    let Some(largest) = kept.iter().map(|&id| integer(id)).max() else { return };
    let count = kept.len() as i128;
    let sum: i128 = kept.iter().map(|&id| integer(id)).sum();
    let squares: i128 = kept.iter().map(|&id| integer(id) * integer(id)).sum();
    let allowed = n.0 * (count * squares - sum * sum);
    kept.retain(|&id| {
        let distance = largest - integer(id);
        (distance * distance * count * count) << 20 <= allowed
    });
}
