//! The rules of graphs. The verifier reports every broken one with the node it is in, and never panics: it is what
//! stands between a wrong pass and a wrong answer.

use std::collections::HashMap;
use std::fmt;

use unisonic_core::plan::{KvLayer, KvLayerId, RopeTableId, Rows, TensorPart};

use super::print::PrintNode;
use super::{Element, Graph, HeadNorm, Node, Op, Shape, Type, ValueId, WeightRef};

/// What passes have established and later ones must keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// Every linear layer reads A16.
    pub quantized_activations: bool,
    /// Every attention reads Q16.
    pub quantized_heads: bool,
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The node in text form, or the part of the graph.
    pub place: String,
    /// What should have held.
    pub rule: String,
}

/// All broken rules of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the graph breaks {} of its rules", self.0.len())?;
        self.0.iter().try_for_each(|Violation { place, rule }| write!(f, "\n  {rule}\n    in: {place}"))
    }
}

impl Graph {
    /// Checks all rules.
    pub fn verify(&self, contract: Contract) -> Result<(), Violations> {
        let mut verifier = Verifier::new(self, contract);
        for node in &self.nodes {
            verifier.node(node);
        }
        verifier.whole();
        if verifier.violations.is_empty() { Ok(()) } else { Err(Violations(verifier.violations)) }
    }
}

impl Graph {
    /// Checks the last node, and takes those before it for right.
    pub(super) fn verify_last(&self) -> Result<(), Violations> {
        let Some((last, earlier)) = self.nodes.split_last() else { return Ok(()) };
        let mut verifier = Verifier::new(self, Contract::default());
        for node in earlier {
            node.results.iter().for_each(|result| verifier.defined[result.index()] = true);
            match node.op {
                Op::WriteKv { layer, .. } => verifier.kv_written[layer.index()] = true,
                Op::Input => verifier.has_input = true,
                _ => {}
            }
        }
        verifier.node(last);
        if verifier.violations.is_empty() { Ok(()) } else { Err(Violations(verifier.violations)) }
    }
}

struct Verifier<'a> {
    graph: &'a Graph,
    contract: Contract,
    defined: Vec<bool>,
    kv_written: Vec<bool>,
    has_input: bool,
    weights: HashMap<(&'a str, Option<TensorPart>), Shape>,
    violations: Vec<Violation>,
}

impl<'a> Verifier<'a> {
    fn new(graph: &'a Graph, contract: Contract) -> Self {
        Verifier {
            graph,
            contract,
            defined: vec![false; graph.values.len()],
            kv_written: vec![false; graph.kv_layers.len()],
            has_input: false,
            weights: HashMap::new(),
            violations: Vec::new(),
        }
    }

    fn fail(&mut self, node: &Node, rule: impl Into<String>) {
        let place = PrintNode { graph: self.graph, node }.to_string();
        self.violations.push(Violation { place, rule: rule.into() });
    }

    fn require(&mut self, holds: bool, node: &Node, rule: impl FnOnce() -> String) {
        if !holds {
            self.fail(node, rule());
        }
    }

    /// Scope, then types; a node with values that do not exist is not looked at further.
    fn node(&mut self, node: &'a Node) {
        let mut known = true;
        for &input in &node.inputs {
            let defined = self.defined.get(input.index()).copied().unwrap_or(false);
            self.require(defined, node, || format!("{input} must be defined by an earlier node"));
            known &= defined;
        }
        for &result in &node.results {
            let fresh = self.defined.get(result.index()).is_some_and(|defined| !defined);
            self.require(fresh, node, || format!("{result} must be a value that no other node defines"));
            match self.defined.get_mut(result.index()) {
                Some(defined) => *defined = true,
                None => known = false,
            }
        }
        for weight in node.op.weights() {
            self.weight(node, weight);
        }
        if known {
            let types = |ids: &[ValueId]| ids.iter().map(|&id| self.graph.ty(id)).collect::<Vec<_>>();
            let (inputs, results) = (types(&node.inputs), types(&node.results));
            self.types(node, &inputs, &results);
        }
    }

    fn weight(&mut self, node: &Node, weight: &'a WeightRef) {
        let first = *self.weights.entry((&weight.tensor, weight.part)).or_insert(weight.shape);
        self.require(first == weight.shape, node, || {
            format!("`{}` must have one shape, {first} or {}", weight.tensor, weight.shape)
        });
        if let Some(part) = weight.part {
            let len = match weight.shape {
                Shape::Vector(len) => u64::from(len),
                Shape::Matrix { rows, cols } => u64::from(rows) * u64::from(cols),
            };
            let within = part.first.checked_add(len).is_some_and(|end| end <= part.len);
            self.require(within, node, || format!("`{}` must hold the part", weight.tensor));
        }
    }

