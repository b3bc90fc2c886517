//! Gemma 2: soft caps of scores and logits, sliding windows on every other layer.

use super::Model;
use super::gemma::{Gemma, gemma};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let soft_cap = |name: &str, default: f32| match model.keys.value(name) {
        Some(_) => model.keys.soft_cap(name),
        None => Ok(Some(default)),
    };
    let family = Gemma {
        period: 2,
        window: 4096,
        local_base: None,
        head_norm: false,
        soft_cap: soft_cap("attn_logit_softcapping", 50.0)?,
        logit_soft_cap: soft_cap("final_logit_softcapping", 30.0)?,
        large_layers: 46,
    };
    gemma(model, &family)
}
