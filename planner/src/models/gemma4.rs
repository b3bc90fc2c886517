//! Gemma 4, dense: a second embedding of each token with a part for every layer, later layers that read the cache of an
//! earlier one, heads of one length in local layers and of another in global ones.
//!
//! As in llama.cpp (`src/models/gemma4.cpp`). Scores are not scaled; value heads have a norm without weights; of global
//! layers only some pairs turn, which `rope_freqs.weight` says by huge divisors for the others. Constant factors in front
//! of a norm are in its epsilon (docs/numerics.md "Norms and elementwise").

use std::collections::HashSet;

use unisonic_core::format::Value;
use unisonic_core::numerics::attention::kappa;
use unisonic_core::numerics::embedding::embedding_scale;
use unisonic_core::plan::{Activation, KvLayer, KvLayerId, RopeStyle, RopeTableId, Rows};

use super::Model;
use super::builder::{Attention, Builder};
use super::gemma::{PATTERN, windows};
use super::hyper::{Hyper, Keys, ROPE_BASE};
use crate::error::PlanError;
use crate::graph::limits::{MAX_HEAD_LEN, MAX_ROW_LEN};
use crate::graph::{Graph, Op, RopeScaling, RopeSpec, Shape, Type, ValueId};

/// The reference's base of local layers where the file does not say it.
const LOCAL_ROPE_BASE: f32 = 10_000.0;

/// What Gemma 4 says beside [`Hyper`].
struct Gemma4 {
    /// The window of each layer; global layers have none.
    windows: Vec<Option<u32>>,
    /// Layers that have a cache; later ones read that of the last local or global one among them.
    own_caches: u32,
    /// Values a head of local layers.
    local_head_len: u32,
    /// Rotated dimensions of them.
    local_rotary_len: u32,
    /// Values of a token's embedding for a layer; 0 is none.
    per_layer_len: u32,
}

/// Embeddings times sqrt(n_embd); layers of norm, attention, norm, residual; norm, GELU gate, norm, residual; the layer's
/// part of the second embedding through a GELU gate, norm, residual; a scalar; final norm, head and soft cap.
pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let hyper = &model.hyper;
    let of_model = Gemma4::read(&model.keys, hyper)?;
    let mut b = Builder::new(model)?;
    let mut x = b.embed(Some(embedding_scale(hyper.embedding_len)))?;
    let inputs = match of_model.per_layer_len {
        0 => None,
        len => Some(per_layer_inputs(&mut b, model, x, len)?),
    };
    let [local, global] = of_model.ropes(&mut b, model)?;
    for (layer, &window) in (0..hyper.layers).zip(&of_model.windows) {
        let how = Attention {
            rope: Some(if window.is_some() { local } else { global }),
            kappa: kappa(1.0),
            window,
            soft_cap: None,
            head_norm: true,
            bias: false,
            output_bias: false,
        };
        let normed = b.norm(&format!("blk.{layer}.attn_norm"), x)?;
        let attended = of_model.attention(&mut b, hyper, layer, normed, &how)?;
        let attended = b.norm(&format!("blk.{layer}.post_attention_norm"), attended)?;
        x = b.add(&format!("blk.{layer}.attn_residual"), x, attended);
        let normed = b.norm(&format!("blk.{layer}.ffn_norm"), x)?;
        let fed = b.feed_forward(layer, normed, Activation::Gelu)?;
        let fed = b.norm(&format!("blk.{layer}.post_ffw_norm"), fed)?;
        x = b.add(&format!("blk.{layer}.ffn_residual"), x, fed);
        if let Some(inputs) = inputs {
            x = per_layer_block(&mut b, model, layer, x, inputs, of_model.per_layer_len)?;
        }
        x = output_scale(&mut b, layer, x)?;
    }
    b.finish(x, model.keys.soft_cap("final_logit_softcapping")?)
}

