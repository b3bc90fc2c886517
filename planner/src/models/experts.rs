//! The block of a mixture of experts: a router chooses some for each row, and their outputs are added with its weights.

use unisonic_core::plan::{Activation, Denominator};

use super::builder::Builder;
use super::hyper::{Experts, Hyper, Keys};
use crate::error::PlanError;
use crate::graph::{Op, Shape, Type, ValueId};

/// How a mixture is made up.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// How many experts there are.
    pub count: u32,
    /// How many of them a row takes.
    pub used: u32,
    /// Length of an expert.
    pub feed_forward_len: u32,
    /// Length of the shared expert, which every row takes, if there is one.
    pub shared_len: Option<u32>,
    /// Which weights add up to 1.
    pub denominator: Denominator,
}

impl Mixture {
    /// Of a Qwen model: without a key, experts share the feed-forward length of a dense one.
    pub fn of_qwen(keys: &Keys<'_>, hyper: &Hyper, denominator: Denominator) -> Result<Self, PlanError> {
        let experts = Experts::read(keys)?;
        let Some(Experts { count, used, feed_forward_len, shared_len }) = experts else {
            return Err(keys.out_of_range("expert_count", "absent or 0", "at least 1"));
        };
        let feed_forward_len = feed_forward_len.unwrap_or(hyper.feed_forward_len / used);
        if feed_forward_len == 0 {
            return Err(keys.out_of_range("expert_used_count", used, "at most the feed-forward length"));
        }
        Ok(Mixture { count, used, feed_forward_len, shared_len, denominator })
    }
}

impl Builder<'_> {
    /// The block of layer `layer`. The router reads the f32 values that the experts' quantised ones are made of.
    pub fn experts(&mut self, layer: u32, x: ValueId, mixture: &Mixture) -> Result<ValueId, PlanError> {
        let Mixture { count, used, feed_forward_len, shared_len, denominator } = *mixture;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (rows, width) = (self.ty(x).rows, self.ty(x).element.width());
        let router = Shape::Matrix { rows: count, cols: width };
        let router = self.tensors().weight(&name("ffn_gate_inp.weight"), router)?;
        let op = Op::Route { router, denominator };
        let routes = self.push(&name("ffn_gate_inp"), op, &[x], Type::f32(rows, 2 * used));
        let linear = |b: &mut Self, part: &str, x: ValueId, rows_each: u32| {
            let cols = b.ty(x).element.width();
            let weight = b.tensors().stack(&format!("{}.weight", name(part)), count, rows_each, cols)?;
            let ty = Type { slots: used, ..Type::f32(rows, rows_each) };
            Ok::<_, PlanError>(b.push(&name(part), Op::ExpertLinear { weight }, &[x, routes], ty))
        };
        let gate = linear(self, "ffn_gate_exps", x, feed_forward_len)?;
        let up = linear(self, "ffn_up_exps", x, feed_forward_len)?;
        let silu = Op::Gate { activation: Activation::Silu, part: 0 };
        let gated = self.push(&name("ffn_act_exps"), silu, &[gate, up], self.ty(gate));
        let down = linear(self, "ffn_down_exps", gated, width)?;
        let sum = self.push(&name("ffn_sum_exps"), Op::SumExperts, &[down, routes], Type::f32(rows, width));
        match shared_len {
            Some(len) => self.shared_expert(layer, x, sum, len),
            None => Ok(sum),
        }
    }

    /// Adds the shared expert to the sum of the others.
    fn shared_expert(
        &mut self,
        layer: u32,
        x: ValueId,
        sum: ValueId,
        len: u32,
    ) -> Result<ValueId, PlanError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let width = self.ty(x).element.width();
        let gate = self.linear(&name("ffn_gate_shexp"), x, len, false)?;
        let up = self.linear(&name("ffn_up_shexp"), x, len, false)?;
        let silu = Op::Gate { activation: Activation::Silu, part: 0 };
        let gated = self.push(&name("ffn_act_shexp"), silu, &[gate, up], self.ty(gate));
        let down = self.linear(&name("ffn_down_shexp"), gated, width, false)?;
        let scores = Shape::Matrix { rows: 1, cols: width };
        let gate = self.tensors().weight(&name("ffn_gate_inp_shexp.weight"), scores)?;
        let label = name("ffn_gate_inp_shexp");
        Ok(self.push(&label, Op::AddShared { gate }, &[x, sum, down], self.ty(sum)))
    }
}
