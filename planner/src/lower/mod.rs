//! Lowering: from the last graph to a plan. One node becomes one step; values become buffers, weights and tables
//! become entries.

mod buffers;

use std::collections::HashMap;

use unisonic_core::numerics::range::check_rope_factors;
use unisonic_core::plan::{
    self, BufferId, Plan, RopeTable, Step, TensorPart, Weight, WeightId, WeightSource,
};

use crate::error::PlanError;
use crate::graph::{Element, Graph, HeadNorm, Node, Op, RopeSpec, Shape, ValueId, WeightRef};
use crate::models::Tensors;
use crate::rope;

/// Lowers a graph whose activations and heads are quantised. Of `source` only the factors of position tables are
/// read.
pub fn lower(graph: &Graph, tensors: &Tensors<'_>, source: &dyn WeightSource) -> Result<Plan, PlanError> {
    let (buffers, buffer_of) = buffers::assign(graph);
    let mut lowering =
        Lowering { graph, tensors, buffer_of, weights: Vec::new(), weight_ids: HashMap::new() };
    let mut steps = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        if let Some(op) = lowering.op(node)? {
            steps.push(Step { label: node.label.clone(), op });
        }
    }
    let mut inputs = graph.nodes.iter().filter(|node| matches!(node.op, Op::Input));
    let input = inputs.next().map(|node| node.results[0]);
    Ok(Plan {
        architecture: graph.architecture.clone(),
        vocab_len: graph.vocab_len,
        context_len: graph.context_len,
        logits: lowering.buffer(graph.output),
        input: input.map(|value| lowering.buffer(value)),
        weights: lowering.weights,
        buffers,
        rope_tables: graph
            .rope_tables
            .iter()
            .map(|spec| rope_table(spec, source))
            .collect::<Result<_, _>>()?,
        kv_layers: graph.kv_layers.clone(),
        steps,
    })
}

struct Lowering<'a> {
    graph: &'a Graph,
    tensors: &'a Tensors<'a>,
    buffer_of: Vec<BufferId>,
    weights: Vec<Weight>,
    weight_ids: HashMap<(&'a str, Option<TensorPart>), WeightId>,
}

impl<'a> Lowering<'a> {
    fn buffer(&self, value: ValueId) -> BufferId {
        self.buffer_of[value.index()]
    }

    /// Weights are listed in the order of first use.
    fn weight(&mut self, weight: &'a WeightRef) -> Result<WeightId, PlanError> {
        if let Some(&id) = self.weight_ids.get(&(weight.tensor.as_str(), weight.part)) {
            return Ok(id);
        }
        let (rows, cols) = match weight.shape {
            Shape::Vector(len) => (1, len),
            Shape::Matrix { rows, cols } => (rows, cols),
        };
        let id = WeightId(self.weights.len() as u32);
        let encoding = self.tensors.encoding(weight)?;
        let (tensor, part) = (weight.tensor.clone(), weight.part);
        self.weights.push(Weight { tensor, encoding, rows, cols, part });
        self.weight_ids.insert((&weight.tensor, weight.part), id);
        Ok(id)
    }

    fn head_norm(&mut self, norm: Option<&'a HeadNorm>) -> Result<Option<plan::HeadNorm>, PlanError> {
        let lower =
            |norm: &'a HeadNorm| Ok(plan::HeadNorm { weight: self.weight(&norm.weight)?, eps: norm.eps });
        norm.map(lower).transpose()
    }

    /// The f32 and the quantised result of a norm or gate.
    fn float_results(&self, node: &Node) -> (Option<BufferId>, Option<BufferId>) {
        let find = |quantised: bool| {
            let is = |result: &&ValueId| {
                matches!(self.graph.ty(**result).element, Element::A16 { .. }) == quantised
            };
            node.results.iter().find(is).map(|&result| self.buffer(result))
        };
        (find(false), find(true))
    }