/// Files may hold keys and values of layers that read the cache of another.
pub fn is_unread(name: &str, _used: &HashSet<&str>) -> bool {
    let parts = ["attn_k.weight", "attn_v.weight", "attn_k_norm.weight"];
    let of_layer = name.strip_prefix("blk.").and_then(|name| name.split_once('.'));
    of_layer.is_some_and(|(_, part)| parts.contains(&part))
}

impl Gemma4 {
    fn read(keys: &Keys<'_>, hyper: &Hyper) -> Result<Self, PlanError> {
        let Some(Value::Bools(_)) = keys.value(PATTERN) else {
            let expected = "an array that says of each layer whether it is local";
            return Err(keys.out_of_range(PATTERN, "no such array", expected));
        };
        keys.required_u32("attention.sliding_window", 1..=u32::MAX)?;
        let windows = windows(keys, hyper, 0, 0)?;
        let (layers, shared) = (hyper.layers, "attention.shared_kv_layers");
        let own_caches = layers - keys.u32(shared, 0..=layers - 1)?.unwrap_or(0);
        let is_local = |layer: u32| windows.get(layer as usize).is_some_and(Option::is_some);
        // The last layers with caches are a local and a global one.
        let has_source = |layer: u32| {
            source_of(own_caches, is_local(layer)).is_some_and(|s| is_local(s) == is_local(layer))
        };
        if let Some(layer) = (own_caches..layers).find(|&layer| !has_source(layer)) {
            let expected = format!(
                "as many that layer {layer} finds a cache of its kind: the last layer with a cache is global, the one before it local"
            );
            return Err(keys.out_of_range(shared, layers - own_caches, expected));
        }
        let local_head_len = keys.required_u32("attention.key_length_swa", 1..=MAX_HEAD_LEN)?;
        let value_len = keys.required_u32("attention.value_length_swa", 1..=MAX_HEAD_LEN)?;
        if value_len != local_head_len {
            let expected = format!("{local_head_len}, the length of keys");
            return Err(keys.out_of_range("attention.value_length_swa", value_len, expected));
        }
        let rotary = "rope.dimension_count_swa";
        let local_rotary_len = keys.u32(rotary, 1..=local_head_len)?.unwrap_or(local_head_len);
        if !local_rotary_len.is_multiple_of(2) {
            return Err(keys.out_of_range(rotary, local_rotary_len, "an even number"));
        }
        let per_layer = "embedding_length_per_layer_input";
        let per_layer_len = keys.required_u32(per_layer, 0..=MAX_ROW_LEN / layers)?;
        Ok(Gemma4 { windows, own_caches, local_head_len, local_rotary_len, per_layer_len })
    }

    /// The position tables of local and of global layers; none that no layer uses.
    fn ropes(&self, b: &mut Builder<'_>, model: &Model<'_>) -> Result<[RopeTableId; 2], PlanError> {
        let mut global = b.rope_spec(RopeStyle::HalfSplit);
        let base = model.keys.f32("rope.freq_base_swa", ROPE_BASE)?.unwrap_or(LOCAL_ROPE_BASE);
        let local = RopeSpec {
            rotary_len: self.local_rotary_len,
            base: f64::from(base),
            scaling: RopeScaling::None,
            ..global.clone()
        };
        if self.windows.iter().all(Option::is_some) {
            let local = b.rope_table(local);
            return Ok([local; 2]);
        }
        global.factors = Some(b.tensors().f32_vector("rope_freqs.weight", global.rotary_len / 2)?);
        let global = b.rope_table(global);
        let has_local = self.windows.iter().any(Option::is_some);
        Ok([if has_local { b.rope_table(local) } else { global }, global])
    }

