//! `early-dead-code`: what nothing uses goes before other passes ask how often a value is used, so that a
//! plan does not depend on it: a head that nobody reads would keep the selection of output rows where it is.

use super::dead_code;
use crate::graph::Graph;

pub fn run(graph: &mut Graph) {
    dead_code::run(graph);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn a_head_that_nobody_reads_goes() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-5 label=norm
            %3:all f32[4] = linear(%2) weight=e[4x8] label=early_head
            %4:outputs f32[8] = select_outputs(%2) label=select
            %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all f32[8] = rms_norm(%1) weight=n[8] eps=1e-5 label=norm
                %3:outputs f32[8] = select_outputs(%2) label=select
                %4:outputs f32[4] = linear(%3) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
