//! `quantize-activations`: linear layers read A16. A value that several read, such as the normed row of q, k and v, is
//! quantised once.

use super::rewrite::{Conversion, convert_operands, label_of};
use crate::graph::{Element, Graph, Op};

pub fn run(graph: &mut Graph) {
    convert_operands(graph, |graph, node| {
        let (Op::Linear { .. } | Op::ExpertLinear { .. }) = node.op else { return None };
        let Element::F32 { width } = graph.ty(node.inputs[0]).element else { return None };
        Some(Conversion {
            label: format!("{}.quantize", label_of(graph, node.inputs[0])),
            op: Op::Quantize,
            element: Element::A16 { width },
        })
    });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::passes::tests::check;

    #[test]
    fn one_quantize_for_all_readers() {
        let graph = "
            %0:all u32 = tokens() label=tokens
            %1:all f32[8] = embed(%0) table=t[4x8] label=embd
            %2:all f32[8] = linear(%1) weight=a[8x8] label=a
            %3:all f32[8] = linear(%1) weight=b[8x8] label=b
            %4:all f32[8] = gate(%2, %3) activation=silu label=act
            %5:outputs f32[8] = select_outputs(%4) label=select
            %6:outputs f32[4] = linear(%5) weight=h[4x8] head=true label=output
        ";
        check(
            super::run,
            graph,
            expect![[r#"
                %0:all u32 = tokens() label=tokens
                %1:all f32[8] = embed(%0) table=t[4x8] label=embd
                %2:all a16[8] = quantize(%1) label=embd.quantize
                %3:all f32[8] = linear(%2) weight=a[8x8] label=a
                %4:all f32[8] = linear(%2) weight=b[8x8] label=b
                %5:all f32[8] = gate(%3, %4) activation=silu label=act
                %6:outputs f32[8] = select_outputs(%5) label=select
                %7:outputs a16[8] = quantize(%6) label=select.quantize
                %8:outputs f32[4] = linear(%7) weight=h[4x8] head=true label=output
            "#]],
        );
    }
}