    fn types(&mut self, node: &Node, inputs: &[Type], results: &[Type]) {
        let (least, most, counts) = arity(&node.op);
        self.require((least..=most).contains(&inputs.len()), node, || {
            format!("{} takes {least} to {most} operands", node.op.name())
        });
        self.require(counts.contains(&results.len()), node, || {
            format!("{} has {} to {} results", node.op.name(), counts.start(), counts.end())
        });
        if !(least..=most).contains(&inputs.len()) || !counts.contains(&results.len()) {
            return;
        }
        self.rows(node, inputs, results);
        match &node.op {
            Op::Tokens => self.expect(node, results[0], Element::U32),
            Op::Input => {
                let Some(width) = self.floats(node, results[0]) else { return };
                self.require(width > 0, node, || "rows of the host have values".to_owned());
                let second = std::mem::replace(&mut self.has_input, true);
                self.require(!second, node, || "a graph has one input".to_owned());
            }
            Op::Embed { table, .. } => {
                self.expect(node, inputs[0], Element::U32);
                let Some((rows, cols)) = self.matrix(node, table) else { return };
                self.require(rows == self.graph.vocab_len, node, || "one row a token".to_owned());
                self.expect(node, results[0], Element::F32 { width: cols });
            }
            Op::EmbedPositions { table } => {
                self.expect(node, inputs[0], Element::U32);
                let Some((_, cols)) = self.matrix(node, table) else { return };
                self.expect(node, results[0], Element::F32 { width: cols });
            }
            Op::LayerNorm { weight, bias, .. } => {
                let Some(width) = self.vector(node, weight) else { return };
                let of_bias = self.vector(node, bias);
                self.require(of_bias == Some(width), node, || format!("the bias must have {width} values"));
                self.expect(node, inputs[0], Element::F32 { width });
                self.float_results(node, results, width);
            }
            Op::Gelu => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                self.float_results(node, results, width);
            }
            Op::Route { router, .. } => {
                let Some((experts, cols)) = self.matrix(node, router) else { return };
                self.expect(node, inputs[0], Element::F32 { width: cols });
                let Some(chosen) = self.routes(node, results[0]) else { return };
                self.require((1..=experts).contains(&chosen), node, || {
                    format!("1 to {experts} experts can be chosen")
                });
            }
            Op::ExpertLinear { weight } => self.expert_linear(node, inputs, results[0], weight),
            Op::SumExperts => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                let chosen = self.routes(node, inputs[1]);
                self.require(chosen == Some(inputs[0].slots), node, || "one slot an expert".to_owned());
                self.expect(node, results[0], Element::F32 { width });
            }
            Op::AddShared { gate } => {
                let Some((rows, cols)) = self.matrix(node, gate) else { return };
                self.require(rows == 1, node, || "the gate must have one row".to_owned());
                self.expect(node, inputs[0], Element::F32 { width: cols });
                let Some(width) = self.floats(node, results[0]) else { return };
                inputs[1..].iter().for_each(|&ty| self.expect(node, ty, Element::F32 { width }));
            }
            Op::RmsNorm { weight, .. } => {
                let Some(width) = self.vector(node, weight) else { return };
                inputs.iter().for_each(|&ty| self.expect(node, ty, Element::F32 { width }));
                self.float_results(node, results, width);
                let quantised = results.iter().any(|ty| matches!(ty.element, Element::A16 { .. }));
                self.require(inputs.len() == 1 || !quantised, node, || {
                    "a norm with a residual has an f32 result only".to_owned()
                });
            }
            Op::HeadNorm { head_len, weight, .. } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                match weight {
                    Some(weight) => self.head_weight(node, weight, width, Some(*head_len)),
                    None => self.require(*head_len > 0 && width.is_multiple_of(*head_len), node, || {
                        "the row must be whole heads".to_owned()
                    }),
                }
                self.expect(node, results[0], Element::F32 { width });
            }
            Op::Rope { table, head_len } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                self.require(*head_len > 0 && width.is_multiple_of(*head_len), node, || {
                    "the row must be whole heads".to_owned()
                });
                self.rope(node, Some(*table), *head_len);
                self.expect(node, results[0], Element::F32 { width });
            }
            Op::Linear { weight, bias, head } => {
                self.linear(node, inputs, results, weight, bias.as_ref(), *head)
            }
            Op::Add => {
                let Some(width) = self.floats(node, results[0]) else { return };
                inputs.iter().for_each(|&ty| self.expect(node, ty, Element::F32 { width }));
            }
            Op::Quantize => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                self.expect(node, results[0], Element::A16 { width });
            }
            Op::PrepareQuery { norm, rope } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                let Element::Q16 { heads, head_len } = results[0].element else {
                    return self.fail(node, "the result must be q16");
                };
                self.require(heads.checked_mul(head_len) == Some(width), node, || {
                    "heads times head length must be the width of the operand".to_owned()
                });
                self.head_norm(node, norm.as_ref(), width, Some(head_len));
                self.rope(node, *rope, head_len);
            }
            Op::WriteKv { norm, rope, layer, .. } => {
                self.write_kv(node, inputs, norm.as_ref(), *rope, *layer)
            }
            Op::Attention { layer, window, .. } => {
                self.require(window.is_none_or(|w| w > 0), node, || "a window is at least 1".to_owned());
                self.attention(node, inputs[0], results[0], *layer);
            }
            Op::Gate { part, .. } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                let Some(all) = self.floats(node, inputs[1]) else { return };
                let is_whole = width > 0 && all.is_multiple_of(width);
                self.require(is_whole && *part < all / width, node, || {
                    format!("up must have a part {part} of {width} values")
                });
                self.float_results(node, results, width);
            }
            Op::Scale { scale } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                let len = self.vector(node, scale);
                self.require(len == Some(1), node, || "the scale must be one value".to_owned());
                self.expect(node, results[0], Element::F32 { width });
            }
            Op::SelectOutputs | Op::SoftCap { .. } => {
                let Some(width) = self.floats(node, inputs[0]) else { return };
                self.expect(node, results[0], Element::F32 { width });
            }
        }
    }

    /// Every operation keeps the rows of its operands, except the selection of output rows. What comes with the batch, and
    /// what is written for later, is of all rows.
    fn rows(&mut self, node: &Node, inputs: &[Type], results: &[Type]) {
        let of_all = matches!(
            node.op,
            Op::Tokens
                | Op::Input
                | Op::Embed { .. }
                | Op::EmbedPositions { .. }
                | Op::WriteKv { .. }
                | Op::SelectOutputs
        );
        let rows = if of_all { Rows::All } else { inputs.first().map_or(Rows::All, |ty| ty.rows) };
        let result_rows = if matches!(node.op, Op::SelectOutputs) { Rows::Outputs } else { rows };
        self.require(inputs.iter().all(|ty| ty.rows == rows), node, || {
            format!("operands must have {} rows", rows_name(rows))
        });
        self.require(results.iter().all(|ty| ty.rows == result_rows), node, || {
            format!("results must have {} rows", rows_name(result_rows))
        });
        self.slots(node, inputs, results);
    }

    /// Slots begin at the first layer of experts and end at their sum; what depends on a row's position has none.
    fn slots(&mut self, node: &Node, inputs: &[Type], results: &[Type]) {
        let slots = |ty: &Type| ty.slots;
        let expected = match node.op {
            // Compared with the experts that are chosen.
            Op::ExpertLinear { .. } => return,
            Op::SumExperts => 1,
            Op::Linear { .. }
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Gate { .. }
            | Op::Gelu
            | Op::Add
            | Op::Quantize
            | Op::Scale { .. }
            | Op::SelectOutputs
            | Op::SoftCap { .. } => inputs.first().map_or(1, slots),
            _ => 1,
        };
        let of_inputs = if matches!(node.op, Op::SumExperts) { &inputs[1..] } else { inputs };
        self.require(of_inputs.iter().chain(results).map(slots).all(|slots| slots == expected), node, || {
            format!("operands and results must have {expected} slots")
        });
    }

    /// How many experts routes choose.
    fn routes(&mut self, node: &Node, found: Type) -> Option<u32> {
        let width = self.floats(node, found)?;
        let pairs = width > 0 && width.is_multiple_of(2) && found.slots == 1;
        self.require(pairs, node, || format!("expected routes, found {found}"));
        pairs.then_some(width / 2)
    }

    fn expert_linear(&mut self, node: &Node, inputs: &[Type], result: Type, weight: &WeightRef) {
        let Some((rows, cols)) = self.matrix(node, weight) else { return };
        let Some(chosen) = self.routes(node, inputs[1]) else { return };
        self.activation(node, inputs[0], cols);
        let of_x = [1, chosen].contains(&inputs[0].slots) && result.slots == chosen;
        self.require(of_x, node, || format!("the result must have {chosen} slots, x as many or 1"));
        let Some(width) = self.floats(node, result) else { return };
        self.require(width > 0 && rows.is_multiple_of(width), node, || {
            format!("`{}` must be matrices of {width} rows", weight.tensor)
        });
    }

    /// What a linear layer multiplies with.
    fn activation(&mut self, node: &Node, x: Type, cols: u32) {
        let quantised = x.element == Element::A16 { width: cols };
        let float = x.element == Element::F32 { width: cols };
        self.require(quantised || float, node, || format!("x must be f32[{cols}] or a16[{cols}]"));
        self.require(quantised || !self.contract.quantized_activations, node, || {
            format!("x must be a16[{cols}]: activations are quantised by now")
        });
    }

    fn linear(
        &mut self,
        node: &Node,
        inputs: &[Type],
        results: &[Type],
        weight: &WeightRef,
        bias: Option<&WeightRef>,
        head: bool,
    ) {
        let Some((rows, cols)) = self.matrix(node, weight) else { return };
        self.activation(node, inputs[0], cols);
        let out = Element::F32 { width: rows };
        inputs[1..].iter().chain(results).for_each(|&ty| self.expect(node, ty, out));
        if let Some(bias) = bias {
            let len = self.vector(node, bias);
            self.require(len == Some(rows), node, || format!("the bias must have {rows} values"));
        }
        let is_head = rows == self.graph.vocab_len && inputs[0].rows == Rows::Outputs;
        self.require(!head || is_head, node, || "the head makes logits of output rows".to_owned());
    }

    fn write_kv(
        &mut self,
        node: &Node,
        inputs: &[Type],
        norm: Option<&HeadNorm>,
        rope: Option<RopeTableId>,
        layer: KvLayerId,
    ) {
        let Some(cache) = self.cache(node, layer) else { return };
        let Some(width) = cache.heads.checked_mul(cache.head_len) else { return };
        inputs.iter().for_each(|&ty| self.expect(node, ty, Element::F32 { width }));
        self.head_norm(node, norm, width, Some(cache.head_len));
        self.rope(node, rope, cache.head_len);
        let written = std::mem::replace(&mut self.kv_written[layer.index()], true);
        self.require(!written, node, || format!("kv {} must be written once", layer.0));
    }

    fn attention(&mut self, node: &Node, q: Type, out: Type, layer: KvLayerId) {
        let Some(cache) = self.cache(node, layer) else { return };
        self.require(self.kv_written[layer.index()], node, || {
            format!("kv {} must be written before attention reads it", layer.0)
        });
        let (heads, head_len) = match q.element {
            Element::Q16 { heads, head_len } => (heads, head_len),
            Element::F32 { width } if !self.contract.quantized_heads => {
                self.require(width.is_multiple_of(cache.head_len), node, || {
                    "q must be whole heads".to_owned()
                });
                (width / cache.head_len, cache.head_len)
            }
            _ => {
                return self
                    .fail(node, "q must be q16: heads are quantised by now, or it is no row of heads");
            }
        };
        self.require(head_len == cache.head_len, node, || {
            format!("query heads must have the cache's {} values", cache.head_len)
        });
        self.require(heads.is_multiple_of(cache.heads), node, || {
            format!("{heads} query heads must be a multiple of the cache's {}", cache.heads)
        });
        self.expect(node, out, Element::F32 { width: heads.saturating_mul(head_len) });
    }

    fn whole(&mut self) {
        let output = self.graph.output;
        let defined = self.defined.get(output.index()).copied().unwrap_or(false);
        let is_output = |ty: Type| match ty.element {
            Element::F32 { width } => width > 0 && ty == Type::f32(Rows::Outputs, width),
            _ => false,
        };
        let rule = match defined {
            false => format!("the output {output} must be defined"),
            true if !is_output(self.graph.ty(output)) => {
                format!("the output {output} must be f32 output rows, found {}", self.graph.ty(output))
            }
            true => return,
        };
        self.violations.push(Violation { place: format!("graph {}", self.graph.architecture), rule });
    }

    fn expect(&mut self, node: &Node, found: Type, wanted: Element) {
        self.require(found.element == wanted, node, || {
            format!("expected {}, found {found}", Type { element: wanted, ..found })
        });
    }

    fn floats(&mut self, node: &Node, found: Type) -> Option<u32> {
        match found.element {
            Element::F32 { width } => Some(width),
            _ => {
                self.fail(node, format!("expected f32, found {found}"));
                None
            }
        }
    }

    /// f32, A16 or both, in that order.
    fn float_results(&mut self, node: &Node, results: &[Type], width: u32) {
        let (float, a16) = (Element::F32 { width }, Element::A16 { width });
        let elements: Vec<_> = results.iter().map(|ty| ty.element).collect();
        let allowed = [vec![float], vec![a16], vec![float, a16]].contains(&elements);
        self.require(allowed, node, || {
            format!("results must be f32[{width}], a16[{width}], or both in that order")
        });
    }

    fn matrix(&mut self, node: &Node, weight: &WeightRef) -> Option<(u32, u32)> {
        match weight.shape {
            Shape::Matrix { rows, cols } => Some((rows, cols)),
            Shape::Vector(_) => {
                self.fail(node, format!("`{}` must be a matrix", weight.tensor));
                None
            }
        }
    }

    fn vector(&mut self, node: &Node, weight: &WeightRef) -> Option<u32> {
        match weight.shape {
            Shape::Vector(len) => Some(len),
            Shape::Matrix { .. } => {
                self.fail(node, format!("`{}` must be a vector", weight.tensor));
                None
            }
        }
    }

    fn head_norm(&mut self, node: &Node, norm: Option<&HeadNorm>, width: u32, head_len: Option<u32>) {
        if let Some(norm) = norm {
            self.head_weight(node, &norm.weight, width, head_len);
        }
    }

    fn head_weight(&mut self, node: &Node, weight: &WeightRef, width: u32, head_len: Option<u32>) {
        let Some(len) = self.vector(node, weight) else { return };
        let whole = len > 0 && width.is_multiple_of(len) && head_len.is_none_or(|head_len| head_len == len);
        self.require(whole, node, || format!("`{}` must have the length of a head", weight.tensor));
    }

    fn rope(&mut self, node: &Node, table: Option<RopeTableId>, head_len: u32) {
        let Some(table) = table else { return };
        match self.graph.rope_tables.get(table.index()) {
            None => self.fail(node, format!("rope {} must exist", table.0)),
            Some(spec) => {
                let fits = spec.rotary_len <= head_len && spec.rotary_len.is_multiple_of(2);
                self.require(fits, node, || {
                    format!("rope {} must rotate an even number of a head's {head_len} values", table.0)
                });
            }
        }
    }

    fn cache(&mut self, node: &Node, layer: KvLayerId) -> Option<KvLayer> {
        let cache = self.graph.kv_layers.get(layer.index()).copied();
        let usable = cache.is_some_and(|cache| cache.heads > 0 && cache.head_len > 0);
        self.require(usable, node, || format!("kv {} must exist and have heads", layer.0));
        cache.filter(|_| usable)
    }
}

