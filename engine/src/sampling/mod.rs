//! Choosing a token from logits (docs/numerics.md "Sampling").
//!
//! [`SamplerOptions`] are what a caller asks for; a [`Sampler`] holds them checked and chooses. Its answer is
//! that of [`SamplingChain::choose`], the specification, to the bit, but it never sorts the vocabulary:
//! `filters` find thresholds, `kept` collects what reaches them, `noise` draws. [`logprobs()`] says what the
//! model thought.
//!
//! A choice is a function of the logits, the tokens before it and the options. Nothing is carried from one to
//! the next, so batches, chunks and restarts cannot matter, and a sequence that is cut back goes on as if the
//! rest had never been.

mod filters;
mod json;
mod kept;
mod logprobs;
mod noise;
mod options;
mod order;
mod passes;
#[cfg(test)]
mod tests;

use unisonic_core::numerics::float::ord;
use unisonic_core::numerics::penalties::Bias;
use unisonic_core::numerics::sampling::{DrawKey, Temperature};
use unisonic_core::numerics::sampling_chain::{MAX_COUNT, SamplingChain};

pub use logprobs::{Logprobs, MAX_TOP_LOGPROBS, TokenLogprob, logprobs};
pub use options::{DEFAULT_WINDOW, SamplerError, SamplerOptions};
pub use unisonic_core::numerics::sampling_chain::Window;

use crate::{EngineError, Sample};
use kept::{Kept, MASKED, Scratch};
use noise::Race;
use passes::block_maxima;

/// Chooses tokens by checked options.
#[derive(Debug)]
pub struct Sampler {
    chain: SamplingChain,
    /// Logits with penalties, biases and masks.
    changed: Vec<f32>,
    /// How often each token occurs in the window; all 0 between choices.
    counts: Vec<u32>,
    scratch: Scratch,
}

impl Sampler {
    /// Checks the options for a vocabulary of `vocab_len` tokens.
    pub fn new(options: &SamplerOptions, vocab_len: u32) -> Result<Self, SamplerError> {
        let chain = options.check(vocab_len)?;
        Ok(Self { chain, changed: Vec::new(), counts: Vec::new(), scratch: Scratch::default() })
    }

    /// The options, checked.
    pub fn chain(&self) -> &SamplingChain {
        &self.chain
    }

    /// Whether each choice without a mask is the largest logit as it is, as that of [`crate::Greedy`].
    pub fn is_greedy(&self) -> bool {
        let Self { chain, .. } = self;
        chain.temperature == Temperature::Greedy && chain.penalties.is_none() && chain.biases.is_empty()
    }

    /// The token that follows `before`, all tokens of the sequence so far: its length is the position of the
    /// draw.
    ///
    /// `allowed` is the grammar's mask: bit `id % 32` of word `id / 32` is set for tokens that may come;
    /// those past its end may not. Logits of -inf are masked too; the others have to be finite.
    pub fn choose(
        &mut self,
        logits: &[f32],
        before: &[u32],
        allowed: Option<&[u32]>,
    ) -> Result<u32, SamplerError> {
        let position = before.len() as u32;
        let changes = self.change(logits, before, allowed);
        let z = if changes { &self.changed[..] } else { logits };
        block_maxima(z, &mut self.scratch.maxima);
        let largest = self.scratch.maxima.iter().copied().max().unwrap_or(MASKED);
        if largest <= MASKED {
            return Err(SamplerError::NothingAllowed { position });
        }
        if largest >= ord(f32::INFINITY) {
            let (token, logit) = (0..).zip(z).find(|&(_, &z)| ord(z) == largest).unwrap_or((0, &f32::NAN));
            return Err(SamplerError::NotFinite { token, position, logit: *logit });
        }
        let mut kept = Kept::all(z, &mut self.scratch);
        filter(&self.chain, &mut kept);
        let token = match self.chain.temperature {
            Temperature::Greedy => {
                kept.settle();
                kept.first().map(|(id, _)| id)
            }
            Temperature::Inverse(inverse) => {
                let key = DrawKey { seed: self.chain.seed, position, purpose: 0 };
                let mut race = Race::new(key, inverse);
                kept.race(&mut race);
                race.winner()
            }
        };
        token.ok_or(SamplerError::NothingAllowed { position })
    }

    /// Writes the logits with all changes of single ones; false, and nothing written, if there are none.
    fn change(&mut self, logits: &[f32], before: &[u32], allowed: Option<&[u32]>) -> bool {
        let window = self.chain.window.of(before);
        let penalties = self.chain.penalties.filter(|_| !window.is_empty());
        if penalties.is_none() && self.chain.biases.is_empty() && allowed.is_none() {
            return false;
        }
        let z = &mut self.changed;
        z.clear();
        z.extend_from_slice(logits);
        if let Some(penalties) = penalties {
            self.counts.resize(z.len(), 0);
            for &token in window {
                if let Some(count) = self.counts.get_mut(token as usize) {
                    *count = count.saturating_add(1).min(MAX_COUNT);
                }
            }
            for &token in window {
                let id = token as usize;
                // Zero the second time: each token once.
                let count = self.counts.get_mut(id).map_or(0, std::mem::take);
                if count > 0 {
                    z[id] = penalties.apply(z[id], count);
                }
            }
        }
        for &(token, bias) in &self.chain.biases {
            if let Some(z) = z.get_mut(token as usize) {
                match bias {
                    Bias::Add(bias) => *z += bias,
                    Bias::Mask => *z = f32::NEG_INFINITY,
                }
            }
        }
        if let Some(allowed) = allowed {
            mask(z, allowed);
        }
        true
    }
}

impl Sample for Sampler {
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError> {
        Ok(self.choose(logits, before, None)?)
    }
}

fn mask(z: &mut [f32], allowed: &[u32]) {
    for (at, z) in z.chunks_mut(32).enumerate() {
        let word = allowed.get(at).copied().unwrap_or(0);
        for (bit, z) in z.iter_mut().enumerate() {
            *z = if word >> bit & 1 == 1 { *z } else { f32::NEG_INFINITY };
        }
    }
}

/// The filters in their order.
fn filter(chain: &SamplingChain, kept: &mut Kept) {
    if let Some(k) = chain.top_k {
        kept.at_most(k);
    }
    if let Some(n) = chain.top_n_sigma {
        filters::top_n_sigma(kept, n);
    }
    if let Some(k) = chain.top_k {
        filters::top_k(kept, k);
    }
    if let Some(p) = chain.typical {
        filters::typical(kept, p);
    }
    if let Some(p) = chain.top_p {
        filters::top_p(kept, p);
    }
    if let Some(m) = chain.min_p {
        filters::min_p(kept, m);
    }
}
