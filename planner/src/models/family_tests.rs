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

#[test]
fn gemma_4_reads_caches_of_earlier_layers() {
    let sample = samples::gemma4();
    let built = graph(&sample);
    let caches: Vec<u32> = built.kv_layers.iter().map(|layer| layer.head_len).collect();
    assert_eq!(caches, [32, 32, 64]);
    let reads = |graph: &Graph| {
        let of = |node: &Node| match node.op {
            Op::Attention { layer, window, kappa, .. } => Some((layer.0, window, kappa.to_bits())),
            _ => None,
        };
        graph.nodes.iter().filter_map(of).collect::<Vec<_>>()
    };
    // Scores are not scaled: kappa is log2(e).
    let (local, global) = (|cache| (cache, Some(16), 0x3FB8_AA3B), (2, None, 0x3FB8_AA3B));
    assert_eq!(reads(&built), [local(0), local(1), global, local(1), local(1), global]);
    let tables: Vec<(u32, f64, bool)> =
        built.rope_tables.iter().map(|spec| (spec.rotary_len, spec.base, spec.factors.is_some())).collect();
    assert_eq!(tables, [(64, 1e6, true), (32, 1e4, false)]);
    // Keys of a layer that has no cache may be there, those of one that has must.
    refused(
        &sample.clone().without("blk.2.attn_k.weight"),
        "the file has no tensor `blk.2.attn_k.weight`, which a gemma4 model needs (shape 128 x 256); download or convert the file again",
    );
    // Without a projection of their own values are normed keys, before norm and RoPE of the keys.
    let of_keys = graph(&sample.clone().without("blk.2.attn_v.weight"));
    let (v, k) = (node(&of_keys, "blk.2.attn_v_norm"), node(&of_keys, "blk.2.attn_k"));
    assert_eq!(v.inputs, k.results);
    let shared = |layers: u32| sample.clone().set("{}.attention.shared_kv_layers", Value::U32(layers));
    refused(
        &shared(2),
        "metadata key `gemma4.attention.shared_kv_layers` is 2, expected as many that layer 4 finds a cache of its kind: the last layer with a cache is global, the one before it local; the file is damaged or made for another program",
    );
    refused(
        &shared(6),
        "metadata key `gemma4.attention.shared_kv_layers` is 6, expected 0 to 5; the file is damaged or made for another program",
    );
    refused(
        &sample.clone().unset("{}.attention.sliding_window_pattern"),
        "metadata key `gemma4.attention.sliding_window_pattern` is no such array, expected an array that says of each layer whether it is local; the file is damaged or made for another program",
    );
    refused(
        &sample.set("{}.attention.value_length_swa", Value::U32(16)),
        "metadata key `gemma4.attention.value_length_swa` is 16, expected 32, the length of keys; the file is damaged or made for another program",
    );
}

#[test]
fn gemma_4_has_embeddings_for_every_layer() {
    let built = graph(&samples::gemma4());
    assert!(matches!(node(&built, "per_layer_token_embd").op, Op::Embed { scale: Some(4.0), .. }));
    // A factor of 1/sqrt(256) before the norm.
    let Op::HeadNorm { head_len: 16, eps, .. } = node(&built, "per_layer_proj_norm").op else {
        panic!("no norm of heads")
    };
    assert_eq!(eps.to_bits(), (1e-5_f32 * 256.0).to_bits());
    let Op::RmsNorm { eps, .. } = node(&built, "blk.5.post_norm").op else { panic!("no norm") };
    assert_eq!(eps.to_bits(), (1e-5_f32 * 2.0).to_bits());
    let inputs = node(&built, "per_layer_inputs").results[0];
    for layer in 0..6 {
        let act = node(&built, &format!("blk.{layer}.inp_act"));
        assert!(matches!(act.op, Op::Gate { part, .. } if part == layer));
        assert_eq!(act.inputs[1], inputs);
    }
    // None of them at all: the 31B model.
    let mut plain = samples::gemma4().set("{}.embedding_length_per_layer_input", Value::U32(0));
    plain.tensors.retain(|info| {
        let parts = ["inp_gate", "proj", "post_norm"];
        !info.name.starts_with("per_layer")
            && !parts.iter().any(|part| info.name.ends_with(&format!(".{part}.weight")))
    });
    assert!(!graph(&plain).nodes.iter().any(|node| node.label.contains("inp_")));
}

#[test]
fn layers_of_gemma_4_may_differ() {
    let lens = |values: Vec<i32>| Value::I32s(values);
    let wider = samples::gemma4().set("{}.feed_forward_length", lens(vec![512, 512, 512, 1024, 1024, 1024]));
    let wider = (3..6).fold(wider, |sample, layer| {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        sample
            .change(&name("ffn_gate"), |info| info.dims[1] = 1024)
            .change(&name("ffn_up"), |info| info.dims[1] = 1024)
            .change(&name("ffn_down"), |info| info.dims[0] = 1024)
    });
    graph(&wider);
    let heads = samples::gemma4().set("{}.attention.head_count_kv", lens(vec![2, 2, 1, 2, 2, 2]));
    let heads = heads
        .change("blk.2.attn_k.weight", |info| info.dims[1] = 64)
        .change("blk.2.attn_v.weight", |info| info.dims[1] = 64);
    let caches: Vec<u32> = graph(&heads).kv_layers.iter().map(|layer| layer.heads).collect();
    assert_eq!(caches, [2, 2, 1]);
    refused(
        &samples::gemma4().set("{}.attention.head_count_kv", lens(vec![2, 2, -1, 2, 2, 2])),
        "metadata key `gemma4.attention.head_count_kv` is an array with -1, expected 1 to 4 for each layer; the file is damaged or made for another program",
    );
    refused(
        &samples::gemma4().set("{}.feed_forward_length", lens(vec![512])),
        "metadata key `gemma4.feed_forward_length` is an array of 1, expected one entry for each of the 6 layers; the file is damaged or made for another program",
    );
    refused(
        &samples::llama().set("{}.feed_forward_length", lens(vec![512, 1024])),
        "a number of each layer's own is not supported yet (metadata key `llama.feed_forward_length` is an array of different numbers); models of this architecture work if all layers are alike",
    );
    graph(&samples::llama().set("{}.feed_forward_length", lens(vec![512, 512])));
}
