//! The table, the driver, and what the tests of single passes share.

use std::cell::RefCell;

use expect_test::Expect;

use super::*;
use crate::models::{build, samples};

/// Runs one pass on a graph (nodes and tables, without the header) and compares the text, without the header.
pub fn check(run: fn(&mut Graph), before: &str, after: Expect) {
    let lines: Vec<&str> = before.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let output = lines.last().and_then(|line| line.split(':').next()).expect("a last node");
    let text = format!("graph tiny vocab=4 context=16 output={output}\n{}", lines.join("\n"));
    let mut graph = Graph::parse(&text).expect("a graph");
    graph.verify(Contract::default()).expect("a valid graph before");
    run(&mut graph);
    graph.verify(Contract::default()).expect("a valid graph after");
    graph.renumber();
    let text = graph.to_string();
    after.assert_eq(text.split_once('\n').expect("a header").1);
}

fn pass(name: &'static str, after: &'static [&'static str]) -> Pass {
    Pass { name, doc: "", required: false, after, establishes: |_| (), run: |_| () }
}

#[test]
fn the_table_is_checked() {
    assert!(check_table(PASSES).is_ok());
    assert!(check_table(&[pass("a", &[]), pass("b", &["a"])]).is_ok());
    for wrong in [vec![pass("a", &["b"]), pass("b", &[])], vec![pass("a", &[]), pass("a", &[])]] {
        assert!(matches!(check_table(&wrong), Err(PassError::Table { .. })));
    }
}

#[test]
fn unknown_and_required_names_are_refused() {
    let sample = samples::llama();
    let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
    let off = ["no-such".to_owned()];
    let error = run(&mut graph, &Schedule { off: &off, ..Schedule::default() }).expect_err("unknown");
    assert!(
        error.to_string().starts_with("there is no pass `no-such`; passes are hoist-select-outputs, "),
        "{error}"
    );
    // A graph has no launches.
    let off = ["join-launches".to_owned()];
    assert!(run(&mut graph.clone(), &Schedule { off: &off, ..Schedule::default() }).is_ok());
    let stop_after = Some("no-such");
    assert!(run(&mut graph, &Schedule { stop_after, ..Schedule::default() }).is_err());
    let off = ["quantize-heads".to_owned()];
    let error = run(&mut graph, &Schedule { off: &off, ..Schedule::default() }).expect_err("required");
    assert_eq!(
        error.to_string(),
        "pass `quantize-heads` cannot be switched off: there is no plan without it"
    );
}

#[test]
fn dumps_what_changed_and_stops_where_told() {
    let sample = samples::llama();
    let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
    let names = RefCell::new(Vec::new());
    let dump = |name: &str, _: &str| names.borrow_mut().push(name.to_owned());
    let schedule = Schedule { stop_after: Some("fuse-residual"), dump: Some(&dump), off: &[] };
    let contract = run(&mut graph, &schedule).expect("passes");
    assert_eq!(contract, Contract { quantized_activations: true, quantized_heads: true });
    // A llama has no post-norms: `fuse-norm-residual` ran and changed nothing.
    let expected =
        ["build", "hoist-select-outputs", "quantize-activations", "quantize-heads", "fuse-residual"];
    assert_eq!(*names.borrow(), expected);
}

#[test]
fn every_graph_of_every_model_reads_back() {
    for sample in samples::all() {
        let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
        let reads_back = |name: &str, text: &str| {
            let parsed =
                Graph::parse(text).unwrap_or_else(|error| panic!("{}, {name}: {error}", sample.name));
            assert_eq!(parsed.to_string(), text, "{}, {name}", sample.name);
        };
        assert_eq!(Graph::parse(&graph.to_string()).expect("text"), graph, "{}", sample.name);
        run(&mut graph, &Schedule { dump: Some(&reads_back), ..Schedule::default() }).expect("passes");
        assert_eq!(Graph::parse(&graph.to_string()).expect("text"), graph, "{}", sample.name);
    }
}

/// What only the output rows need starts right after the last attention.
#[test]
fn the_last_block_works_on_output_rows() {
    for sample in samples::all() {
        let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
        run(&mut graph, &Schedule::default()).expect("passes");
        let last = graph.nodes.iter().rposition(|n| matches!(n.op, crate::graph::Op::Attention { .. }));
        let rows =
            |node: &crate::graph::Node| node.results.iter().map(|&r| graph.ty(r).rows).collect::<Vec<_>>();
        let after = &graph.nodes[last.expect("attention") + 1..];
        let all = after.iter().filter(|node| rows(node).contains(&unisonic_core::plan::Rows::All)).count();
        assert_eq!(all, 0, "{}", sample.name);
    }
}
