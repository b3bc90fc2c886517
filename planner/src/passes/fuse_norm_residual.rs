//! `fuse-norm-residual`: `add(residual, rms_norm(x))` becomes a norm with a residual (Gemma's post-norms).

use super::rewrite::fuse_additions;
use crate::graph::{Graph, Op};

pub fn run(graph: &mut Graph) {
    fuse_additions(graph, |node| matches!(node.op, Op::RmsNorm { .. }) && node.results.len() == 1);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn norm_adds_to_the_residual() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = linear(%1) weight=w[8x8] label=block
            %3:all f32[8] = rms_norm(%2) weight=n[8] eps=1e-5 label=post_norm
            %4:all f32[8] = add(%1, %3) label=residual
            %5:outputs f32[8] = select_outputs(%4) label=select
            %6:outputs f32[4] = linear(%5) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all f32[8] = linear(%1) weight=w[8x8] label=block
                %3:all f32[8] = rms_norm(%2, %1) weight=n[8] eps=1e-5 label=post_norm
                %4:outputs f32[8] = select_outputs(%3) label=select
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }

    #[test]
    fn a_norm_that_others_read_stays() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-5 label=norm
            %3:all f32[8] = add(%1, %2) label=residual
            %4:all f32[8] = add(%3, %2) label=again
            %5:outputs f32[8] = select_outputs(%4) label=select
            %6:outputs f32[4] = linear(%5) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-5 label=norm
                %3:all f32[8] = add(%1, %2) label=residual
                %4:all f32[8] = add(%3, %2) label=again
                %5:outputs f32[8] = select_outputs(%4) label=select
                %6:outputs f32[4] = linear(%5) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
