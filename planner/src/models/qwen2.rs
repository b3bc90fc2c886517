//! Qwen 2 and 2.5: half-split RoPE, biases on q, k and v.

use unisonic_core::plan::RopeStyle;

use super::{LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let family =
        LlamaLike { rope_style: RopeStyle::HalfSplit, rope_factors: false, head_norm: false, bias: true };
    llama_like(model, &family)
}
