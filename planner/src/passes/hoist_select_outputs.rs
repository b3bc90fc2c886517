//! `hoist-select-outputs`: the selection of the output rows moves up through operations that treat each row by
//! itself, as long as nothing else needs their other rows. In a decoder it ends after the last attention, so that a
//! prompt's rows skip the last feed-forward block and the head.

use super::rewrite::{label_of, outputs, row_wise};
use crate::graph::{Graph, Node, Op, ValueId};

pub fn run(graph: &mut Graph) {
    while let Some((select, producer)) = movable(graph) {
        let selection = graph.nodes.remove(select);
        graph.replace_uses(selection.results[0], selection.inputs[0]);
        let result = selection.inputs[0];
        graph.values[result.index()] = outputs(graph.ty(result));
        let inputs = graph.nodes[producer].inputs.clone();
        let mut at = producer;
        for (operand, input) in inputs.into_iter().enumerate() {
            let (selected, inserted) = selected(graph, at, input);
            at += usize::from(inserted);
            graph.nodes[at].inputs[operand] = selected;
        }
    }
}

/// A selection whose operand comes from a row-wise node and is used by nothing else; and that node.
fn movable(graph: &Graph) -> Option<(usize, usize)> {
    let (definitions, uses) = (graph.definitions(), graph.use_counts());
    graph.nodes.iter().enumerate().find_map(|(select, node)| {
        let Op::SelectOutputs = node.op else { return None };
        let x = node.inputs[0];
        let producer = definitions[x.index()]?;
        let moves = row_wise(&graph.nodes[producer].op) && graph.nodes[producer].results.len() == 1;
        (moves && uses[x.index()] == 1).then_some((select, producer))
    })
}

/// The output rows of `x` for the node at `at`: one selection for all its users, made before the first of them.
/// Returns whether a node was inserted before `at`.
fn selected(graph: &mut Graph, at: usize, x: ValueId) -> (ValueId, bool) {
    let same = |node: &Node| matches!(node.op, Op::SelectOutputs) && node.inputs[0] == x;
    let label = match graph.nodes.iter().position(same) {
        Some(existing) if existing < at => return (graph.nodes[existing].results[0], false),
        Some(existing) => {
            let selection = graph.nodes.remove(existing);
            let result = selection.results[0];
            graph.nodes.insert(at, selection);
            return (result, true);
        }
        None => format!("{}.outputs", label_of(graph, x)),
    };
    let result = graph.new_value(outputs(graph.ty(x)));
    graph.nodes.insert(at, Node { label, op: Op::SelectOutputs, inputs: vec![x], results: vec![result] });
    (result, true)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn moves_to_where_other_rows_are_needed() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = linear(%1) weight=w[8x8] label=block
            %3:all f32[8] = add(%1, %2) label=residual
            %4:outputs f32[8] = select_outputs(%3) label=select
            %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:outputs f32[8] = select_outputs(%1) label=embd.outputs
                %3:outputs f32[8] = linear(%2) weight=w[8x8] label=block
                %4:outputs f32[8] = add(%2, %3) label=residual
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
