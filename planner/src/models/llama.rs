//! Llama and what shares its files: Llama 1 to 3, Mistral, SmolLM and many more; with experts, Mixtral.
//!
//! Interleaved RoPE, for which converters permute the rows of q and k; `rope_freqs.weight` where there (Llama 3);
//! biases where the file has them. A Mistral file's sliding window is not used, as in llama.cpp. Weights of experts add up
//! to 1 over the chosen ones.

use unisonic_core::plan::{Denominator, RopeStyle};

use super::experts::Mixture;
use super::hyper::Experts;
use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let feed_forward = match Experts::read(&model.keys)? {
        Some(Experts { count, used, .. }) => FeedForward::Experts(Mixture {
            count,
            used,
            feed_forward_len: model.hyper.feed_forward_len,
            shared_len: None,
            denominator: Denominator::Chosen,
        }),
        None => FeedForward::Gated,
    };
    let family = LlamaLike {
        rope_style: RopeStyle::Interleaved,
        rope_factors: Some("rope_freqs.weight"),
        head_norm: false,
        bias: false,
        feed_forward,
    };
    llama_like(model, &family)
}
