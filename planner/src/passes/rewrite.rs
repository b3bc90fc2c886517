//! What the fusing passes share.

use std::collections::HashMap;

use unisonic_core::plan::Rows;

use crate::graph::{Element, Graph, Node, Op, Type, ValueId};

/// The node that defines `value`, if this use is the only one.
pub fn sole_definition(graph: &Graph, value: ValueId) -> Option<usize> {
    let definition = graph.definitions()[value.index()]?;
    (graph.use_counts()[value.index()] == 1).then_some(definition)
}

/// Joins a producer with an addition of its only result to a residual: `add(residual, op(x))` becomes
/// `op(x, residual)` in the place of the addition. `fits` says which producers can.
pub fn fuse_additions(graph: &mut Graph, fits: impl Fn(&Node) -> bool) {
    let mut index = 0;
    while index < graph.nodes.len() {
        match addition(graph, index, &fits) {
            Some((producer, residual)) => {
                let add = graph.nodes.remove(index);
                let mut fused = graph.nodes.remove(producer);
                fused.inputs.push(residual);
                fused.results = add.results;
                graph.nodes.insert(index - 1, fused);
            }
            None => index += 1,
        }
    }
}

/// The producer and the residual, if node `index` is an addition that can be joined. Where both operands would do,
/// the second is the producer: models write `add(residual, block)`.
fn addition(graph: &Graph, index: usize, fits: &impl Fn(&Node) -> bool) -> Option<(usize, ValueId)> {
    let node = &graph.nodes[index];
    let (Op::Add, &[a, b]) = (&node.op, node.inputs.as_slice()) else { return None };
    [(b, a), (a, b)].into_iter().find_map(|(value, residual)| {
        let producer = sole_definition(graph, value)?;
        let single = graph.nodes[producer].inputs.len() == 1;
        (single && fits(&graph.nodes[producer])).then_some((producer, residual))
    })
}

/// Lets producers define the A16 of their f32 result themselves: `quantize(op(x))` becomes a second result of
/// `op(x)`. The f32 result stays; if nothing else uses it, it is dead.
pub fn fuse_quantizations(graph: &mut Graph, fits: impl Fn(&Node) -> bool) {
    let mut index = 0;
    while index < graph.nodes.len() {
        let node = &graph.nodes[index];
        let producer = match node.op {
            Op::Quantize => graph.definitions()[node.inputs[0].index()],
            _ => None,
        };
        match producer.filter(|&p| graph.nodes[p].results.len() == 1 && fits(&graph.nodes[p])) {
            Some(producer) => {
                let quantize = graph.nodes.remove(index);
                graph.nodes[producer].results.extend(quantize.results);
            }
            None => index += 1,
        }
    }
}

/// What takes the place of an operand.
pub struct Conversion {
    /// Label of the node that makes it.
    pub label: String,
    /// Its operation; the operand is its only one.
    pub op: Op,
    /// What its rows hold.
    pub element: Element,
}

/// Before the first reader of each value for which `convert` has an answer, inserts one node that converts the value,
/// and lets all those readers use its result. `convert` is asked for each node about its first operand.
pub fn convert_operands(graph: &mut Graph, convert: impl Fn(&Graph, &Node) -> Option<Conversion>) {
    let mut converted: HashMap<ValueId, ValueId> = HashMap::new();
    let mut index = 0;
    while index < graph.nodes.len() {
        if let Some(Conversion { label, op, element }) = convert(graph, &graph.nodes[index]) {
            let x = graph.nodes[index].inputs[0];
            let new = converted.get(&x).copied().unwrap_or_else(|| {
                let new = graph.new_value(Type { element, ..graph.ty(x) });
                graph.nodes.insert(index, Node { label, op, inputs: vec![x], results: vec![new] });
                index += 1;
                converted.insert(x, new);
                new
            });
            graph.nodes[index].inputs[0] = new;
        }
        index += 1;
    }
}

/// Label of the node that defines a value.
pub fn label_of(graph: &Graph, value: ValueId) -> String {
    graph.definitions()[value.index()].map_or_else(String::new, |node| graph.nodes[node].label.clone())
}

/// Whether an operation may work on the output rows alone.
pub fn row_wise(op: &Op) -> bool {
    matches!(
        op,
        Op::RmsNorm { .. }
            | Op::HeadNorm { .. }
            | Op::Rope { .. }
            | Op::LayerNorm { .. }
            | Op::Linear { .. }
            | Op::Add
            | Op::Gate { .. }
            | Op::Gelu
            | Op::Route { .. }
            | Op::ExpertLinear { .. }
            | Op::SumExperts
            | Op::AddShared { .. }
            | Op::Scale { .. }
            | Op::SoftCap { .. }
    )
}

/// The same type over the output rows.
pub fn outputs(ty: Type) -> Type {
    Type { rows: Rows::Outputs, ..ty }
}
