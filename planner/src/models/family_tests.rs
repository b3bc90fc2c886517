//! What is particular to the architectures that are no plain decoders of the llama family.

use unisonic_core::format::{GgmlType, Value};
use unisonic_core::plan::TensorPart;

use super::samples::{self, Sample};
use super::*;
use crate::graph::{Node, Op, WeightRef};

fn graph(sample: &Sample) -> Graph {
    build(&sample.metadata, &sample.tensors).unwrap_or_else(|error| panic!("{}: {error}", sample.name))
}

fn refused(sample: &Sample, message: &str) {
    let error = build(&sample.metadata, &sample.tensors).expect_err(message);
    assert_eq!(error.to_string(), message);
}

fn node<'a>(graph: &'a Graph, label: &str) -> &'a Node {
    graph.nodes.iter().find(|node| node.label == label).unwrap_or_else(|| panic!("no node `{label}`"))
}

fn weights(node: &Node) -> Vec<(String, Option<TensorPart>)> {
    node.op.weights().map(|WeightRef { tensor, shape, part }| (format!("{tensor}{shape}"), *part)).collect()
}

#[test]
fn parts_of_fused_tensors_follow_each_other() {
    let part = |first: u64, len: u64| Some(TensorPart { first, len });
    let built = graph(&samples::gpt2());
    let of = |label: &str| weights(node(&built, &format!("blk.1.{label}")));
    let qkv = |first: u64| {
        vec![
            ("blk.1.attn_qkv.weight[256x256]".to_owned(), part(first * 256, 768 * 256)),
            ("blk.1.attn_qkv.bias[256]".to_owned(), part(first, 768)),
        ]
    };
    assert_eq!([of("attn_q"), of("attn_k"), of("attn_v")], [qkv(0), qkv(256), qkv(512)]);
    let built = graph(&samples::phi3());
    let of = |label: &str| weights(node(&built, &format!("blk.0.{label}")));
    let up = |first: u64| vec![("blk.0.ffn_up.weight[512x256]".to_owned(), part(first, 1024 * 256))];
    assert_eq!([of("ffn_gate"), of("ffn_up")], [up(0), up(512 * 256)]);
    assert_eq!(of("attn_v"), [("blk.0.attn_qkv.weight[128x256]".to_owned(), part(384 * 256, 512 * 256))]);
    refused(
        &samples::phi3().change("blk.0.attn_qkv.weight", |info| info.dims[1] = 511),
        "tensor `blk.0.attn_qkv.weight` has the shape 511 x 256, but the metadata of this phi3 model says 512 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    refused(
        &samples::gpt2().without("blk.0.attn_qkv.bias"),
        "the file has no tensor `blk.0.attn_qkv.bias`, which a gpt2 model needs (shape 1 x 768); download or convert the file again",
    );
}

#[test]
fn phi_takes_the_factors_of_its_context() {
    let factors = |sample: &Sample| graph(sample).rope_tables[0].factors.clone().map(|weight| weight.tensor);
    let sample = samples::phi3();
    assert_eq!(factors(&sample), None);
    let [long, short] = ["long", "short"].map(|kind| format!("rope_factors_{kind}.weight"));
    let both = sample
        .tensor(&long, GgmlType::F32, &[32])
        .tensor(&short, GgmlType::F32, &[32])
        .set("{}.rope.scaling.type", Value::String("longrope".to_owned()))
        .set("{}.rope.scaling.attn_factor", Value::F32(1.19));
    let original = |len: u32| both.clone().set("{}.rope.scaling.original_context_length", Value::U32(len));
    assert_eq!(factors(&original(128)), Some(long));
    assert_eq!(factors(&original(512)), Some(short));
    assert_eq!(graph(&both).rope_tables[0].attention_factor, f64::from(1.19_f32));
    refused(
        &samples::llama().set("{}.rope.scaling.type", Value::String("longrope".to_owned())),
        "this RoPE scaling is not supported yet (metadata key `llama.rope.scaling.type` is `longrope`); `none`, `linear` and `yarn` work",
    );
}

