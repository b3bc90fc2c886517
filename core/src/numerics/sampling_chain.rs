//! The whole of sampling in its order (docs/numerics.md "Sampling"): logits in, a token out.
//!
//! This is the specification: it sorts, and asks no question of speed. Start at [`SamplingChain::choose`].

use super::filters::{Fraction, Sigmas, min_p, top_k, top_n_sigma, top_p, typical};
use super::float::ord;
use super::penalties::{Bias, Penalties, apply_bias};
use super::sampling::{DrawKey, Temperature, draw};

/// Which of the tokens before the one that is chosen are counted by penalties, prompt and output alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// The last so many.
    Last(u32),
    /// All of the sequence.
    All,
}

impl Window {
    /// The end of a sequence that the window shows.
    pub fn of(self, tokens: &[u32]) -> &[u32] {
        match self {
            Self::All => tokens,
            Self::Last(len) => &tokens[tokens.len().saturating_sub(len as usize)..],
        }
    }
}

/// Options of sampling; each that is None is left out of the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingChain {
    /// Penalties on tokens of the window.
    pub penalties: Option<Penalties>,
    /// The window.
    pub window: Window,
    /// Biases by token, at most one each; tokens outside the vocabulary have no effect.
    pub biases: Vec<(u32, Bias)>,
    /// n of top-n-sigma.
    pub top_n_sigma: Option<Sigmas>,
    /// k of top-k, at least 1.
    pub top_k: Option<u32>,
    /// p of typical sampling.
    pub typical: Option<Fraction>,
    /// p of top-p.
    pub top_p: Option<Fraction>,
    /// m of min-p.
    pub min_p: Option<Fraction>,
    /// Temperature, or greedy.
    pub temperature: Temperature,
    /// Seed of the draws.
    pub seed: u64,
}

/// Occurrences that penalties tell apart: up to here a count is exact as f32.
pub const MAX_COUNT: u32 = 1 << 24;

impl SamplingChain {
    /// The token that follows `before`, all tokens of the sequence so far: its length is the position of the
    /// draw.
    ///
    /// Logits are finite, or -inf, which is a mask (the range contract promises the first). `allowed` is the
    /// grammar's mask. None where every token is masked.
    ///
    /// Order: penalties, logit bias, masks, top-n-sigma, top-k, typical, top-p, min-p, temperature, draw.
    pub fn choose(&self, logits: &[f32], before: &[u32], allowed: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut z = logits.to_vec();
        let mut kept: Vec<u32> = (0..z.len() as u32).collect();
        self.penalise(&mut z, before);
        for &(token, bias) in &self.biases {
            apply_bias(&mut z, &mut kept, token, bias);
        }
        kept.retain(|&id| allowed(id) && ord(z[id as usize]) > ord(f32::NEG_INFINITY));
        self.filter(&z, &mut kept);
        let key = DrawKey { seed: self.seed, position: before.len() as u32, purpose: 0 };
        draw(&z, &kept, self.temperature, key)
    }

    /// Each token of the window once, with its count there.
    fn penalise(&self, z: &mut [f32], before: &[u32]) {
        let Some(penalties) = &self.penalties else { return };
        let mut window = self.window.of(before).to_vec();
        window.sort_unstable();
        for same in window.chunk_by(|a, b| a == b) {
            if let Some(z) = z.get_mut(same[0] as usize) {
                *z = penalties.apply(*z, (same.len() as u32).min(MAX_COUNT));
            }
        }
    }

    fn filter(&self, z: &[f32], kept: &mut Vec<u32>) {
        if let Some(n) = self.top_n_sigma {
            top_n_sigma(z, kept, n);
        }
        if let Some(k) = self.top_k {
            top_k(z, kept, k as usize);
        }
        if let Some(p) = self.typical {
            typical(z, kept, p);
        }
        if let Some(p) = self.top_p {
            top_p(z, kept, p);
        }
        if let Some(m) = self.min_p {
            min_p(z, kept, m);
        }
    }
}
