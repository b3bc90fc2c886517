//! `fuse-residual`: `add(residual, linear(x))` becomes a linear layer with a residual.

use super::rewrite::fuse_additions;
use crate::graph::{Graph, Op};

pub fn run(graph: &mut Graph) {
    fuse_additions(graph, |node| matches!(node.op, Op::Linear { .. }));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn linear_adds_to_the_residual() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = linear(%1) weight=w[8x8] bias=b[8] label=block
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
                %2:all f32[8] = linear(%1, %1) weight=w[8x8] bias=b[8] label=block
                %3:outputs f32[8] = select_outputs(%2) label=select
                %4:outputs f32[4] = linear(%3) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
