//! Filters of sampling, in integers, so that no order of summation exists (docs/numerics.md "Sampling").
//!
//! Each takes the logits and the ids kept by the one before it, ascending, and keeps some of them; z_max,
//! W_max, S and N are over the ids it is given. None leaves a list empty that was not.

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

    /// `floor(p*2^32)*total`, in units of 2^-32.
    pub fn of(self, total: u128) -> u128 {
        u128::from(self.0) * total
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

    /// Whether a logit this far below the largest is kept, both on the grid of [`sigma_grid`]:
    /// `distance^2*N^2*2^20 <= floor(n^2*2^20)*(N*squares - sum^2)` in i128.
    pub fn keep(self, distance: i32, grid: GridSums) -> bool {
        let GridSums { count, sum, squares } = grid;
        let distance = i128::from(distance);
        (distance * distance * count * count) << 20 <= self.0 * (count * squares - sum * sum)
    }
}

/// Sums of logits on the grid of [`sigma_grid`], exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridSums {
    /// N, the number of logits; at most 2^32.
    pub count: i128,
    /// sum Z.
    pub sum: i128,
    /// sum Z^2.
    pub squares: i128,
}

/// A logit on the grid of top-n-sigma: `Z = rne(clamp(z, -4000, 4000)*1024)`.
#[inline]
pub fn sigma_grid(z: f32) -> i32 {
    rne(clamp(z, -4000.0, 4000.0) * 1024.0)
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
    let wanted = p.of(kept.iter().map(|&id| weight(id)).sum());
    kept.sort_unstable_by_key(|&id| rank(z, id));
    let mut sum = 0;
    let reached = kept.iter().position(|&id| {
        sum += weight(id);
        sum << 32 >= wanted
    });
    kept.truncate(reached.map_or(kept.len(), |last| last + 1));
    kept.sort_unstable();
}

/// Integer distance of a logit from the largest, in steps of 2^-15: `D = rne(clamp(z_max - z, 0, 64)*32768)`.
pub fn distance(z: f32, z_max: f32) -> u32 {
    rne(clamp(z_max - z, 0.0, 64.0) * 32_768.0) as u32
}

/// Locally typical sampling (Meister et al., 2023): keeps the ids whose surprisal is nearest to the entropy,
/// as many as reach a share p of the weight.
///
/// Both are taken relative to the surprisal of the largest logit, so that the normaliser cancels: a surprisal
/// is `D_i = `[`distance`], the entropy is `C = floor(sum W*D / S)`. Over ids with W > 0, with
/// `A_i = |D_i - C|`: a is the least A with `sum over A_i <= a of W*2^32 >= floor(p*2^32)*S` in u128; keeps
/// A_i <= a, all of equals.
pub fn typical(z: &[f32], kept: &mut Vec<u32>, p: Fraction) {
    let Some(z_max) = largest(z, kept) else { return };
    let weight = |id: u32| u128::from(integer_weight(z[id as usize], z_max));
    kept.retain(|&id| weight(id) > 0);
    let total: u128 = kept.iter().map(|&id| weight(id)).sum();
    let moment: u128 = kept.iter().map(|&id| weight(id) * u128::from(distance(z[id as usize], z_max))).sum();
    let entropy = (moment / total) as u32;
    let deviation = |id: u32| distance(z[id as usize], z_max).abs_diff(entropy);
    let wanted = p.of(total);
    let mut order = kept.clone();
    order.sort_unstable_by_key(|&id| deviation(id));
    let mut sum = 0;
    let last = order.into_iter().find(|&id| {
        sum += weight(id);
        sum << 32 >= wanted
    });
    kept.retain(|&id| last.is_some_and(|last| deviation(id) <= deviation(last)));
}

/// Keeps ids with `W*2^32 >= floor(m*2^32)*W_max`.
pub fn min_p(z: &[f32], kept: &mut Vec<u32>, m: Fraction) {
    let Some(z_max) = largest(z, kept) else { return };
    let wanted = m.of(u128::from(integer_weight(z_max, z_max)));
    kept.retain(|&id| u128::from(integer_weight(z[id as usize], z_max)) << 32 >= wanted);
}

/// Keeps ids whose logit is within n standard deviations of the largest, in integers:
/// `Z = `[`sigma_grid`]`(z)`, keep iff `(Zmax - Z)^2*N^2*2^20 <= floor(n^2*2^20)*(N*sum Z^2 - (sum Z)^2)` in
/// i128 ([`Sigmas::keep`]).
pub fn top_n_sigma(z: &[f32], kept: &mut Vec<u32>, n: Sigmas) {
    let integer = |id: u32| sigma_grid(z[id as usize]);
    let Some(largest) = kept.iter().map(|&id| integer(id)).max() else { return };
    let grid = GridSums {
        count: kept.len() as i128,
        sum: kept.iter().map(|&id| i128::from(integer(id))).sum(),
        squares: kept.iter().map(|&id| i128::from(integer(id)) * i128::from(integer(id))).sum(),
    };
    kept.retain(|&id| n.keep(largest - integer(id), grid));
}
