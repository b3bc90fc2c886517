//! Gemma 3: norms of query and key heads, sliding windows on five of six layers with a base of their own.

use super::Model;
use super::gemma::{Gemma, gemma};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let family = Gemma {
        period: 6,
        window: 0,
        local_base: Some(10_000.0),
        head_norm: true,
        soft_cap: None,
        logit_soft_cap: model.keys.soft_cap("final_logit_softcapping")?,
        large_layers: 62,
    };
    gemma(model, &family)
}
