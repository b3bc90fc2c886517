//! The text form and the rules.

use super::*;

const GRAPH: &str = "\
graph tiny vocab=4 context=16 output=%10
rope 0 interleaved rotary=4 base=10000.0 scaling=yarn factor=4.0 original_context=128 attention_factor=1.5 factors=rf[2]
rope 1 half_split rotary=2 base=1000000.0 scaling=linear factor=8.0 attention_factor=1.0
kv 0 1x4
%0:all u32 = tokens() label=tokens
%1:all f32[8] = embed(%0) table=t[4x8] scale=2.828427 label=embd
%2:all f32[8], %3:all a16[8] = rms_norm(%1) weight=n[8] eps=1.1754944e-38 label=norm
%4:all f32[4] = linear(%3) weight=k[4x8] bias=kb[4] label=k
%5:all f32[4] = head_norm(%4) norm=kn[4] eps=1e-6 label=k_norm
%6:all f32[4] = rope(%5) rope=1 head_len=4 label=k_rope
write_kv(%6, %4) rope=0 kv=0 label=kv
%7:all q16[2x4] = prepare_query(%2) norm=kn[4] eps=1e-6 rope=0 label=query
%8:all f32[8] = attention(%7) kv=0 kappa=0.7213476 window=3 label=attention
%9:outputs f32[8] = select_outputs(%8) label=select
%10:outputs f32[4] = linear(%9) weight=t[4x8] head=true label=output
";

fn graph() -> Graph {
    Graph::parse(GRAPH).expect("a graph")
}

#[test]
fn text_and_graph_are_the_same() {
    assert_eq!(graph().to_string(), GRAPH);
    assert_eq!(Graph::parse(&graph().to_string()), Ok(graph()));
    assert_eq!(graph().verify(Contract::default()), Ok(()));
}

#[test]
fn floats_survive_to_the_bit() {
    for bits in [0u32, 1, 0x8000_0000, 0x0080_0000, 0x3DB8_AA3B, 0x3DB8_AA3C, 0x7F7F_FFFF, 0x3AFF_FFFF] {
        let mut graph = graph();
        graph.nodes[8].op = Op::Attention {
            soft_cap: None,
            layer: unisonic_core::plan::KvLayerId(0),
            kappa: f32::from_bits(bits),
            window: None,
        };
        let read = Graph::parse(&graph.to_string()).expect("text");
        let Op::Attention { kappa, .. } = read.nodes[8].op else { panic!("{:?}", read.nodes[8]) };
        assert_eq!(kappa.to_bits(), bits);
    }
}

#[test]
fn bad_text_is_refused_with_its_line() {
    for (from, to, message) in [
        ("graph tiny", "graf tiny", "line 1: expected `graph ARCHITECTURE …`"),
        ("output=%10", "output=10", "line 1: expected `%ID`"),
        ("rope 1 half", "rope 2 half", "line 3: expected number 1, found 2"),
        ("kv 0 1x4", "kv 0 1by4", "line 4: expected `AxB`"),
        ("%1:all f32[8]", "%7:all f32[8]", "line 6: %7 defined, but the next value is %1"),
        ("rms_norm(%1)", "group_norm(%1)", "line 7: `group_norm` is no operation"),
        ("weight=k[4x8]", "weights=k[4x8]", "line 8: expected `weight=`"),
        ("eps=1e-6 label=k_norm", "eps=1e-6 window=1 label=k_norm", "line 9: `window=` does not belong here"),
        ("write_kv(%6, %4)", "write_kv %6, %4", "line 11: expected `op(inputs)`"),
        ("q16[2x4]", "q8[2x4]", "line 12: `q8` is no element type"),
        ("kappa=0.7213476", "kappa=high", "line 13: `high` is no f32"),
    ] {
        let text = GRAPH.replacen(from, to, 1);
        assert_ne!(text, GRAPH, "{from}");
        assert_eq!(Graph::parse(&text).expect_err(to).to_string(), message);
    }
}

/// Rules broken by replacing a piece of text.
fn broken(from: &str, to: &str, contract: Contract) -> Vec<String> {
    let text = GRAPH.replacen(from, to, 1);
    assert_ne!(text, GRAPH, "{from}");
    let violations = Graph::parse(&text).expect("a text").verify(contract).expect_err(to);
    violations.0.into_iter().map(|violation| violation.rule).collect()
}

