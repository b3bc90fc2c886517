//! Options of sampling as callers give them, and what can be wrong with them.

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use unisonic_core::numerics::filters::{Fraction, Sigmas};
use unisonic_core::numerics::penalties::{Bias, Penalties};
use unisonic_core::numerics::sampling::{SamplingError, Temperature};
use unisonic_core::numerics::sampling_chain::{SamplingChain, Window};

use super::json;

/// How tokens are chosen. The default is greedy: the largest logit, ties to the lower id.
///
/// The order is fixed: penalties, logit bias, grammar mask, top-n-sigma, top-k, typical, top-p, min-p,
/// temperature, draw (docs/numerics.md "Sampling" has the formulas). Numbers are f64 here; penalties and
/// biases are rounded once to f32.
///
/// As JSON an object with these members; what is missing has its default. `repeat_window` is called
/// `repeat_last_n` and is a number, -1 for all; `logit_bias` is an object of numbers by id, in which `"-inf"`
/// means never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerOptions {
    /// T in [1e-4, 1e4]: logits are divided by it before the draw. 0 is greedy, whatever the seed.
    pub temperature: f64,
    /// Keeps the k tokens with the largest logits; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Keeps the most probable tokens that together reach this share; in [0, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Keeps tokens at least this fraction as probable as the most probable one; in [0, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Keeps the tokens whose surprisal is nearest to the entropy and that together reach this share; in [0,
    /// 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical: Option<f64>,
    /// Keeps logits within so many standard deviations of the largest; in [0, 64].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_n_sigma: Option<f64>,
    /// Divides positive logits of tokens in the window by this, multiplies others; once however often a token
    /// occurs. In [1/1024, 1024], 1 is none.
    pub repeat_penalty: f64,
    /// Tokens before the one that is chosen that count for the three penalties, prompt and output alike.
    #[serde(rename = "repeat_last_n", with = "json::window")]
    pub repeat_window: Window,
    /// Subtracted from logits of tokens in the window; in [-1024, 1024].
    pub presence_penalty: f64,
    /// Subtracted from logits of tokens in the window for each time they occur there; in [-1024, 1024].
    pub frequency_penalty: f64,
    /// Added to the logit of a token, in [-1048576, 1048576]; -inf means never. Each token at most once.
    #[serde(with = "json::biases", skip_serializing_if = "Vec::is_empty")]
    pub logit_bias: Vec<(u32, f64)>,
    /// Noise of a draw is a function of the seed, the position of the token in its sequence, and its id.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            min_p: None,
            typical: None,
            top_n_sigma: None,
            repeat_penalty: 1.0,
            repeat_window: DEFAULT_WINDOW,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// The window of penalties unless one is asked for.
pub const DEFAULT_WINDOW: Window = Window::Last(64);

impl SamplerOptions {
    /// Whether tokens are drawn; if not, each is the largest logit.
    pub fn draws(&self) -> bool {
        self.temperature != 0.0
    }

    /// The options with every value checked, for a vocabulary of `vocab_len` tokens.
    pub fn check(&self, vocab_len: u32) -> Result<SamplingChain, SamplerError> {
        let fraction = |option, p: Option<f64>| p.map(|p| Fraction::new(option, p)).transpose();
        if self.top_k == Some(0) {
            return Err(SamplingError { option: "top-k", found: 0.0, expected: "at least 1" }.into());
        }
        Ok(SamplingChain {
            penalties: self.penalties()?,
            window: self.repeat_window,
            biases: self.biases(vocab_len)?,
            top_n_sigma: self.top_n_sigma.map(Sigmas::new).transpose()?,
            top_k: self.top_k,
            typical: fraction("typical", self.typical)?,
            top_p: fraction("top-p", self.top_p)?,
            min_p: fraction("min-p", self.min_p)?,
            temperature: Temperature::new(self.temperature)?,
            seed: self.seed,
        })
    }

    /// None where they change nothing.
    fn penalties(&self) -> Result<Option<Penalties>, SamplingError> {
        let [repeat, frequency, presence] =
            [self.repeat_penalty, self.frequency_penalty, self.presence_penalty]
                .map(|penalty| penalty as f32);
        let penalties = Penalties::new(repeat, frequency, presence)?;
        Ok((repeat != 1.0 || frequency != 0.0 || presence != 0.0).then_some(penalties))
    }

    fn biases(&self, vocab_len: u32) -> Result<Vec<(u32, Bias)>, SamplerError> {
        let mut seen = HashSet::new();
        let checked = self.logit_bias.iter().map(|&(token, bias)| {
            if token >= vocab_len {
                return Err(SamplerError::BiasToken { token, vocab_len });
            }
            if !seen.insert(token) {
                return Err(SamplerError::RepeatedBias { token });
            }
            Ok((token, Bias::new(bias as f32)?))
        });
        checked.collect()
    }
}

/// What is wrong with options of sampling, or with the logits they meet.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// A value outside its range.
    #[error(transparent)]
    Option(#[from] SamplingError),
    /// A bias for a token that does not exist.
    #[error("logit bias names token {token}, but the model's tokens are 0 to {}", vocab_len - 1)]
    BiasToken {
        /// The id.
        token: u32,
        /// Tokens of the model; not 0.
        vocab_len: u32,
    },
    /// Two biases for one token.
    #[error("logit bias names token {token} twice; give each token one bias")]
    RepeatedBias {
        /// The id.
        token: u32,
    },
    /// Every token is masked.
    #[error("no token is left at position {position}: logit bias and grammar mask all; allow at least one")]
    NothingAllowed {
        /// Position of the token to choose.
        position: u32,
    },
    /// A logit that no model of the arithmetic's range has.
    #[error("the logit of token {token} at position {position} is {logit}, but logits have to be finite")]
    NotFinite {
        /// The id.
        token: u32,
        /// Position of the token to choose.
        position: u32,
        /// The logit, after penalties and bias.
        logit: f32,
    },
}
