//! Options of `run`, `batch` and `serve` that say how tokens are chosen.

use std::str::FromStr;

use clap::Args;
use unisonic_engine::sampling::{Sampler, SamplerError, SamplerOptions, Window};

use crate::numbers::{sampling, whole};

/// How tokens are chosen; without any of these each is the most probable one.
#[derive(Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Draws tokens, from probabilities at this temperature; 0 takes the most probable one
    #[arg(long, value_name = "T", value_parser = sampling("a number, such as 0.8", |options, value: f64| options.temperature = value))]
    temperature: Option<f64>,
    /// Draws from the K most probable tokens
    #[arg(long, value_name = "K", requires = "temperature", value_parser = whole(1..=u32::MAX))]
    top_k: Option<u32>,
    /// Draws from the most probable tokens that together have this probability
    #[arg(long, value_name = "P", requires = "temperature", value_parser = sampling("a number, such as 0.95", |options, value: f64| options.top_p = Some(value)))]
    top_p: Option<f64>,
    /// Draws from tokens at least this fraction as probable as the most probable one
    #[arg(long, value_name = "M", requires = "temperature", value_parser = sampling("a number, such as 0.05", |options, value: f64| options.min_p = Some(value)))]
    min_p: Option<f64>,
    /// Draws from the tokens nearest to the expected surprise that together have this probability
    #[arg(long, value_name = "P", requires = "temperature", value_parser = sampling("a number, such as 0.9", |options, value: f64| options.typical = Some(value)))]
    typical: Option<f64>,
    /// Draws from tokens whose logits are within so many standard deviations of the largest
    #[arg(long, value_name = "N", requires = "temperature", value_parser = sampling("a number, such as 1.5", |options, value: f64| options.top_n_sigma = Some(value)))]
    top_n_sigma: Option<f64>,
    /// Seed of the draws; the same seed gives the same answer everywhere [default: 0]
    #[arg(long, value_name = "SEED", requires = "temperature", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// Makes recent tokens less likely: divides positive logits by this, multiplies others; 1 is none
    #[arg(long, value_name = "R", value_parser = sampling("a number, such as 1.1", |options, value: f64| options.repeat_penalty = value))]
    repeat_penalty: Option<f64>,
    /// Last tokens, of prompt and answer, that the penalties look at; -1 is all [default: 64]
    #[arg(long, value_name = "N", value_parser = whole(-1..=i64::from(u32::MAX)))]
    repeat_last_n: Option<i64>,
    /// Subtracted from the logits of recent tokens
    #[arg(long, value_name = "X", value_parser = sampling("a number, such as 0.5", |options, value: f64| options.presence_penalty = value))]
    presence_penalty: Option<f64>,
    /// Subtracted from the logits of recent tokens for each time they occur
    #[arg(long, value_name = "X", value_parser = sampling("a number, such as 0.5", |options, value: f64| options.frequency_penalty = value))]
    frequency_penalty: Option<f64>,
    /// Adds BIAS to the logit of token ID; -inf is never. May be repeated
    #[arg(long, value_name = "ID=BIAS")]
    logit_bias: Vec<Bias>,
}

/// `ID=BIAS`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bias(u32, f64);

impl FromStr for Bias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, bias) = text.split_once('=').ok_or("expected ID=BIAS, such as 42=-inf")?;
        let id = id.parse().map_err(|_| format!("`{id}` is not a token id (a number such as 42)"))?;
        let bias =
            bias.parse().map_err(|_| format!("`{bias}` is not a bias (a number such as -1.5, or -inf)"))?;
        Ok(Self(id, bias))
    }
}

impl SamplingArgs {
    /// The options, each given value in the place of its default.
    pub fn options(&self) -> SamplerOptions {
        let default = SamplerOptions::default();
        let window = self.repeat_last_n.map(|n| u32::try_from(n).map_or(Window::All, Window::Last));
        SamplerOptions {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical: self.typical,
            top_n_sigma: self.top_n_sigma,
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            repeat_window: window.unwrap_or(default.repeat_window),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            logit_bias: self.logit_bias.iter().map(|&Bias(id, bias)| (id, bias)).collect(),
            seed: self.seed.unwrap_or(default.seed),
        }
    }

    /// Whether the caller has said at what temperature.
    pub fn draws(&self) -> bool {
        self.temperature.is_some()
    }

    /// Whether the caller has made any choice.
    pub fn is_given(&self) -> bool {
        let numbers = [
            self.temperature,
            self.top_p,
            self.min_p,
            self.typical,
            self.top_n_sigma,
            self.repeat_penalty,
            self.presence_penalty,
            self.frequency_penalty,
        ];
        numbers.iter().any(Option::is_some)
            || self.top_k.is_some()
            || self.seed.is_some()
            || self.repeat_last_n.is_some()
            || !self.logit_bias.is_empty()
    }

    /// The sampler for a vocabulary of so many tokens.
    pub fn sampler(&self, vocab_len: u32) -> Result<Sampler, SamplerError> {
        Sampler::new(&self.options(), vocab_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_names_a_token() {
        assert_eq!("42=-1.5".parse(), Ok(Bias(42, -1.5)));
        assert_eq!("0=-inf".parse(), Ok(Bias(0, f64::NEG_INFINITY)));
        for wrong in ["42", "x=1", "-1=1", "1=x", "="] {
            assert!(wrong.parse::<Bias>().is_err(), "{wrong}");
        }
    }
}