#[test]
fn each_rule_is_held() {
    let any = Contract::default();
    for (from, to, rule) in [
        ("write_kv(%6, %4)", "write_kv(%9, %4)", "%9 must be defined by an earlier node"),
        ("output=%10", "output=%11", "the output %11 must be defined"),
        ("output=%10", "output=%9", "the output %9 must be outputs f32[4]"),
        ("embed(%0) table=t[4x8]", "embed(%0) table=t[5x8]", "one row a token"),
        ("embed(%0)", "embed(%0, %0)", "embed takes 1 to 1 operands"),
        ("%1:all f32[8] = embed", "%1:all f32[9] = embed", "expected all f32[8], found all f32[9]"),
        ("%1:all f32[8] = embed", "%1:outputs f32[8] = embed", "results must have all rows"),
        ("rms_norm(%1) weight=n[8]", "rms_norm(%1) weight=n[7]", "expected all f32[7], found all f32[8]"),
        (
            "%2:all f32[8], %3:all a16[8]",
            "%2:all a16[8], %3:all a16[8]",
            "results must be f32[8], a16[8], or both in that order",
        ),
        ("rms_norm(%1) ", "rms_norm(%1, %1) ", "a norm with a residual has an f32 result only"),
        ("weight=k[4x8] bias=kb[4]", "weight=k[4x8] bias=kb[3]", "the bias must have 4 values"),
        ("weight=k[4x8] bias=kb[4]", "weight=k[4x9] bias=kb[4]", "x must be f32[9] or a16[9]"),
        ("weight=k[4x8] bias=kb[4]", "weight=k[4] bias=kb[4]", "`k` must be a matrix"),
        ("head_norm(%4) norm=kn[4]", "head_norm(%4) norm=other[3]", "`other` must have the length of a head"),
        ("rope(%5) rope=1 head_len=4", "rope(%5) rope=2 head_len=4", "rope 2 must exist"),
        ("rope(%5) rope=1 head_len=4", "rope(%5) rope=1 head_len=3", "the row must be whole heads"),
        ("rotary=4", "rotary=6", "rope 0 must rotate an even number of a head's 4 values"),
        ("write_kv(%6, %4) rope=0 kv=0", "write_kv(%6, %4) rope=0 kv=1", "kv 1 must exist and have heads"),
        ("write_kv(%6, %4)", "write_kv(%1, %4)", "expected all f32[4], found all f32[8]"),
        ("q16[2x4]", "q16[1x4]", "heads times head length must be the width of the operand"),
        ("kv 0 1x4", "kv 0 3x4", "2 query heads must be a multiple of the cache's 3"),
        ("window=3", "window=0", "a window is at least 1"),
        ("select_outputs(%8)", "select_outputs(%3)", "expected f32, found all a16[8]"),
        ("linear(%9) weight=t[4x8]", "linear(%9) weight=t[2x8]", "`t` must have one shape, [4x8] or [2x8]"),
        ("weight=k[4x8] bias=kb[4]", "weight=k[4x8] head=true", "the head makes logits of output rows"),
    ] {
        let rules = broken(from, to, any);
        assert!(rules.iter().any(|found| found == rule), "{to}: {rules:#?}");
    }
}

#[test]
fn the_cache_is_written_once_and_before_it_is_read() {
    let mut graph = graph();
    let write = graph.nodes.remove(6);
    let unwritten = graph.verify(Contract::default()).expect_err("unwritten");
    assert!(unwritten.to_string().contains("kv 0 must be written before attention reads it"), "{unwritten}");
    graph.nodes.insert(6, write.clone());
    graph.nodes.insert(6, write);
    let twice = graph.verify(Contract::default()).expect_err("twice");
    assert!(twice.to_string().contains("kv 0 must be written once"), "{twice}");
}

#[test]
fn a_value_is_defined_once() {
    let mut graph = graph();
    graph.nodes[4].results = graph.nodes[3].results.clone();
    let twice = graph.verify(Contract::default()).expect_err("twice");
    assert!(twice.to_string().contains("%4 must be a value that no other node defines"), "{twice}");
}

#[test]
fn what_passes_establish_is_held() {
    let float_head = "linear(%9) weight=t[4x8] head=true";
    let activations = Contract { quantized_activations: true, quantized_heads: false };
    // The graph's own head reads f32.
    assert_eq!(
        broken(float_head, &format!("{float_head} "), activations),
        ["x must be a16[8]: activations are quantised by now"]
    );
    let heads = Contract { quantized_activations: false, quantized_heads: true };
    assert_eq!(graph().verify(heads), Ok(()));
    assert_eq!(
        broken("attention(%7)", "attention(%1)", heads),
        ["q must be q16: heads are quantised by now, or it is no row of heads"]
    );
}

#[test]
fn all_violations_are_reported_with_their_nodes() {
    let text = GRAPH
        .replace("kn[4] eps=1e-6 label=k_norm", "n[8] eps=1e-6 label=k_norm")
        .replace("window=3", "window=0");
    let violations =
        Graph::parse(&text).expect("text").verify(Contract::default()).expect_err("two").to_string();
    assert_eq!(
        violations,
        "the graph breaks 2 of its rules\n  \
         `n` must have the length of a head\n    \
         in: %5:all f32[4] = head_norm(%4) norm=n[8] eps=1e-6 label=k_norm\n  \
         a window is at least 1\n    \
         in: %8:all f32[8] = attention(%7) kv=0 kappa=0.7213476 window=0 label=attention"
    );
}

#[test]
fn hostile_numbers_do_not_panic() {
    for (from, to) in [
        ("kv 0 1x4", "kv 0 4294967295x4294967295"),
        ("kv 0 1x4", "kv 0 0x0"),
        ("q16[2x4]", "q16[4294967295x4294967295]"),
        ("head_len=4", "head_len=0"),
        ("output=%10", "output=%4294967295"),
        ("linear(%9)", "linear(%4294967295)"),
        ("rms_norm(%1)", "rms_norm()"),
        ("kn[4]", "kn[0]"),
    ] {
        broken(from, to, Contract::default());
    }
}

#[test]
fn renumbering_follows_the_order_of_definition() {
    let mut numbered = graph();
    numbered.new_value(Type::f32(Rows::All, 1));
    let spare = numbered.new_value(Type::f32(Rows::All, 8));
    numbered.nodes[1].results = vec![spare];
    numbered.replace_uses(ValueId(1), spare);
    numbered.renumber();
    assert_eq!(numbered, graph());
}
