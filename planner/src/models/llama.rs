//! Llama and what shares its files: Llama 1 to 3, Mistral, SmolLM and many more.
//!
//! Interleaved RoPE, for which converters permute the rows of q and k; `rope_freqs.weight` where there (Llama 3);
//! biases where the file has them. A Mistral file's sliding window is not used, as in llama.cpp.

use unisonic_core::plan::RopeStyle;

use super::{LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let family =
        LlamaLike { rope_style: RopeStyle::Interleaved, rope_factors: true, head_norm: false, bias: false };
    llama_like(model, &family)
}
