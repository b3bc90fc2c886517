//! `fuse-norm-quantize`: `quantize(rms_norm(x))` becomes a second result of the norm. LayerNorm likewise. Who reads the f32
//! result, as routers do, still has it.

use super::rewrite::fuse_quantizations;
use crate::graph::{Graph, Op};

pub fn run(graph: &mut Graph) {
    fuse_quantizations(graph, |node| {
        matches!(node.op, Op::RmsNorm { .. } | Op::LayerNorm { .. }) && node.inputs.len() == 1
    });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn norm_quantises() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:outputs f32[8] = select_outputs(%1) label=select
            %3:outputs f32[8] = rms_norm(%2) weight=n[8] eps=1e-5 label=norm
            %4:outputs a16[8] = quantize(%3) label=norm.quantize
            %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:outputs f32[8] = select_outputs(%1) label=select
                %3:outputs f32[8], %4:outputs a16[8] = rms_norm(%2) weight=n[8] eps=1e-5 label=norm
                %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
