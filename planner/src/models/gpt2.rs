//! GPT-2: LayerNorm, learned positions, q, k and v in one tensor, GELU without a gate, biases everywhere.

use unisonic_core::numerics::attention::default_kappa;

use super::Model;
use super::builder::{Attention, Builder};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let hyper = &model.hyper;
    let attention = Attention {
        rope: None,
        kappa: default_kappa(hyper.head_len),
        window: None,
        soft_cap: None,
        head_norm: false,
        bias: true,
        output_bias: true,
    };
    let mut b = Builder::new(model)?;
    let x = b.embed(None)?;
    let mut x = b.add_positions(x)?;
    for layer in 0..hyper.layers {
        let normed = b.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let attended = b.attention(layer, normed, &attention)?;
        x = b.add(&format!("blk.{layer}.attn_residual"), x, attended);
        let normed = b.norm(&format!("blk.{layer}.ffn_norm"), x)?;
        let fed = b.ungated_feed_forward(layer, normed)?;
        x = b.add(&format!("blk.{layer}.ffn_residual"), x, fed);
    }
    b.finish(x, None)
}
