//! Qwen 3 (dense): half-split RoPE, norms of query and key heads.

use unisonic_core::plan::RopeStyle;

use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let family = LlamaLike {
        rope_style: RopeStyle::HalfSplit,
        rope_factors: None,
        head_norm: true,
        bias: false,
        feed_forward: FeedForward::Gated,
    };
    llama_like(model, &family)
}
