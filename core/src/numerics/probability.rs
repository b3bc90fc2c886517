//! Probabilities from logits (docs/numerics.md "Norms and elementwise", "Log-sum-exp").

use super::elementary::{exp2, log};
use super::float::{LOG2E, ord, tree256};

/// `ln sum e^z_i`: `z_max + log(tree256(exp2((z_i - z_max)*LOG2E)))`, z_max by [`ord`]. None for no logits.
pub fn log_sum_exp(z: &[f32]) -> Option<f32> {
    let largest = z.iter().copied().max_by_key(|&z| ord(z))?;
    Some(largest + log(tree256(z.iter().map(|&z| exp2((z - largest) * LOG2E)))))
}

/// Natural logarithm of the probability of token `id`: `z_id - log_sum_exp(z)`. None for an id that has no logit.
pub fn log_probability(z: &[f32], id: u32) -> Option<f32> {
    Some(z.get(id as usize)? - log_sum_exp(z)?)
}
