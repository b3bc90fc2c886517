//! What files may say, and what is refused with which words.

use unisonic_core::format::{GgmlType, Value};

use super::samples::{self, Sample};
use super::*;
use crate::graph::{Op, RopeScaling, RopeSpec};

fn graph(sample: &Sample) -> Graph {
    build(&sample.metadata, &sample.tensors).unwrap_or_else(|error| panic!("{}: {error}", sample.name))
}

fn refused(sample: &Sample, message: &str) {
    let error = build(&sample.metadata, &sample.tensors).expect_err(message);
    assert_eq!(error.to_string(), message);
}

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

#[test]
fn a_llama_before_passes() {
    expect_test::expect_file!["llama.txt"].assert_eq(&graph(&samples::llama()).to_string());
}

#[test]
fn unknown_architectures_are_refused() {
    refused(
        &samples::llama().set("general.architecture", text("mamba")),
        "this model has the architecture `mamba`, which is not supported; supported are llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma2, gemma3, gemma4, phi3, gpt2. Another model file of one of these families will work",
    );
    refused(
        &samples::llama().unset("general.architecture"),
        "the file has no metadata key `general.architecture` (a string); it may be damaged or made for another program",
    );
}

#[test]
fn hyperparameters_are_held_to_their_ranges() {
    let u32s = |key: &str, value: u32| samples::llama().set(key, Value::U32(value));
    refused(
        &samples::llama().unset("{}.block_count"),
        "the file has no metadata key `llama.block_count` (an unsigned 32-bit integer); it may be damaged or made for another program",
    );
    refused(
        &u32s("{}.block_count", 0),
        "metadata key `llama.block_count` is 0, expected 1 to 1024; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.embedding_length", u32::MAX),
        "metadata key `llama.embedding_length` is 4294967295, expected 1 to 1048576; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.feed_forward_length", 0),
        "metadata key `llama.feed_forward_length` is 0, expected 1 to 1048576; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.context_length", 0),
        "metadata key `llama.context_length` is 0, expected 1 to 268435456; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.head_count", 0),
        "metadata key `llama.attention.head_count` is 0, expected 1 to 1048576; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.head_count", 1 << 20),
        "metadata key `llama.attention.head_count` is 1048576, expected at most 16384 heads of 64 values; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.head_count_kv", 3),
        "metadata key `llama.attention.head_count_kv` is 3, expected a divisor of the 4 query heads; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.key_length", 2048),
        "metadata key `llama.attention.key_length` is 2048, expected 1 to 1024; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.value_length", 32),
        "metadata key `llama.attention.value_length` is 32, expected 64, the length of keys; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.rope.dimension_count", 31),
        "metadata key `llama.rope.dimension_count` is 31, expected an even number; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.rope.dimension_count", 66),
        "metadata key `llama.rope.dimension_count` is 66, expected 1 to 64; the file is damaged or made for another program",
    );
    refused(
        &u32s("{}.attention.head_count", 3)
            .set("{}.attention.head_count_kv", Value::U32(1))
            .unset("{}.attention.key_length"),
        "metadata key `llama.attention.head_count` is 3, expected a divisor of the embedding length 256 with heads of at most 1024 values (there is no `llama.attention.key_length`); the file is damaged or made for another program",
    );
    refused(
        &samples::llama().set("{}.attention.head_count_kv", Value::U64s(vec![2, 2])),
        "metadata key `llama.attention.head_count_kv` should be an integer, but the file holds an array of unsigned 64-bit integers",
    );
    // One for each layer, all the same, is as good as one.
    let equal = samples::llama().set("{}.attention.head_count_kv", Value::U32s(vec![2, 2]));
    assert_eq!(graph(&equal), graph(&samples::llama()));
    refused(
        &samples::llama().set("{}.attention.head_count_kv", Value::U32s(vec![2, 1])),
        "a number of each layer's own is not supported yet (metadata key `llama.attention.head_count_kv` is an array of different numbers); models of this architecture work if all layers are alike",
    );
}

