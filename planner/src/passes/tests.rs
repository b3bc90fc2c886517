//! The table, the driver, and what the tests of single passes share.

use std::cell::RefCell;

use expect_test::Expect;

use super::*;
use crate::graph::{Element, Node, Op, Type};
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
        error.to_string().starts_with("there is no pass `no-such`; passes are early-dead-code, "),
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

/// What only the output rows need starts right after the last attention whose keys and values are of its own layer.
#[test]
fn the_last_block_works_on_output_rows() {
    for sample in samples::all() {
        let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
        run(&mut graph, &Schedule::default()).expect("passes");
        let is_written =
            graph.nodes.iter().rposition(|n| matches!(n.op, Op::WriteKv { .. })).expect("a cache");
        let next = graph.nodes[is_written..].iter().position(|n| matches!(n.op, Op::Attention { .. }));
        let rows = |node: &Node| node.results.iter().map(|&r| graph.ty(r).rows).collect::<Vec<_>>();
        let after = &graph.nodes[is_written + next.expect("attention") + 1..];
        let all = after.iter().filter(|node| rows(node).contains(&unisonic_core::plan::Rows::All)).count();
        assert_eq!(all, 0, "{}", sample.name);
    }
}

/// A head that nobody reads changes nothing of a plan, wherever it is and whatever else it would have kept.
#[test]
fn an_unused_head_plans_to_the_same_bytes() {
    for sample in samples::all() {
        let plain = build(&sample.metadata, &sample.tensors).expect("a graph");
        let planned = |mut graph: Graph| {
            run(&mut graph, &Schedule::default()).expect("passes");
            graph.to_string()
        };
        let right = planned(plain.clone());
        let head = plain.nodes.iter().rfind(|node| matches!(node.op, Op::Linear { head: true, .. }));
        let head = head.expect("a head");
        let width = plain.ty(head.inputs[0]).element.width();
        let reads = |&at: &usize| {
            let first = plain.nodes[at].results.first();
            first.is_some_and(|&value| {
                let ty = plain.ty(value);
                ty.slots == 1 && ty.element == Element::F32 { width }
            })
        };
        for at in (0..plain.nodes.len()).filter(reads) {
            let mut graph = plain.clone();
            let input = graph.nodes[at].results[0];
            let result = graph.new_value(Type::f32(graph.ty(input).rows, plain.vocab_len));
            let mut op = head.op.clone();
            if let Op::Linear { head, .. } = &mut op {
                *head = false;
            }
            let unused = Node { label: "unused".into(), op, inputs: vec![input], results: vec![result] };
            graph.nodes.insert(at + 1, unused);
            graph.renumber();
            assert_eq!(planned(graph), right, "{}: after {}", sample.name, plain.nodes[at].label);
        }
    }
}

/// What a failing pass leaves runs it again, and fails as it did.
#[test]
fn a_pass_that_fails_can_be_replayed() {
    fn breaks(graph: &mut Graph) {
        graph.nodes.remove(1);
    }
    fn panics(graph: &mut Graph) {
        assert!(graph.nodes.is_empty(), "a pass with a bug");
    }
    for (run_pass, says) in
        [(breaks as fn(&mut Graph), "after pass `bad`: "), (panics, "pass `bad` panicked")]
    {
        let bad = Pass { required: true, run: run_pass, ..pass("bad", &["quantize-activations"]) };
        let mut passes: Vec<Pass> = PASSES[..4].iter().map(|pass| Pass { ..*pass }).collect();
        passes.push(bad);
        let sample = samples::llama();
        let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
        let mut before = graph.clone();
        let error = run_table(&passes, &mut graph, &Schedule::default()).expect_err("it fails");
        assert!(error.to_string().starts_with(says), "{error}");
        run_table(&passes[..4], &mut before, &Schedule::default()).expect("passes");
        let crash = error.crash().expect("a pass failed").clone();
        assert_eq!(crash, Crash { pass: "bad".into(), before: before.to_string() });
        let again = crash::replay_with(&passes, &crash.to_string()).expect_err("it fails again");
        assert_eq!(again.to_string(), error.to_string());
    }
}

#[test]
fn a_crash_file_of_a_pass_that_works_gives_the_graph_after_it() {
    let sample = samples::llama();
    let texts = RefCell::new(Vec::new());
    let dump = |name: &str, text: &str| texts.borrow_mut().push((name.to_owned(), text.to_owned()));
    let mut graph = build(&sample.metadata, &sample.tensors).expect("a graph");
    run(&mut graph, &Schedule { dump: Some(&dump), ..Schedule::default() }).expect("passes");
    let texts = texts.into_inner();
    for pair in texts.windows(2) {
        let [(_, before), (name, after)] = pair else { panic!("two of them") };
        let crash = Crash { pass: name.clone(), before: before.clone() };
        assert_eq!(replay(&crash.to_string()).expect("it works").to_string(), *after, "{name}");
    }
    for wrong in ["", "pass fuse-heads", "graph", "pass nothing\ngraph", "pass nothing\n"] {
        assert!(replay(wrong).is_err(), "{wrong}");
    }
    let unknown = replay(&format!("pass nothing\n{}", texts[0].1)).expect_err("no such pass").to_string();
    assert!(unknown.starts_with("there is no pass `nothing`; passes are "), "{unknown}");
    // What holds before a pass follows from its place.
    let early =
        replay(&format!("pass fuse-heads\n{}", texts[0].1)).expect_err("nothing is quantised").to_string();
    assert!(early.starts_with("after reading the crash file: "), "{early}");
}
