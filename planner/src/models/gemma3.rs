//! Gemma 3: scaled embeddings, norms before and after each block, GELU gate, norms of query and key heads, and sliding
//! windows on five of six layers.

use unisonic_core::format::Value;
use unisonic_core::numerics::attention::default_kappa;
use unisonic_core::numerics::embedding::embedding_scale;
use unisonic_core::plan::{Activation, RopeStyle};

use super::Model;
use super::builder::{Attention, Builder};
use super::hyper::{Hyper, Keys, ROPE_BASE};
use crate::error::PlanError;
use crate::graph::{Graph, RopeScaling, RopeSpec};

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let hyper = &model.hyper;
    let windows = windows(&model.keys, hyper)?;
    let mut b = Builder::new(model)?;
    let global_spec = b.rope_spec(RopeStyle::HalfSplit);
    let local_spec = local_rope(&model.keys, &global_spec)?;
    let global = Attention {
        rope: b.rope_table(global_spec),
        kappa: default_kappa(score_divisor(&model.keys, hyper)?),
        window: None,
        head_norm: true,
        bias: false,
    };
    // No table that no layer uses.
    let local_rope = if windows.iter().any(Option::is_some) { b.rope_table(local_spec) } else { global.rope };
    let mut x = b.embed(Some(embedding_scale(hyper.embedding_len)))?;
    for (layer, window) in (0..hyper.layers).zip(windows) {
        let attention = match window {
            Some(_) => Attention { rope: local_rope, window, ..global },
            None => global,
        };
        let normed = b.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let attended = b.attention(layer, normed, &attention)?;
        let attended = b.norm(&format!("blk.{layer}.post_attention_norm"), attended)?;
        x = b.add(&format!("blk.{layer}.attn_residual"), x, attended);
        let normed = b.norm(&format!("blk.{layer}.ffn_norm"), x)?;
        let fed = b.feed_forward(layer, normed, Activation::Gelu)?;
        let fed = b.norm(&format!("blk.{layer}.post_ffw_norm"), fed)?;
        x = b.add(&format!("blk.{layer}.ffn_residual"), x, fed);
    }
    b.finish(x, model.keys.soft_cap("final_logit_softcapping")?)
}

/// Scores are divided by the square root of this: the head length, except in the 27B model (62 layers).
fn score_divisor(keys: &Keys<'_>, hyper: &Hyper) -> Result<u32, PlanError> {
    match hyper.embedding_len / hyper.heads {
        _ if hyper.layers != 62 => Ok(hyper.head_len),
        0 => Err(keys.out_of_range("attention.head_count", hyper.heads, "at most the embedding length")),
        divisor => Ok(divisor),
    }
}

/// Local layers have their own base and are never stretched.
fn local_rope(keys: &Keys<'_>, global: &RopeSpec) -> Result<RopeSpec, PlanError> {
    let base = keys.f32("rope.freq_base_swa", ROPE_BASE)?.unwrap_or(10_000.0);
    Ok(RopeSpec { base: f64::from(base), scaling: RopeScaling::None, ..global.clone() })
}

/// The window of each layer. `attention.sliding_window_pattern` is a period, the last layer of each being global
/// (default 6), or says of each layer whether it is local. Without a window all layers are global.
fn windows(keys: &Keys<'_>, hyper: &Hyper) -> Result<Vec<Option<u32>>, PlanError> {
    let pattern = "attention.sliding_window_pattern";
    let window = keys.u32("attention.sliding_window", 0..=u32::MAX)?.filter(|&window| window > 0);
    let local: Vec<bool> = match keys.value(pattern) {
        Some(Value::Bools(local)) if local.len() == hyper.layers as usize => local.clone(),
        Some(Value::Bools(local)) => {
            let expected = format!("one entry for each of the {} layers", hyper.layers);
            return Err(keys.out_of_range(pattern, format!("an array of {}", local.len()), expected));
        }
        _ => {
            // Period 0 makes every layer local.
            let period = keys.u32(pattern, 0..=u32::MAX)?.unwrap_or(6);
            (0..hyper.layers).map(|layer| period == 0 || layer % period < period - 1).collect()
        }
    };
    Ok(local.into_iter().map(|local| window.filter(|_| local)).collect())
}
