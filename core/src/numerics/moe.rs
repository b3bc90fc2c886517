//! Mixture of experts: router, choice of experts, their weights, their sum (docs/numerics.md "Mixture of experts").

use std::cmp::Reverse;

use super::elementary::{exp2, recip, sigmoid};
use super::float::{LOG2E, abs_bits, ord, pow2, snap, tree256};

/// The canonical f32 dot product, used by routers and shared-expert gates alone: [`tree256`] of `snap(x*w)`.
pub fn router_dot(x: &[f32], weight: &[f32]) -> f32 {
    tree256(x.iter().zip(weight).map(|(&x, &w)| snap(x * w)))
}

/// The ids of the k best experts, by (ord(z) descending, id ascending).
pub fn choose_experts(z: &[f32], k: usize) -> Vec<usize> {
    let mut experts: Vec<usize> = (0..z.len()).collect();
    experts.sort_by_key(|&e| (Reverse(ord(z[e])), e));
    experts.truncate(k);
    experts
}

/// Which experts the weights add up to 1 over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denominator {
    /// The chosen experts (Mixtral; Qwen with `norm_topk_prob`): `den` adds them by ascending id, from +0.
    Chosen,
    /// Every expert: `den = tree256(w)`.
    All,
}

impl Denominator {
    /// Name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Denominator::Chosen => "chosen",
            Denominator::All => "all",
        }
    }
}

/// The chosen experts of a row and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// Ids, ascending: the order in which outputs are added.
    pub experts: Vec<usize>,
    /// One an expert.
    pub weights: Vec<f32>,
    /// den.
    pub denominator: f32,
}

/// Chooses k of the experts with router outputs `z` and weighs them; `scale` is the model's expert scale, if any.
///
/// `w_e = exp2((z_e - z_max)*LOG2E)`, +0 below 2^-32; `w_e = w_e*recip(den)`, then `w_e*scale`.
pub fn route(z: &[f32], k: usize, denominator: Denominator, scale: Option<f32>) -> Routing {
    let mut experts = choose_experts(z, k);
    let Some(&best) = experts.first() else {
        return Routing { experts, weights: Vec::new(), denominator: 0.0 };
    };
    let unscaled = |e: usize| {
        let w = exp2((z[e] - z[best]) * LOG2E);
        if abs_bits(w) < pow2(-32).to_bits() { 0.0 } else { w }
    };
    experts.sort_unstable();
    let mut weights: Vec<f32> = experts.iter().map(|&e| unscaled(e)).collect();
    let denominator = match denominator {
        Denominator::Chosen => weights.iter().fold(0.0, |sum, &w| sum + w),
        Denominator::All => tree256((0..z.len()).map(unscaled)),
    };
    let inverse = recip(denominator);
    for w in &mut weights {
        *w *= inverse;
        if let Some(scale) = scale {
            *w *= scale;
        }
    }
    Routing { experts, weights, denominator }
}

/// Adds the output of one expert, experts by ascending id, `y` starting at +0: `y = y + snap(w_e*o_e)`. Not snapped.
pub fn add_expert(y: &mut [f32], weight: f32, output: &[f32]) {
    for (y, &o) in y.iter_mut().zip(output) {
        *y += snap(weight * o);
    }
}

/// Adds the shared expert, after all others: `y = y + snap(sigmoid(g)*o_s)`.
pub fn add_shared_expert(y: &mut [f32], gate: f32, output: &[f32]) {
    add_expert(y, sigmoid(gate), output);
}
