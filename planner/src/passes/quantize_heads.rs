//! `quantize-heads`: attention reads Q16.

use super::rewrite::{Conversion, convert_operands};
use crate::graph::{Element, Graph, Op};

pub fn run(graph: &mut Graph) {
    convert_operands(graph, |graph, node| {
        let Op::Attention { layer, .. } = node.op else { return None };
        let Element::F32 { width } = graph.ty(node.inputs[0]).element else { return None };
        let head_len = graph.kv_layers[layer.index()].head_len;
        Some(Conversion {
            label: format!("{}.query", node.label),
            op: Op::PrepareQuery { norm: None, rope: None },
            element: Element::Q16 { heads: width / head_len, head_len },
        })
    });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn attention_reads_q16() {
        let graph = "
            kv 0 1x4
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[4] = linear(%1) weight=k[4x8] label=k
            write_kv(%2, %2) kv=0 label=kv
            %3:all f32[8] = attention(%1) kv=0 kappa=0.5 label=attention
            %4:outputs f32[8] = select_outputs(%3) label=select
            %5:outputs f32[4] = linear(%4) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                kv 0 1x4
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all f32[4] = linear(%1) weight=k[4x8] label=k
                write_kv(%2, %2) kv=0 label=kv
                %3:all q16[2x4] = prepare_query(%1) label=attention.query
                %4:all f32[8] = attention(%3) kv=0 kappa=0.5 label=attention
                %5:outputs f32[8] = select_outputs(%4) label=select
                %6:outputs f32[4] = linear(%5) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
