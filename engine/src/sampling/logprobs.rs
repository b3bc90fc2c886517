//! Log-probabilities of the model: of its logits as they are, before penalties, biases, filters and
//! temperature.

use std::cmp::Reverse;

use multiversion::multiversion;
use unisonic_core::numerics::elementary::{exp2, log};
use unisonic_core::numerics::float::{LOG2E, ord, tree};

use super::kept::{bound_of_rank, for_each_reaching, from_ord};
use super::passes::block_maxima;

/// Tokens that [`Logprobs::top`] lists at most.
pub const MAX_TOP_LOGPROBS: u32 = 1000;

/// A token and how probable the model finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Its id.
    pub token: u32,
    /// Natural logarithm of its probability: `z - log_sum_exp(z)` (docs/numerics.md "Norms and elementwise").
    /// Finite.
    pub logprob: f32,
}

/// What the model thought at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token that was chosen.
    pub chosen: TokenLogprob,
    /// The most probable tokens, most probable first, of equals the lower id.
    pub top: Vec<TokenLogprob>,
}

/// Log-probabilities of a chosen token and of the `top` most probable ones, as many as there are. None if the
/// vocabulary does not have the token.
pub fn logprobs(logits: &[f32], chosen: u32, top: u32) -> Option<Logprobs> {
    let mut maxima = Vec::new();
    block_maxima(logits, &mut maxima);
    let largest = maxima.iter().copied().max()?;
    let z_max = from_ord(largest);
    let sum = z_max + log(exp_sum(logits, z_max));
    let of = |token: u32| {
        let logprob = logits.get(token as usize)? - sum;
        Some(TokenLogprob { token, logprob })
    };
    Some(Logprobs {
        chosen: of(chosen)?,
        top: most_likely(logits, &maxima, top).into_iter().filter_map(of).collect(),
    })
}

/// The first `count` ids in (ord(z) descending, id ascending).
fn most_likely(logits: &[f32], maxima: &[i32], count: u32) -> Vec<u32> {
    let mut best = Vec::new();
    if count > 0 {
        let low = bound_of_rank(maxima, count as usize);
        for_each_reaching(logits, maxima, low, |id, z| best.push((Reverse(ord(z)), id)));
    }
    best.sort_unstable();
    best.truncate(count as usize);
    best.into_iter().map(|(_, id)| id).collect()
}

/// `tree256(exp2((z_i - z_max)*LOG2E))`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn exp_sum(logits: &[f32], z_max: f32) -> f32 {
    let mut lanes = [0.0; 256];
    for row in logits.chunks(256) {
        for (lane, &z) in lanes.iter_mut().zip(row) {
            *lane += exp2((z - z_max) * LOG2E);
        }
    }
    tree(lanes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unisonic_core::numerics::probability::log_probability;

    use super::*;

    proptest! {
        #[test]
        fn logprobs_are_those_of_the_specification(
            logits in prop::collection::vec(prop_oneof![-30.0_f32..30.0, Just(1.5), Just(-0.0), -1e9_f32..1e9], 1..2000),
            chosen in any::<prop::sample::Index>(),
            top in 0_u32..70,
        ) {
            let chosen = chosen.index(logits.len()) as u32;
            let found = logprobs(&logits, chosen, top).unwrap();
            let bits = |of: TokenLogprob| (of.token, of.logprob.to_bits());
            let right = |token: u32| (token, log_probability(&logits, token).unwrap().to_bits());
            prop_assert_eq!(bits(found.chosen), right(chosen));
            let mut order: Vec<u32> = (0..logits.len() as u32).collect();
            order.sort_by_key(|&id| (std::cmp::Reverse(ord(logits[id as usize])), id));
            order.truncate(top as usize);
            prop_assert_eq!(
                found.top.into_iter().map(bits).collect::<Vec<_>>(),
                order.into_iter().map(right).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn a_token_without_a_logit_has_no_probability() {
        assert_eq!(logprobs(&[1.0, 2.0], 2, 1), None);
        assert_eq!(logprobs(&[], 0, 1), None);
    }
}
