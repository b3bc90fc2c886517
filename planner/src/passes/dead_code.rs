//! `dead-code`: operations without effect whose results nothing uses go; so does one of two results.

use crate::graph::Graph;

pub fn run(graph: &mut Graph) {
    let mut uses = graph.use_counts();
    // Users stand after what they use: one walk from the end finds everything.
    let mut keep: Vec<bool> = Vec::with_capacity(graph.nodes.len());
    for node in graph.nodes.iter_mut().rev() {
        let used = node.results.iter().any(|result| uses[result.index()] > 0);
        let stays = used || node.op.has_effect();
        match stays {
            true => node.results.retain(|result| uses[result.index()] > 0),
            false => node.inputs.iter().for_each(|input| uses[input.index()] -= 1),
        }
        keep.push(stays);
    }
    graph.nodes.retain(|_| keep.pop().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn unused_results_and_nodes_go() {
        let graph = "
            kv 0 1x8
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = add(%1, %1) label=unused
            %3:all f32[8] = add(%2, %2) label=unused_too
            write_kv(%1, %1) kv=0 label=kv
            %4:outputs f32[8] = select_outputs(%1) label=select
            %5:outputs f32[8], %6:outputs a16[8] = rms_norm(%4) weight=n[8] eps=1e-5 label=norm
            %7:outputs f32[4] = linear(%6) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                kv 0 1x8
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                write_kv(%1, %1) kv=0 label=kv
                %2:outputs f32[8] = select_outputs(%1) label=select
                %3:outputs a16[8] = rms_norm(%2) weight=n[8] eps=1e-5 label=norm
                %4:outputs f32[4] = linear(%3) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
