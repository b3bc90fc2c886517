//! Qwen 3 with experts: as Qwen 3, weights over the chosen experts.

use unisonic_core::plan::{Denominator, RopeStyle};

use super::experts::Mixture;
use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let mixture = Mixture::of_qwen(&model.keys, &model.hyper, Denominator::Chosen)?;
    let mixture = Mixture { shared_len: None, ..mixture };
    let family = LlamaLike {
        rope_style: RopeStyle::HalfSplit,
        rope_factors: None,
        head_norm: true,
        bias: false,
        feed_forward: FeedForward::Experts(mixture),
    };
    llama_like(model, &family)
}
