//! `hoist-select-outputs`: the selection of the output rows moves up through operations that treat each row by
//! itself, as long as nothing else needs their other rows. In a decoder it ends after the last attention whose layer has keys
//! and values of its own, so that a prompt's rows skip the last feed-forward block and the head; layers behind it that read
//! the cache of an earlier one are skipped whole.

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
        let op = &graph.nodes[producer].op;
        let attends_alone = || matches!(op, Op::Attention { .. }) && has_no_other_reader(graph, producer);
        let moves = (row_wise(op) || attends_alone()) && graph.nodes[producer].results.len() == 1;
        (moves && uses[x.index()] == 1).then_some((select, producer))
    })
}

/// Whether what an attention's queries are projected from is read for nothing else: then its layer makes no keys and values
/// of it, and the selection goes on past the projection. Where keys and values are made the rows are there, and little is
/// spared for the operations that choose some of them.
fn has_no_other_reader(graph: &Graph, attention: usize) -> bool {
    let (definitions, uses) = (graph.definitions(), graph.use_counts());
    let mut node = &graph.nodes[attention];
    loop {
        let x = node.inputs[0];
        let Some(producer) = definitions[x.index()] else { return false };
        node = &graph.nodes[producer];
        match node.op {
            Op::Rope { .. } | Op::HeadNorm { .. } => {}
            Op::Linear { .. } => return uses[node.inputs[0].index()] == 1,
            _ => return false,
        }
    }
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

    /// Only the first attention has keys and values of its own.
    #[test]
    fn skips_layers_that_read_the_cache_of_another() {
        let graph = "
            rope 0 half_split rotary=4 base=10000.0 scaling=none attention_factor=1.0
            kv 0 2x4
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-6 label=norm
            %3:all f32[8] = linear(%2) weight=q0[8x8] label=q
            %4:all f32[8] = linear(%2) weight=k0[8x8] label=k
            write_kv(%4, %4) kv=0 label=kv
            %5:all f32[8] = attention(%3) kv=0 kappa=0.5 label=attention
            %6:all f32[8] = add(%1, %5) label=residual
            %7:all f32[8] = linear(%6) weight=q1[8x8] label=next.q
            %8:all f32[8] = head_norm(%7) norm=qn[4] eps=1e-6 label=next.q_norm
            %9:all f32[8] = rope(%8) rope=0 head_len=4 label=next.q_rope
            %10:all f32[8] = attention(%9) kv=0 kappa=0.5 label=next.attention
            %11:outputs f32[8] = select_outputs(%10) label=select
            %12:outputs f32[4] = linear(%11) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                rope 0 half_split rotary=4 base=10000.0 scaling=none attention_factor=1.0
                kv 0 2x4
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-6 label=norm
                %3:all f32[8] = linear(%2) weight=q0[8x8] label=q
                %4:all f32[8] = linear(%2) weight=k0[8x8] label=k
                write_kv(%4, %4) kv=0 label=kv
                %5:all f32[8] = attention(%3) kv=0 kappa=0.5 label=attention
                %6:outputs f32[8] = select_outputs(%1) label=embd.outputs
                %7:outputs f32[8] = select_outputs(%5) label=attention.outputs
                %8:outputs f32[8] = add(%6, %7) label=residual
                %9:outputs f32[8] = linear(%8) weight=q1[8x8] label=next.q
                %10:outputs f32[8] = head_norm(%9) norm=qn[4] eps=1e-6 label=next.q_norm
                %11:outputs f32[8] = rope(%10) rope=0 head_len=4 label=next.q_rope
                %12:outputs f32[8] = attention(%11) kv=0 kappa=0.5 label=next.attention
                %13:outputs f32[4] = linear(%12) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