    /// The step's operation; none for what the batch brings along. The graph is verified: operands and results are
    /// there as each operation needs them.
    fn op(&mut self, node: &'a Node) -> Result<Option<plan::Op>, PlanError> {
        let input = |index: usize| self.buffer(node.inputs[index]);
        let add = (node.inputs.len() > 1).then(|| input(1));
        let x = if node.inputs.is_empty() { BufferId(0) } else { input(0) };
        let out = node.results.first().map_or(BufferId(0), |&result| self.buffer(result));
        Ok(Some(match &node.op {
            Op::Tokens | Op::Input => return Ok(None),
            Op::Embed { table, scale } => plan::Op::Embed { table: self.weight(table)?, scale: *scale, out },
            Op::EmbedPositions { table } => plan::Op::EmbedPositions { table: self.weight(table)?, out },
            Op::LayerNorm { weight, bias, eps } => {
                let (out, quantized) = self.float_results(node);
                let (weight, bias) = (self.weight(weight)?, self.weight(bias)?);
                plan::Op::LayerNorm { x, weight, bias, eps: *eps, out, quantized }
            }
            Op::RmsNorm { weight, eps } => {
                let (out, quantized) = self.float_results(node);
                plan::Op::RmsNorm { x, weight: self.weight(weight)?, eps: *eps, add, out, quantized }
            }
            Op::HeadNorm { head_len, weight, eps } => {
                let weight = weight.as_ref().map(|weight| self.weight(weight)).transpose()?;
                plan::Op::HeadNorm { x, weight, head_len: *head_len, eps: *eps, out }
            }
            Op::Rope { table, head_len } => plan::Op::Rope { x, rope: *table, head_len: *head_len, out },
            Op::Linear { weight, bias, head } => {
                let weight = self.weight(weight)?;
                let bias = bias.as_ref().map(|bias| self.weight(bias)).transpose()?;
                plan::Op::Linear { x, weight, bias, add, out, head: *head }
            }
            Op::Add => plan::Op::Add { a: x, b: input(1), out },
            Op::Quantize => plan::Op::Quantize { x, out },
            Op::PrepareQuery { norm, rope } => {
                plan::Op::PrepareQuery { q: x, norm: self.head_norm(norm.as_ref())?, rope: *rope, out }
            }
            Op::WriteKv { norm, rope, value_eps, layer } => {
                let v = input(1);
                let norm = self.head_norm(norm.as_ref())?;
                plan::Op::WriteKv { k: x, v, norm, rope: *rope, value_eps: *value_eps, layer: *layer }
            }
            Op::Attention { layer, kappa, window, soft_cap } => plan::Op::Attention {
                q: x,
                layer: *layer,
                kappa: *kappa,
                window: *window,
                soft_cap: *soft_cap,
                out,
            },
            Op::Gate { activation, part } => {
                let up = input(1);
                let (out, quantized) = self.float_results(node);
                plan::Op::Gate { activation: *activation, gate: x, up, part: *part, out, quantized }
            }
            Op::Gelu => {
                let (out, quantized) = self.float_results(node);
                plan::Op::Gelu { x, out, quantized }
            }
            Op::Route { router, denominator } => {
                plan::Op::Route { x, router: self.weight(router)?, denominator: *denominator, out }
            }
            Op::ExpertLinear { weight } => {
                plan::Op::ExpertLinear { x, routes: input(1), weight: self.weight(weight)?, out }
            }
            Op::SumExperts => plan::Op::SumExperts { x, routes: input(1), out },
            Op::AddShared { gate } => {
                let (a, b) = (input(1), input(2));
                plan::Op::AddShared { x, gate: self.weight(gate)?, a, b, out }
            }
            Op::Scale { scale } => plan::Op::Scale { x, scale: self.weight(scale)?, out },
            Op::SelectOutputs => plan::Op::SelectOutputs { x, out },
            Op::SoftCap { cap } => plan::Op::SoftCap { x, cap: *cap, out },
        }))
    }
}

/// Computes a position table. Its factors, if any, are f32 values above 0 (docs/numerics.md "Range contract").
fn rope_table(spec: &RopeSpec, source: &dyn WeightSource) -> Result<RopeTable, PlanError> {
    let factors = spec.factors.as_ref().map(|factors| read_factors(factors, source)).transpose()?;
    let (inverse_frequencies, scale) = rope::frequencies(spec, factors.as_deref());
    Ok(RopeTable { style: spec.style, inverse_frequencies, scale })
}

fn read_factors(weight: &WeightRef, source: &dyn WeightSource) -> Result<Vec<f32>, PlanError> {
    let bytes = source.read(&weight.tensor)?;
    let expected = match weight.shape {
        Shape::Vector(len) => len as usize,
        Shape::Matrix { rows, cols } => rows as usize * cols as usize,
    };
    let (words, rest) = bytes.as_chunks::<4>();
    if words.len() != expected || !rest.is_empty() {
        return Err(PlanError::RopeFactorsLen {
            tensor: weight.tensor.clone(),
            expected_bytes: expected * 4,
            found_bytes: bytes.len(),
        });
    }
    let factors: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
    let checked = check_rope_factors(&factors);
    checked.map_err(|factor| PlanError::RopeFactor { tensor: weight.tensor.clone(), factor })?;
    Ok(factors)
}

#[cfg(test)]
mod tests;
