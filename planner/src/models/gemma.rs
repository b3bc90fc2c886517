//! What Gemma 2 and 3 share: scaled embeddings, norms before and after each block, GELU gate, and sliding windows on some
//! layers.

use unisonic_core::format::Value;
use unisonic_core::numerics::attention::{default_kappa, default_scale, kappa_with_soft_cap};
use unisonic_core::numerics::embedding::embedding_scale;
use unisonic_core::plan::{Activation, RopeStyle};

use super::Model;
use super::builder::{Attention, Builder};
use super::hyper::{Hyper, Keys, ROPE_BASE};
use crate::error::PlanError;
use crate::graph::{Graph, RopeScaling, RopeSpec};

/// What tells them apart.
pub struct Gemma {
    /// Of each so many layers the last is global, where the file does not say it.
    pub period: u32,
    /// The sliding window where the file does not say it; 0 is none.
    pub window: u32,
    /// Whether local layers have position tables of their own: the base where the file does not say it, never stretched.
    pub local_base: Option<f32>,
    /// Whether query and key heads are normed.
    pub head_norm: bool,
    /// Soft cap of the scores.
    pub soft_cap: Option<f32>,
    /// Soft cap of the logits.
    pub logit_soft_cap: Option<f32>,
    /// Layers of the 27B model, whose scores are divided by the square root of `embedding_length / heads`.
    pub large_layers: u32,
}

/// Embeddings times sqrt(n_embd); layers of norm, attention, norm, residual; norm, GELU gate, norm, residual; final norm,
/// head and soft cap.
pub fn gemma(model: &Model<'_>, family: &Gemma) -> Result<Graph, PlanError> {
    let hyper = &model.hyper;
    let windows = windows(&model.keys, hyper, family.period, family.window)?;
    let mut b = Builder::new(model)?;
    let global_spec = b.rope_spec(RopeStyle::HalfSplit);
    let local_spec = local_rope(&model.keys, &global_spec, family)?;
    let divisor = score_divisor(&model.keys, hyper, family)?;
    // No table that no layer uses, and none twice.
    let has_local = windows.iter().any(Option::is_some) && local_spec != global_spec;
    let global = Attention {
        rope: Some(b.rope_table(global_spec)),
        kappa: match family.soft_cap {
            Some(_) => kappa_with_soft_cap(default_scale(divisor)),
            None => default_kappa(divisor),
        },
        window: None,
        soft_cap: family.soft_cap,
        head_norm: family.head_norm,
        bias: false,
        output_bias: false,
    };
    let local_rope = if has_local { Some(b.rope_table(local_spec)) } else { global.rope };
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
    b.finish(x, family.logit_soft_cap)
}

/// Scores are divided by the square root of this: the head length, except in the 27B model.
fn score_divisor(keys: &Keys<'_>, hyper: &Hyper, family: &Gemma) -> Result<u32, PlanError> {
    match hyper.embedding_len / hyper.heads {
        _ if hyper.layers != family.large_layers => Ok(hyper.head_len),
        0 => Err(keys.out_of_range("attention.head_count", hyper.heads, "at most the embedding length")),
        divisor => Ok(divisor),
    }
}

/// The table of local layers: that of the others, or one with a base of its own that is never stretched.
fn local_rope(keys: &Keys<'_>, global: &RopeSpec, family: &Gemma) -> Result<RopeSpec, PlanError> {
    let given = keys.f32("rope.freq_base_swa", ROPE_BASE)?;
    Ok(match (family.local_base, given) {
        (Some(base), given) => {
            RopeSpec { base: f64::from(given.unwrap_or(base)), scaling: RopeScaling::None, ..global.clone() }
        }
        (None, Some(base)) => RopeSpec { base: f64::from(base), ..global.clone() },
        (None, None) => global.clone(),
    })
}

/// The key that says which layers are local.
pub const PATTERN: &str = "attention.sliding_window_pattern";

/// The window of each layer. `attention.sliding_window_pattern` is a period, the last layer of each being global, or says
/// of each layer whether it is local. Without a window all layers are global. `period` and `window` are for files that do not
/// say them.
pub fn windows(
    keys: &Keys<'_>,
    hyper: &Hyper,
    period: u32,
    window: u32,
) -> Result<Vec<Option<u32>>, PlanError> {
    let window = keys.u32("attention.sliding_window", 0..=u32::MAX)?.unwrap_or(window);
    let window = Some(window).filter(|&window| window > 0);
    let pattern = PATTERN;
    let local: Vec<bool> = match keys.value(pattern) {
        Some(Value::Bools(local)) if local.len() == hyper.layers as usize => local.clone(),
        Some(Value::Bools(local)) => {
            let expected = format!("one entry for each of the {} layers", hyper.layers);
            return Err(keys.out_of_range(pattern, format!("an array of {}", local.len()), expected));
        }
        _ => {
            // Period 0 makes every layer local.
            let period = keys.u32(pattern, 0..=u32::MAX)?.unwrap_or(period);
            (0..hyper.layers).map(|layer| period == 0 || layer % period < period - 1).collect()
        }
    };
    Ok(local.into_iter().map(|local| window.filter(|_| local)).collect())
}
