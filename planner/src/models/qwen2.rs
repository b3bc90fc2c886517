//! Qwen 2 and 2.5: half-split RoPE, biases on q, k and v.

use unisonic_core::plan::RopeStyle;

use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let family = LlamaLike {
        rope_style: RopeStyle::HalfSplit,
        rope_factors: None,
        head_norm: false,
        bias: true,
        feed_forward: FeedForward::Gated,
    };
    llama_like(model, &family)
}
