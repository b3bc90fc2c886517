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
        ("output=%10", "output=%8", "the output %8 must be f32 output rows, found all f32[8]"),
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

const PART: &str = "\
graph part vocab=4 context=16 output=%4
%0:all f32[8] = input() label=hidden
%1:outputs f32[8] = select_outputs(%0) label=select
%2:outputs f32[8] = rms_norm(%1) weight=n[8] eps=1e-6 label=norm
%3:outputs f32[8] = linear(%2) weight=w[8x8] label=w
%4:outputs f32[8] = add(%1, %3) label=sum
";

fn part() -> Graph {
    Graph::parse(PART).expect("a graph")
}

#[test]
fn a_graph_may_begin_with_rows_of_the_host_and_end_in_any_rows() {
    assert_eq!(part().to_string(), PART);
    assert_eq!(part().verify(Contract::default()), Ok(()));
    assert_eq!(part().check_limits(), Ok(()));
    for (from, to, rule) in [
        ("%0:all f32[8]", "%0:outputs f32[8]", "results must have all rows"),
        ("%0:all f32[8]", "%0:all a16[8]", "expected f32, found all a16[8]"),
        ("%0:all f32[8]", "%0:all f32[0]", "rows of the host have values"),
        ("output=%4", "output=%0", "the output %0 must be f32 output rows, found all f32[8]"),
    ] {
        let broken = Graph::parse(&PART.replacen(from, to, 1)).expect("text").verify(Contract::default());
        let rules: Vec<_> = broken.expect_err(to).0.into_iter().map(|violation| violation.rule).collect();
        assert!(rules.iter().any(|found| found == rule), "{to}: {rules:#?}");
    }
    let mut two = part();
    let second = two.new_value(Type::f32(Rows::All, 8));
    two.nodes.push(Node { label: "more".into(), op: Op::Input, inputs: vec![], results: vec![second] });
    assert!(two.verify(Contract::default()).expect_err("two").to_string().contains("a graph has one input"));
}

#[test]
fn a_graph_of_the_host_has_limits() {
    for (from, to, rule) in [
        ("vocab=4", "vocab=0", "the vocabulary must be 1 to 16777216, found 0"),
        ("context=16", "context=4000000000", "the context must be 1 to 268435456, found 4000000000"),
        ("eps=1e-6", "eps=NaN", "a norm's epsilon is in [2^-60, 1], found NaN"),
        (
            "%0:all f32[8]",
            "%0:all f32[2000000]",
            "the width of the result must be 1 to 1048576, found 2000000",
        ),
        ("weight=w[", "weight=[", "`` is no name of a tensor"),
        (
            "\n%0",
            "\nrope 0 half_split rotary=4000000000 base=1e4 scaling=none attention_factor=1.0\n%0",
            "rope 0: the rotated values must be 2 to 1024, found 4000000000",
        ),
        ("\n%0", "\nkv 0 4294967295x2\n%0", "the row length of kv 0 must be 1 to 1048576, found 4294967295"),
    ] {
        let graph = Graph::parse(&PART.replacen(from, to, 1)).expect("text");
        let rules: Vec<_> = graph.check_limits().expect_err(to).0.into_iter().map(|v| v.rule).collect();
        assert!(rules.iter().any(|found| found == rule), "{to}: {rules:#?}");
    }
    let mut spaced = part();
    spaced.nodes[0].label = "a b".into();
    assert!(
        spaced.check_limits().expect_err("spaces").to_string().contains("must have no spaces, found `a b`")
    );
}

#[test]
fn the_builder_infers_types_and_refuses_at_the_call() {
    let mut b = GraphBuilder::new("part", 4, 16);
    let vector = |name: &str, len| WeightRef { tensor: name.into(), shape: Shape::Vector(len), part: None };
    let matrix =
        |rows, cols| WeightRef { tensor: "w".into(), shape: Shape::Matrix { rows, cols }, part: None };
    let linear = |rows, cols| Op::Linear { weight: matrix(rows, cols), bias: None, head: false };
    let hidden = b.input("hidden", 8).expect("input");
    let x = b.node("select", Op::SelectOutputs, &[hidden]).expect("select");
    let normed = b.node("norm", Op::RmsNorm { weight: vector("n", 8), eps: 1e-6 }, &[x]).expect("norm");
    let refused = b.node("bad", linear(8, 7), &[normed]).expect_err("width").to_string();
    assert!(refused.contains("x must be f32[7] or a16[7]") && refused.contains("label=bad"), "{refused}");
    let refused = b.node("bad", Op::Add, &[hidden, ValueId(77)]).expect_err("value").to_string();
    assert!(refused.contains("%77 must be defined by an earlier node"), "{refused}");
    let refused = b.node("bad", Op::Add, &[hidden, x]).expect_err("rows").to_string();
    assert!(refused.contains("operands must have all rows"), "{refused}");
    assert!(b.node("bad", Op::Add, &[]).is_err());
    assert!(b.input("again", 8).is_err());
    let w = b.node("w", linear(8, 8), &[normed]).expect("linear");
    let sum = b.node("sum", Op::Add, &[x, w]).expect("add");
    assert_eq!(b.finish(sum).expect("a graph").to_string(), PART);
}
