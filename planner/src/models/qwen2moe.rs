//! Qwen 1.5 and 2 with experts: as Qwen 2, with a shared expert behind a gate, and weights over all experts.

use unisonic_core::plan::{Denominator, RopeStyle};

use super::experts::Mixture;
use super::{FeedForward, LlamaLike, Model, llama_like};
use crate::error::PlanError;
use crate::graph::Graph;

pub fn build(model: &Model<'_>) -> Result<Graph, PlanError> {
    let hyper = &model.hyper;
    let mut mixture = Mixture::of_qwen(&model.keys, hyper, Denominator::All)?;
    mixture.shared_len = Some(mixture.shared_len.unwrap_or(hyper.feed_forward_len));
    let family = LlamaLike {
        rope_style: RopeStyle::HalfSplit,
        rope_factors: None,
        head_norm: false,
        bias: true,
        feed_forward: FeedForward::Experts(mixture),
    };
    llama_like(model, &family)
}
