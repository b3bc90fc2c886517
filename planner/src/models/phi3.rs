//! Phi 3: q, k and v in one tensor, gate and up in another; for long contexts two sets of RoPE factors (LongRoPE).
//!
//! Sliding windows are left out, as llama.cpp does (`src/models/phi3.cpp`): the files do not say of which layers they are.

use std::collections::HashSet;

use unisonic_core::plan::RopeStyle;

use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

/// Factors for contexts that are longer than the original one, and for the others.
pub const FACTORS: [&str; 2] = ["rope_factors_long.weight", "rope_factors_short.weight"];

/// Of two sets of factors one is for the context of the model, and the other is not read.
pub fn is_unread(name: &str, used: &HashSet<&str>) -> bool {
    FACTORS.contains(&name) && FACTORS.iter().any(|name| used.contains(name))
}

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let context_len = model.hyper.context_len;
    let original = model.keys.u32("rope.scaling.original_context_length", 1..=u32::MAX)?;
    // By the context that the model was made for, never by that of a run: the factors are part of the result.
    let [long, short] = FACTORS;
    let is_long = context_len > original.unwrap_or(context_len);
    let family = LlamaLike {
        rope_style: RopeStyle::HalfSplit,
        rope_factors: Some(if is_long { long } else { short }),
        head_norm: false,
        bias: false,
        feed_forward: FeedForward::Fused,
    };
    llama_like(model, &family)
}
