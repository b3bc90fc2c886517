//! Architectures: from metadata and a tensor table to a graph. One small file each.
//!
//! A new one is a file with a `build` function and a row in [`ARCHITECTURES`]. The meaning of keys, their defaults
//! and the order of operations are those of llama.cpp (`src/llama-model.cpp`, `src/models/`), whose files these are.

mod builder;
mod experts;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma4;
mod gpt2;
mod hyper;
mod llama;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod tensors;

#[cfg(test)]
mod family_tests;
#[cfg(test)]
pub mod samples;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use unisonic_core::format::{Metadata, TensorInfo, required};
use unisonic_core::numerics::attention::default_kappa;
use unisonic_core::plan::{Activation, RopeStyle};

use crate::error::PlanError;
use crate::graph::Graph;
use builder::{Attention, Builder};
use experts::Mixture;
use hyper::{Experts, Hyper, Keys};
pub use tensors::Tensors;

/// A model as its builder sees it.
struct Model<'a> {
    architecture: &'a str,
    keys: Keys<'a>,
    hyper: Hyper,
    layer_norm: bool,
    tensors: &'a Tensors<'a>,
}

/// One row of the registry.
struct Architecture {
    name: &'static str,
    build: fn(&Model<'_>) -> Result<Graph, PlanError>,
    /// Whether norms are LayerNorms.
    layer_norm: bool,
    /// Whether models of it may have experts.
    experts: bool,
    /// Whether layers may differ in the length of the feed-forward block and in their key and value heads.
    unequal_layers: bool,
    /// Whether a file may hold a tensor of that name although nothing reads it, by the names of those that are read.
    unread: fn(&str, &HashSet<&str>) -> bool,
}

/// One with RMSNorm and without experts.
const fn dense(name: &'static str, build: fn(&Model<'_>) -> Result<Graph, PlanError>) -> Architecture {
    Architecture {
        name,
        build,
        layer_norm: false,
        experts: false,
        unequal_layers: false,
        unread: |_, _| false,
    }
}

/// The registry.
const ARCHITECTURES: &[Architecture] = &[
    Architecture { experts: true, ..dense("llama", llama::build) },
    dense("qwen2", qwen2::build),
    Architecture { experts: true, ..dense("qwen2moe", qwen2moe::build) },
    dense("qwen3", qwen3::build),
    Architecture { experts: true, ..dense("qwen3moe", qwen3moe::build) },
    dense("gemma2", gemma2::build),
    dense("gemma3", gemma3::build),
    Architecture { unequal_layers: true, unread: gemma4::is_unread, ..dense("gemma4", gemma4::build) },
    Architecture { unread: phi3::is_unread, ..dense("phi3", phi3::build) },
    Architecture { layer_norm: true, ..dense("gpt2", gpt2::build) },
];

/// `general.architecture`.
pub fn architecture(metadata: &Metadata) -> Result<&str, PlanError> {
    Ok(required(metadata.string("general.architecture"), "general.architecture", "a string")?)
}

/// Builds the graph of simple operations. Every tensor of the file must be used, or the file is of another kind.
pub fn build(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Graph, PlanError> {
    let name = architecture(metadata)?;
    let Some(row) = ARCHITECTURES.iter().find(|row| row.name == name) else {
        let supported: Vec<_> = ARCHITECTURES.iter().map(|row| row.name).collect();
        return Err(PlanError::Architecture { found: name.to_owned(), supported: supported.join(", ") });
    };
    let (keys, tensors) = (Keys::new(metadata, name), Tensors::new(name, tensors));
    let &Architecture { layer_norm, experts, unequal_layers, build, unread, .. } = row;
    if !experts {
        Experts::refuse(&keys)?;
    }
    let eps = if layer_norm { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
    let hyper = Hyper::read(&keys, eps)?;
    if !unequal_layers {
        hyper.require_equal_layers(&keys)?;
    }
    let graph = build(&Model { architecture: name, keys, hyper, layer_norm, tensors: &tensors })?;
    let used: HashSet<&str> = graph.weights().map(|weight| weight.tensor.as_str()).collect();
    tensors.all_used(|name| used.contains(name) || unread(name, &used))?;
    Ok(graph)
}

/// What tells decoders of the llama family apart.
struct LlamaLike {
    rope_style: RopeStyle,
    /// The tensor with a divisor for each RoPE frequency, where the file has it.
    rope_factors: Option<&'static str>,
    head_norm: bool,
    bias: bool,
    feed_forward: FeedForward,
}

/// The feed-forward block of the llama family.
enum FeedForward {
    /// SwiGLU.
    Gated,
    /// SwiGLU with gate and up in one tensor.
    Fused,
    /// A mixture of experts.
    Experts(Mixture),
}

/// The llama family: norm, attention, residual; norm, SwiGLU, residual; final norm and head.
fn llama_like(model: &Model<'_>, family: &LlamaLike) -> Result<Graph, PlanError> {
    let mut b = Builder::new(model)?;
    let mut spec = b.rope_spec(family.rope_style);
    if let Some(name) = family.rope_factors {
        spec.factors = b.rope_factors(name)?;
    }
    let attention = Attention {
        rope: Some(b.rope_table(spec)),
        kappa: default_kappa(model.hyper.head_len),
        window: None,
        soft_cap: None,
        head_norm: family.head_norm,
        bias: family.bias,
        output_bias: false,
    };
    let mut x = b.embed(None)?;
    for layer in 0..model.hyper.layers {
        let normed = b.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let attended = b.attention(layer, normed, &attention)?;
        x = b.add(&format!("blk.{layer}.attn_residual"), x, attended);
        let normed = b.norm(&format!("blk.{layer}.ffn_norm"), x)?;
        let fed = match &family.feed_forward {
            FeedForward::Gated => b.feed_forward(layer, normed, Activation::Silu)?,
            FeedForward::Fused => b.fused_feed_forward(layer, normed, Activation::Silu)?,
            FeedForward::Experts(mixture) => b.experts(layer, normed, mixture)?,
        };
        x = b.add(&format!("blk.{layer}.ffn_residual"), x, fed);
    }
    b.finish(x, None)
}
