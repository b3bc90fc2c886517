//! `fuse-gate-quantize`: `quantize(gate(g, u))` becomes a second result of the gate. GELU without a gate likewise.

use super::rewrite::fuse_quantizations;
use crate::graph::{Graph, Op};

pub fn run(graph: &mut Graph) {
    fuse_quantizations(graph, |node| matches!(node.op, Op::Gate { .. } | Op::Gelu));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn gate_quantises() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:outputs f32[8] = select_outputs(%1) label=select
            %3:outputs f32[8] = gate(%2, %2) activation=gelu label=act
            %4:outputs a16[8] = quantize(%3) label=act.quantize
            %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:outputs f32[8] = select_outputs(%1) label=select
                %3:outputs f32[8], %4:outputs a16[8] = gate(%2, %2) activation=gelu label=act
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