#[test]
fn floats_are_held_to_their_ranges() {
    let f32s = |key: &str, value: f32| samples::llama().set(key, Value::F32(value));
    refused(
        &f32s("{}.attention.layer_norm_rms_epsilon", 0.0),
        "metadata key `llama.attention.layer_norm_rms_epsilon` is 0, but a norm's epsilon is in [2^-60, 1]; the file is damaged or made for another program",
    );
    refused(
        &f32s("{}.attention.layer_norm_rms_epsilon", f32::NAN),
        "metadata key `llama.attention.layer_norm_rms_epsilon` is NaN, but a norm's epsilon is in [2^-60, 1]; the file is damaged or made for another program",
    );
    refused(
        &samples::llama().unset("{}.attention.layer_norm_rms_epsilon"),
        "the file has no metadata key `llama.attention.layer_norm_rms_epsilon` (a 32-bit float); it may be damaged or made for another program",
    );
    refused(
        &f32s("{}.rope.freq_base", -1.0),
        "metadata key `llama.rope.freq_base` is -1, expected 1.001 to 1000000000000.0; the file is damaged or made for another program",
    );
    refused(
        &f32s("{}.rope.scaling.factor", f32::INFINITY),
        "metadata key `llama.rope.scaling.factor` is inf, expected 0.0 to 1000000.0; the file is damaged or made for another program",
    );
    for (key, factor) in [("scaling.factor", 1e-30), ("scale_linear", 0.0624)] {
        refused(
            &f32s(&format!("{{}}.rope.{key}"), factor),
            &format!(
                "metadata key `llama.rope.{key}` is {}, expected 0 for none, or 0.0625 to 1000000.0; the file is damaged or made for another program",
                f64::from(factor)
            ),
        );
    }
    for factor in [0.0625, 1e6] {
        let limit = f32s("{}.rope.scaling.factor", factor);
        assert!(build(&limit.metadata, &limit.tensors).is_ok(), "{factor} is in range");
    }
    let smallest = f32s("{}.attention.layer_norm_rms_epsilon", f32::from_bits(0x2180_0000));
    assert!(build(&smallest.metadata, &smallest.tensors).is_ok(), "2^-60 is in range");
}

#[test]
fn what_is_not_supported_yet_is_named() {
    refused(
        &samples::qwen2().set("{}.expert_count", Value::U32(8)),
        "mixture of experts is not supported yet (metadata key `qwen2.expert_count` is 8); dense models of this architecture work",
    );
    let scaling = |kind: &str| samples::llama().set("{}.rope.scaling.type", text(kind));
    refused(
        &scaling("longrope"),
        "this RoPE scaling is not supported yet (metadata key `llama.rope.scaling.type` is `longrope`); `none`, `linear` and `yarn` work",
    );
    refused(
        &samples::llama_yarn().set("{}.rope.scaling.yarn_beta_fast", Value::F32(16.0)),
        "YaRN with this number is not supported yet (metadata key `llama.rope.scaling.yarn_beta_fast` is 16.0); 32.0 works",
    );
    let fixed = samples::llama_yarn().set("{}.rope.scaling.yarn_beta_fast", Value::F32(32.0));
    assert_eq!(graph(&fixed), graph(&samples::llama_yarn()));
    refused(
        &samples::llama_yarn().set("{}.rope.scaling.factor", Value::F32(0.5)),
        "metadata key `llama.rope.scaling.factor` is 0.5, expected 1 or more for YaRN; the file is damaged or made for another program",
    );
    assert_eq!(graph(&samples::llama().set("{}.expert_count", Value::U32(0))), graph(&samples::llama()));
}