    fn attention(
        &self,
        b: &mut Builder<'_>,
        hyper: &Hyper,
        layer: u32,
        x: ValueId,
        how: &Attention,
    ) -> Result<ValueId, PlanError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let head_len = if how.window.is_some() { self.local_head_len } else { hyper.head_len };
        let q = b.linear(&name("attn_q"), x, hyper.heads * head_len, false)?;
        let q = b.heads(layer, "q", q, head_len, how)?;
        let kv = match source_of(self.own_caches, how.window.is_some()) {
            Some(source) if layer >= self.own_caches => KvLayerId(source),
            _ => {
                let kv_heads = hyper.layer_kv_heads.get(layer as usize).copied().unwrap_or(hyper.kv_heads);
                let cache = KvLayer { heads: kv_heads, head_len };
                let k = b.linear(&name("attn_k"), x, kv_heads * head_len, false)?;
                // Without a projection of their own, values are what keys are made of.
                let v = match b.tensors().has(&format!("{}.weight", name("attn_v"))) {
                    true => b.linear(&name("attn_v"), x, kv_heads * head_len, false)?,
                    false => k,
                };
                let k = b.heads(layer, "k", k, head_len, how)?;
                let norm = Op::HeadNorm { head_len, weight: None, eps: hyper.eps };
                let v = b.push(&name("attn_v_norm"), norm, &[v], b.ty(v));
                b.write_kv(layer, k, v, cache)
            }
        };
        let attended = b.attend(layer, q, kv, how);
        b.linear(&name("attn_output"), attended, hyper.embedding_len, false)
    }
}

/// The layer whose cache later ones read: the last with a cache for global layers, the one before it for local ones.
fn source_of(own_caches: u32, is_local: bool) -> Option<u32> {
    own_caches.checked_sub(if is_local { 2 } else { 1 })
}

/// For each layer `len` values: `norm(W x / sqrt(n_embd)) + sqrt(len)*e`, e the token's row of the second table. The
/// reference multiplies this by 1/sqrt(2) too; only the norm at the end of [`per_layer_block`] sees the factor.
fn per_layer_inputs(
    b: &mut Builder<'_>,
    model: &Model<'_>,
    x: ValueId,
    len: u32,
) -> Result<ValueId, PlanError> {
    let hyper = &model.hyper;
    let width = len * hyper.layers;
    let rows = b.vocab_len();
    let table = b.tensors().weight("per_layer_token_embd.weight", Shape::Matrix { rows, cols: width })?;
    let embed = Op::Embed { table, scale: Some(embedding_scale(len)) };
    let selected = b.push("per_layer_token_embd", embed, &[b.tokens()], Type::f32(Rows::All, width));
    let projected = b.linear("per_layer_model_proj", x, width, false)?;
    let eps = model.keys.eps_before_scale(hyper.eps, hyper.embedding_len)?;
    let normed = b.head_norm("per_layer_proj_norm", projected, len, eps)?;
    Ok(b.add("per_layer_inputs", normed, selected))
}

/// `x + norm(W2 (gelu(W1 x) * p))`, p the layer's part of the inputs.
fn per_layer_block(
    b: &mut Builder<'_>,
    model: &Model<'_>,
    layer: u32,
    x: ValueId,
    inputs: ValueId,
    len: u32,
) -> Result<ValueId, PlanError> {
    let name = |part: &str| format!("blk.{layer}.{part}");
    let gate = b.linear(&name("inp_gate"), x, len, false)?;
    let act = Op::Gate { activation: Activation::Gelu, part: layer };
    let gated = b.push(&name("inp_act"), act, &[gate, inputs], b.ty(gate));
    let projected = b.linear(&name("proj"), gated, model.hyper.embedding_len, false)?;
    let eps = model.keys.eps_before_scale(model.hyper.eps, 2)?;
    let normed = b.norm_with_eps(&name("post_norm"), projected, eps)?;
    Ok(b.add(&name("inp_residual"), x, normed))
}

/// The layer's result times a scalar, where the file has one.
fn output_scale(b: &mut Builder<'_>, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
    let label = format!("blk.{layer}.layer_output_scale");
    let tensor = format!("{label}.weight");
    if !b.tensors().has(&tensor) {
        return Ok(x);
    }
    let scale = b.tensors().weight(&tensor, Shape::Vector(1))?;
    Ok(b.push(&label, Op::Scale { scale }, &[x], b.ty(x)))
}