/// Least and most operands, and the numbers of results.
fn arity(op: &Op) -> (usize, usize, std::ops::RangeInclusive<usize>) {
    match op {
        Op::Tokens | Op::Input => (0, 0, 1..=1),
        Op::RmsNorm { .. } => (1, 2, 1..=2),
        Op::Linear { .. } => (1, 2, 1..=1),
        Op::Add => (2, 2, 1..=1),
        Op::Gate { .. } => (2, 2, 1..=2),
        Op::LayerNorm { .. } | Op::Gelu => (1, 1, 1..=2),
        Op::ExpertLinear { .. } | Op::SumExperts => (2, 2, 1..=1),
        Op::AddShared { .. } => (3, 3, 1..=1),
        Op::WriteKv { .. } => (2, 2, 0..=0),
        Op::Embed { .. }
        | Op::EmbedPositions { .. }
        | Op::Route { .. }
        | Op::HeadNorm { .. }
        | Op::Rope { .. }
        | Op::Quantize
        | Op::PrepareQuery { .. }
        | Op::Attention { .. }
        | Op::Scale { .. }
        | Op::SelectOutputs
        | Op::SoftCap { .. } => (1, 1, 1..=1),
    }
}

fn rows_name(rows: Rows) -> &'static str {
    match rows {
        Rows::All => "all",
        Rows::Outputs => "the output",
    }
}