#[test]
fn tensors_are_held_to_the_architecture() {
    refused(
        &samples::llama().without("blk.1.ffn_up.weight"),
        "the file has no tensor `blk.1.ffn_up.weight`, which a llama model needs (shape 512 x 256); download or convert the file again",
    );
    refused(
        &samples::llama().without("token_embd.weight"),
        "the file has no tensor `token_embd.weight`, which a llama model needs (shape 259 x 256); download or convert the file again",
    );
    let narrow = samples::llama().change("blk.0.attn_k.weight", |info| info.dims = vec![256, 64]);
    refused(
        &narrow,
        "tensor `blk.0.attn_k.weight` has the shape 64 x 256, but the metadata of this llama model says 128 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    let stack =
        samples::llama().change("blk.0.attn_k.weight", |info| info.dims = vec![256, u64::MAX, u64::MAX]);
    refused(
        &stack,
        "tensor `blk.0.attn_k.weight` has the shape 18446744073709551615 x 256, but the metadata of this llama model says 128 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    let unnamed = samples::llama().unset("tokenizer.ggml.tokens").without("token_embd.weight");
    refused(
        &unnamed,
        "metadata key `llama.vocab_size` is absent, expected 1 to 16777216, or `tokenizer.ggml.tokens` or `token_embd.weight` in its place; the file is damaged or made for another program",
    );
    let vocab = samples::llama().change("output.weight", |info| info.dims = vec![256, 300]);
    refused(
        &vocab,
        "tensor `output.weight` has the shape 300 x 256, but the metadata of this llama model says 259 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
    let grid = samples::llama().change("blk.0.ffn_down.weight", |info| info.ty = GgmlType::IQ2_XXS);
    refused(
        &grid,
        "tensor `blk.0.ffn_down.weight` is stored as IQ2_XXS, which is not supported here; use a file of the same model that has it as one of F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, TQ1_0, TQ2_0, MXFP4",
    );
    let norm = samples::llama().change("blk.0.ffn_norm.weight", |info| info.ty = GgmlType::Q8_0);
    refused(
        &norm,
        "tensor `blk.0.ffn_norm.weight` is stored as Q8_0, which is not supported here; use a file of the same model that has it as one of F32, F16, BF16",
    );
    let factors = samples::llama_rope_freqs().change("rope_freqs.weight", |info| info.ty = GgmlType::F16);
    refused(
        &factors,
        "tensor `rope_freqs.weight` is stored as F16, which is not supported here; use a file of the same model that has it as one of F32",
    );
    refused(
        &samples::qwen2().without("blk.0.attn_q.bias"),
        "the file has no tensor `blk.0.attn_q.bias`, which a qwen2 model needs (shape 1 x 256); download or convert the file again",
    );
    refused(
        &samples::gemma3().without("blk.5.post_ffw_norm.weight"),
        "the file has no tensor `blk.5.post_ffw_norm.weight`, which a gemma3 model needs (shape 1 x 256); download or convert the file again",
    );
}

#[test]
fn tensors_that_the_architecture_does_not_know_are_refused() {
    let norms = samples::llama().tensor("blk.0.attn_q_norm.weight", GgmlType::F32, &[64]).tensor(
        "blk.0.attn_k_norm.weight",
        GgmlType::F32,
        &[64],
    );
    refused(
        &norms,
        "the file holds 2 tensors that a llama model does not use, such as `blk.0.attn_k_norm.weight`, `blk.0.attn_q_norm.weight`; it is a variant that is not supported, and running it without them would give wrong answers",
    );
}

#[test]
fn float_types_and_vectors_of_one_row_are_accepted() {
    for ty in [GgmlType::F32, GgmlType::F16, GgmlType::BF16] {
        let sample = samples::llama()
            .change("blk.0.ffn_norm.weight", |info| (info.ty, info.dims) = (ty, vec![256, 1]))
            .change("blk.0.ffn_up.weight", |info| info.ty = ty);
        assert_eq!(graph(&sample), graph(&samples::llama()));
    }
}

#[test]
fn the_head_is_the_embedding_table_without_an_output_tensor() {
    let head = |sample: &Sample| {
        let node = graph(sample).nodes.pop().expect("a node");
        let tensor = node.op.weights().next().expect("a weight").tensor.clone();
        (node.op, tensor)
    };
    let (own, tied) = (head(&samples::llama()), head(&samples::llama().without("output.weight")));
    assert!(matches!((&own.0, &tied.0), (Op::Linear { head: true, .. }, Op::Linear { head: true, .. })));
    assert_eq!((own.1.as_str(), tied.1.as_str()), ("output.weight", "token_embd.weight"));
}

#[test]
fn biases_are_used_where_the_file_has_them() {
    let sample = samples::llama().tensor("blk.1.attn_output.bias", GgmlType::F32, &[256]);
    let used = graph(&sample).weights().any(|weight| weight.tensor == "blk.1.attn_output.bias");
    assert!(used);
    let wrong = samples::llama().tensor("blk.1.attn_output.bias", GgmlType::F32, &[255]);
    refused(
        &wrong,
        "tensor `blk.1.attn_output.bias` has the shape 1 x 255, but the metadata of this llama model says 1 x 256 (rows x columns); the file is damaged or was converted wrongly",
    );
}

#[test]
fn defaults_are_those_of_the_format() {
    let sample = samples::llama()
        .unset("{}.attention.head_count_kv")
        .change("blk.0.attn_k.weight", |info| info.dims = vec![256, 256])
        .change("blk.0.attn_v.weight", |info| info.dims = vec![256, 256])
        .change("blk.1.attn_k.weight", |info| info.dims = vec![256, 256])
        .change("blk.1.attn_v.weight", |info| info.dims = vec![256, 256])
        .unset("{}.attention.key_length")
        .unset("{}.attention.value_length")
        .unset("{}.rope.dimension_count")
        .unset("tokenizer.ggml.tokens");
    let graph = graph(&sample);
    assert_eq!((graph.kv_layers[0].heads, graph.kv_layers[0].head_len), (4, 64));
    assert_eq!((graph.rope_tables[0].rotary_len, graph.rope_tables[0].base), (64, 10_000.0));
    assert_eq!(graph.vocab_len, 259);
}

#[test]
fn rope_scaling_is_what_the_keys_say() {
    let rope = |sample: Sample| graph(&sample).rope_tables[0].clone();
    let set = |key: &str, value: f32| samples::llama().set(key, Value::F32(value));
    let linear = RopeScaling::Linear { factor: 4.0 };
    assert_eq!(rope(samples::llama()).scaling, RopeScaling::None);
    assert_eq!(rope(set("{}.rope.scaling.factor", 4.0)).scaling, linear, "linear is the default type");
    assert_eq!(rope(set("{}.rope.scale_linear", 4.0)).scaling, linear, "an old key");
    assert_eq!(rope(set("{}.rope.scaling.factor", 0.0)).scaling, RopeScaling::None, "0 is no factor");
    let none = set("{}.rope.scaling.factor", 4.0).set("{}.rope.scaling.type", text("none"));
    assert_eq!(rope(none).scaling, RopeScaling::None);
    let yarn = RopeScaling::Yarn { factor: 4.0, original_context_len: 128 };
    assert_eq!(rope(samples::llama_yarn()).scaling, yarn);
    let trained = samples::llama_yarn().unset("{}.rope.scaling.original_context_length");
    let yarn = RopeScaling::Yarn { factor: 4.0, original_context_len: 512 };
    assert_eq!(rope(trained).scaling, yarn, "the trained context is the default");
    assert_eq!(rope(set("{}.rope.scaling.attn_factor", 1.25)).attention_factor, 1.25);
    assert_eq!(rope(samples::llama_rope_freqs()).factors.expect("factors").tensor, "rope_freqs.weight");
    assert_eq!(rope(samples::llama()).style, RopeStyle::Interleaved);
    assert_eq!(rope(samples::qwen2()).style, RopeStyle::HalfSplit);
    assert_eq!(rope(samples::qwen2()).base, 1e6);
}

/// Window and position table of each layer, kappa of the first.
fn attentions(graph: &Graph) -> Vec<(Option<u32>, u32)> {
    let mut layers = Vec::new();
    for node in &graph.nodes {
        match node.op {
            Op::Rope { table, .. } => layers.push((None, table.0)),
            // q's and k's tables stand before.
            Op::Attention { window, .. } => {
                let table = layers.pop().expect("a table").1;
                layers.pop();
                layers.push((window, table));
            }
            _ => {}
        }
    }
    layers
}

#[test]
fn gemma_alternates_windows() {
    let (local, global) = ((Some(16), 1), (None, 0));
    let sample = samples::gemma3();
    let specs = graph(&sample).rope_tables;
    assert_eq!(attentions(&graph(&sample)), [local, local, local, local, local, global]);
    let base = |spec: &RopeSpec| (spec.base, spec.scaling);
    assert_eq!(
        specs.iter().map(base).collect::<Vec<_>>(),
        [(1e6, RopeScaling::None), (1e4, RopeScaling::None)]
    );

    let pattern = "{}.attention.sliding_window_pattern";
    let three = sample.clone().set(pattern, Value::U32(3));
    assert_eq!(attentions(&graph(&three)), [local, local, global, local, local, global]);
    let flags = vec![true, false, false, true, true, true];
    let flags = sample.clone().set(pattern, Value::Bools(flags));
    assert_eq!(attentions(&graph(&flags)), [local, global, global, local, local, local]);
    let none = sample.clone().unset("{}.attention.sliding_window");
    assert_eq!(attentions(&graph(&none)), [global; 6]);
    assert_eq!(graph(&none).rope_tables.len(), 1);
    refused(
        &sample.set(pattern, Value::Bools(vec![true; 5])),
        "metadata key `gemma3.attention.sliding_window_pattern` is an array of 5, expected one entry for each of the 6 layers; the file is damaged or made for another program",
    );
}

#[test]
fn gemma_2_alternates_and_caps() {
    let (local, global) = ((Some(16), 0), (None, 0));
    let sample = samples::gemma2();
    let built = graph(&sample);
    assert_eq!(attentions(&built), [local, global, local, global]);
    assert_eq!(built.rope_tables.len(), 1);
    let caps = |graph: &Graph| {
        let of_scores = graph.nodes.iter().find_map(|node| match node.op {
            Op::Attention { kappa, soft_cap, .. } => Some((kappa.to_bits(), soft_cap)),
            _ => None,
        });
        let of_logits = match graph.nodes.last().expect("a node").op {
            Op::SoftCap { cap } => Some(cap),
            _ => None,
        };
        (of_scores, of_logits)
    };
    // 1/sqrt(64), and times log2(e) where there is no cap.
    assert_eq!(caps(&built), (Some((0x3E00_0000, Some(50.0))), Some(30.0)));
    let zero = |key: &str| Value::F32(if key.starts_with("attn") { 0.0 } else { 7.5 });
    let set = |sample: Sample, key: &str| sample.set(&format!("{{}}.{key}"), zero(key));
    let other = set(set(sample.clone(), "attn_logit_softcapping"), "final_logit_softcapping");
    assert_eq!(caps(&graph(&other)), (Some((0x3E38_AA3B, None)), Some(7.5)));
    let window = |sample: &Sample| attentions(&graph(sample))[0].0;
    assert_eq!(window(&sample.clone().unset("{}.attention.sliding_window")), Some(4096), "the default");
    let base = graph(&sample.set("{}.rope.freq_base_swa", Value::F32(2e4))).rope_tables;
    assert_eq!(base.iter().map(|spec| spec.base).collect::<Vec<_>>(), [1e4, 2e4]);
}

#[test]
fn gemma_stretches_global_layers_only() {
    let sample = samples::gemma3()
        .set("{}.rope.scaling.type", text("linear"))
        .set("{}.rope.scaling.factor", Value::F32(8.0))
        .set("{}.rope.freq_base_swa", Value::F32(2e4));
    let specs = graph(&sample).rope_tables;
    assert_eq!((specs[0].base, specs[0].scaling), (1e6, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!((specs[1].base, specs[1].scaling), (2e4, RopeScaling::None));
}

#[test]
fn gemma_scales_embeddings_and_caps_logits() {
    let scale = |graph: &Graph| match graph.nodes[1].op {
        Op::Embed { scale, .. } => scale,
        _ => None,
    };
    assert_eq!(scale(&graph(&samples::gemma3())), Some(16.0));
    let cap = |value: f32| samples::gemma3().set("{}.final_logit_softcapping", Value::F32(value));
    assert!(matches!(graph(&cap(30.0)).nodes.last().expect("a node").op, Op::SoftCap { cap: 30.0 }));
    assert_eq!(graph(&cap(0.0)), graph(&samples::gemma3()));
    refused(
        &cap(-1.0),
        "metadata key `gemma3.final_logit_softcapping` is -1, but a soft cap is in [2^-10, 2^20]; the file is damaged or made for another program",
    );
}

#[test]
fn score_scales() {
    let kappa = |sample: &Sample| {
        let find = |node: &crate::graph::Node| match node.op {
            Op::Attention { kappa, .. } => Some(kappa.to_bits()),
            _ => None,
        };
        graph(sample).nodes.iter().find_map(find).expect("attention")
    };
    assert_eq!(kappa(&samples::llama()), 0x3E38_AA3B);
    assert_eq!(kappa(&samples::qwen3()), 0x3E02_93EE);
}
