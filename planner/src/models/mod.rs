//! Architectures: from metadata and a tensor table to a graph. One small file each.
//!
//! A new one is a file with a `build` function and a row in [`ARCHITECTURES`]. The meaning of keys, their defaults
//! and the order of operations are those of llama.cpp (`src/llama-model.cpp`, `src/models/`), whose files these are.

mod builder;
mod gemma3;
mod hyper;
mod llama;
mod qwen2;
mod qwen3;
mod tensors;

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
use hyper::{Hyper, Keys};
pub use tensors::Tensors;

/// A model as its builder sees it.
struct Model<'a> {
    architecture: &'a str,
    keys: Keys<'a>,
    hyper: Hyper,
    tensors: &'a Tensors<'a>,
}

/// One row of the registry.
struct Architecture {
    name: &'static str,
    build: fn(&Model<'_>) -> Result<Graph, PlanError>,
}

/// The registry.
const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", build: llama::build },
    Architecture { name: "qwen2", build: qwen2::build },
    Architecture { name: "qwen3", build: qwen3::build },
    Architecture { name: "gemma3", build: gemma3::build },
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
    let hyper = Hyper::read(&keys)?;
    let graph = (row.build)(&Model { architecture: name, keys, hyper, tensors: &tensors })?;
    let used: HashSet<&str> = graph.weights().map(|weight| weight.tensor.as_str()).collect();
    tensors.all_used(|name| used.contains(name))?;
    Ok(graph)
}

/// What tells decoders of the llama family apart.
struct LlamaLike {
    rope_style: RopeStyle,
    rope_factors: bool,
    head_norm: bool,
    bias: bool,
}

/// The llama family: norm, attention, residual; norm, SwiGLU, residual; final norm and head.
fn llama_like(model: &Model<'_>, family: &LlamaLike) -> Result<Graph, PlanError> {
    let mut b = Builder::new(model)?;
    let mut spec = b.rope_spec(family.rope_style);
    if family.rope_factors {
        spec.factors = b.rope_factors()?;
    }
    let attention = Attention {
        rope: b.rope_table(spec),
        kappa: default_kappa(model.hyper.head_len),
        window: None,
        head_norm: family.head_norm,
        bias: family.bias,
    };
    let mut x = b.embed(None)?;
    for layer in 0..model.hyper.layers {
        let normed = b.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let attended = b.attention(layer, normed, &attention)?;
        x = b.add(&format!("blk.{layer}.attn_residual"), x, attended);
        let normed = b.norm(&format!("blk.{layer}.ffn_norm"), x)?;
        let fed = b.feed_forward(layer, normed, Activation::Silu)?;
        x = b.add(&format!("blk.{layer}.ffn_residual"), x, fed);
    }
    b.finish(x, None)
}