#[test]
fn phi_has_no_windows() {
    let windows = graph(&samples::phi3());
    let of = |node: &Node| matches!(node.op, Op::Attention { window: Some(_), .. });
    assert!(!windows.nodes.iter().any(of));
}

#[test]
fn gpt_2_has_learned_positions_and_layer_norms() {
    let sample = samples::gpt2();
    let built = graph(&sample);
    assert!(built.rope_tables.is_empty());
    assert_eq!(weights(node(&built, "position_embd")), [("position_embd.weight[512x256]".to_owned(), None)]);
    assert!(matches!(node(&built, "output_norm").op, Op::LayerNorm { eps: 1e-5, .. }));
    refused(
        &sample.clone().set("{}.context_length", Value::U32(1024)),
        "tensor `position_embd.weight` has the shape 512 x 256, but the metadata of this gpt2 model says 1024 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    refused(
        &sample.clone().without("blk.0.ffn_norm.bias"),
        "the file has no tensor `blk.0.ffn_norm.bias`, which a gpt2 model needs (shape 1 x 256); download or convert the file again",
    );
    refused(
        &sample.unset("{}.attention.layer_norm_epsilon"),
        "the file has no metadata key `gpt2.attention.layer_norm_epsilon` (a 32-bit float); it may be damaged or made for another program",
    );
}

#[test]
fn experts_are_as_the_metadata_says() {
    let built = graph(&samples::qwen2moe());
    let denominator = |graph: &Graph| match node(graph, "blk.0.ffn_gate_inp").op {
        Op::Route { denominator, .. } => denominator,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(denominator(&built), unisonic_core::plan::Denominator::All);
    let down = node(&built, "blk.0.ffn_down_exps");
    assert_eq!(weights(down), [("blk.0.ffn_down_exps.weight[2048x256]".to_owned(), None)]);
    assert_eq!((built.ty(down.results[0]).slots, built.ty(down.inputs[1]).element.width()), (3, 6));
    // The router and the gate read the norm's f32 result.
    let norm = node(&built, "blk.0.ffn_norm").results[0];
    assert_eq!(node(&built, "blk.0.ffn_gate_inp").inputs, [norm]);
    assert_eq!(node(&built, "blk.0.ffn_gate_inp_shexp").inputs[0], norm);
    for sample in [samples::llama_moe(), samples::qwen3moe()] {
        assert_eq!(denominator(&graph(&sample)), unisonic_core::plan::Denominator::Chosen, "{}", sample.name);
    }
    // Without a length of its own, an expert has its share, and the shared expert all.
    let plain = samples::qwen2moe().set("{}.expert_used_count", Value::U32(2));
    let plain = plain.unset("{}.expert_feed_forward_length");
    assert_eq!(built.nodes.len(), graph(&plain).nodes.len());
}

#[test]
fn experts_that_cannot_be_are_refused() {
    let u32s = |key: &str, value: u32| samples::qwen3moe().set(key, Value::U32(value));
    refused(
        &u32s("{}.expert_used_count", 9),
        "metadata key `qwen3moe.expert_used_count` is 9, expected 1 to 8; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.expert_count", 0),
        "metadata key `qwen3moe.expert_count` is absent or 0, expected at least 1; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.expert_count", 2000),
        "metadata key `qwen3moe.expert_count` is 2000, expected 0 to 1024; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.expert_feed_forward_length", 128),
        "tensor `blk.0.ffn_gate_exps.weight` has the shape 2048 x 256, but the metadata of this qwen3moe model says 1024 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    let name = "blk.0.ffn_up_exps.weight";
    refused(
        &samples::qwen3moe().change(name, |info| info.dims = vec![256, 128, 16]),
        "tensor `blk.0.ffn_up_exps.weight` has the shape dimensions [256, 128, 16], but the metadata of this qwen3moe model says 8 matrices of 256 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    refused(
        &samples::qwen3moe().change("blk.1.ffn_gate_inp.weight", |info| info.ty = GgmlType::Q8_0),
        "tensor `blk.1.ffn_gate_inp.weight` is stored as Q8_0, which is not supported here; use a file of the same model that has it as one of F32, F16, BF16",
    );
}
