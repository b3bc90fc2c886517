//! A model cut into parts: each is a graph of its own that begins with what the part before it gives.

use std::path::Path;

use unisonic_core::format::GgufFile;
use unisonic_core::plan::{Device, Rows};
use unisonic_engine::graph::{GraphOptions, GraphProgram, GraphRows};
use unisonic_planner::graph::{Graph, Node, Op, Type, ValueId};

/// The graph that ends, for all rows of which an output is asked, in the value that node `at` makes, and the one that goes on
/// with it.
fn cut(graph: &Graph, at: usize) -> (Graph, Graph) {
    let x = graph.nodes[at].results[0];
    let ty = graph.ty(x);
    let (mut first, mut second) = (graph.clone(), graph.clone());
    first.nodes.truncate(at + 1);
    first.output = first.new_value(Type { rows: Rows::Outputs, ..ty });
    first.nodes.push(Node {
        label: "hidden".into(),
        op: Op::SelectOutputs,
        inputs: vec![x],
        results: vec![first.output],
    });
    second.nodes.drain(..=at);
    let given = second.new_value(Type::f32(Rows::All, ty.element.width()));
    second.replace_uses(x, given);
    let input = Node { label: "hidden".into(), op: Op::Input, inputs: vec![], results: vec![given] };
    second.nodes.insert(0, input);
    second.renumber();
    first.renumber();
    (first, second)
}

/// The node that makes the residual stream before a node whose label begins so.
fn before(graph: &Graph, label: &str) -> usize {
    let first = graph.nodes.iter().position(|node| node.label.starts_with(label)).unwrap();
    let used_later = |x: &ValueId| graph.nodes[first..].iter().any(|node| node.inputs.contains(x));
    let kept: Vec<usize> =
        (0..first).filter(|&at| graph.nodes[at].results.first().is_some_and(used_later)).collect();
    assert_eq!(kept.len(), 1, "one value goes on to {label}");
    kept[0]
}

/// The first layer with the embedding, the layers after it, and the head.
pub fn parts(model: &Path) -> [Graph; 3] {
    let file = GgufFile::open(model).unwrap();
    let graph = unisonic_planner::build(file.metadata(), file.tensors()).unwrap();
    let (first, rest) = cut(&graph, before(&graph, "blk.1."));
    let (second, head) = cut(&rest, before(&rest, "select_outputs"));
    [first, second, head]
}

/// The logits after each token of a fresh sequence, part by part, with pieces of so many rows in each part.
pub fn logits(device: &dyn Device, model: &Path, ids: &[u32], chunk_rows: [u32; 3]) -> Vec<Vec<f32>> {
    let file = GgufFile::open(model).unwrap();
    let (mut tokens, mut values) = (ids, Vec::new());
    for (graph, chunk_rows) in parts(model).iter().zip(chunk_rows) {
        let options = GraphOptions { chunk_rows, ..GraphOptions::default() };
        let mut program = GraphProgram::load(graph, file.tensors(), &file, device, &options, &|_| {})
            .unwrap_or_else(|error| panic!("{}: {error}\n{graph}", model.display()));
        let mut given = Vec::new();
        let rows = GraphRows { tokens, values: &values };
        program.run(&mut program.sequence(), rows, 0, &mut |_, row| given.extend_from_slice(row)).unwrap();
        (tokens, values) = (&[], given);
    }
    values.chunks_exact(values.len() / ids.len()).map(<[f32]>::to_vec).collect()
}
