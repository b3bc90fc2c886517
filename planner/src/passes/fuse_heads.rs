//! `fuse-heads`: norm and RoPE of query heads become part of preparing the query; those of key heads, and the norm without
//! weights of value heads, part of writing the cache.

use unisonic_core::plan::RopeTableId;

use super::rewrite::sole_definition;
use crate::graph::{Graph, HeadNorm, Op};

pub fn run(graph: &mut Graph) {
    let mut index = 0;
    while index < graph.nodes.len() {
        match absorbable(graph, index) {
            Some(producer) => {
                let absorbed = graph.nodes.remove(producer);
                index -= 1;
                graph.nodes[index].inputs[0] = absorbed.inputs[0];
                absorb(&mut graph.nodes[index].op, absorbed.op);
            }
            None => index += 1,
        }
    }
    take_in_value_norms(graph);
}

fn take_in_value_norms(graph: &mut Graph) {
    let mut index = 0;
    while index < graph.nodes.len() {
        if let Some((norm, eps)) = value_norm(graph, index) {
            let absorbed = graph.nodes.remove(norm);
            index -= 1;
            graph.nodes[index].inputs[1] = absorbed.inputs[0];
            if let Op::WriteKv { value_eps, .. } = &mut graph.nodes[index].op {
                *value_eps = Some(eps);
            }
        }
        index += 1;
    }
}

/// The norm of the values that a node writes, if the node can take it in, and its epsilon.
fn value_norm(graph: &Graph, index: usize) -> Option<(usize, f32)> {
    let node = &graph.nodes[index];
    let Op::WriteKv { value_eps: None, layer, .. } = node.op else { return None };
    let producer = sole_definition(graph, node.inputs[1])?;
    let of_cache = graph.kv_layers[layer.index()].head_len;
    match graph.nodes[producer].op {
        Op::HeadNorm { weight: None, head_len, eps } if head_len == of_cache => Some((producer, eps)),
        _ => None,
    }
}

/// The node before a query or key that its reader can take in: RoPE first, then the norm before it.
fn absorbable(graph: &Graph, index: usize) -> Option<usize> {
    let (norm, rope) = head_parts(&graph.nodes[index].op)?;
    let producer = sole_definition(graph, graph.nodes[index].inputs[0])?;
    let free = match graph.nodes[producer].op {
        Op::Rope { .. } => norm.is_none() && rope.is_none(),
        Op::HeadNorm { weight: Some(_), .. } => norm.is_none(),
        _ => false,
    };
    free.then_some(producer)
}

fn absorb(reader: &mut Op, producer: Op) {
    let (Op::PrepareQuery { norm, rope } | Op::WriteKv { norm, rope, .. }) = reader else { return };
    match producer {
        Op::Rope { table, .. } => *rope = Some(table),
        Op::HeadNorm { weight: Some(weight), eps, .. } => *norm = Some(HeadNorm { weight, eps }),
        _ => {}
    }
}

fn head_parts(op: &Op) -> Option<(&Option<HeadNorm>, &Option<RopeTableId>)> {
    match op {
        Op::PrepareQuery { norm, rope } | Op::WriteKv { norm, rope, .. } => Some((norm, rope)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn norm_and_rope_are_taken_in() {
        let graph = "
            rope 0 half_split rotary=4 base=10000.0 scaling=none attention_factor=1.0
            kv 0 2x4
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = head_norm(%1) norm=kn[4] eps=1e-6 label=k_norm
            %3:all f32[8] = rope(%2) rope=0 head_len=4 label=k_rope
            write_kv(%3, %1) kv=0 label=kv
            %4:all f32[8] = rope(%1) rope=0 head_len=4 label=q_rope
            %5:all q16[2x4] = prepare_query(%4) label=query
            %6:all f32[8] = attention(%5) kv=0 kappa=0.5 label=attention
            %7:outputs f32[8] = select_outputs(%6) label=select
            %8:outputs f32[4] = linear(%7) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                rope 0 half_split rotary=4 base=10000.0 scaling=none attention_factor=1.0
                kv 0 2x4
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                write_kv(%1, %1) norm=kn[4] eps=1e-6 rope=0 kv=0 label=kv
                %2:all q16[2x4] = prepare_query(%1) rope=0 label=query
                %3:all f32[8] = attention(%2) kv=0 kappa=0.5 label=attention
                %4:outputs f32[8] = select_outputs(%3) label=select
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }

    #[test]
    fn the_norm_of_values_is_taken_in() {
        let graph = "
            kv 0 2x4
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = head_norm(%1) norm=kn[4] eps=1e-6 label=k_norm
            %3:all f32[8] = head_norm(%1) head_len=4 eps=1e-6 label=v_norm
            write_kv(%2, %3) kv=0 label=kv
            %4:all q16[2x4] = prepare_query(%1) label=query
            %5:all f32[8] = attention(%4) kv=0 kappa=0.5 label=attention
            %6:outputs f32[8] = select_outputs(%5) label=select
            %7:outputs f32[4] = linear(%6) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                kv 0 2x4
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                write_kv(%1, %1) norm=kn[4] eps=1e-6 value_eps=1e-6 kv=0 label=kv
                %2:all q16[2x4] = prepare_query(%1) label=query
                %3:all f32[8] = attention(%2) kv=0 kappa=0.5 label=attention
                %4:outputs f32[8] = select_outputs(%3) label=select
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
