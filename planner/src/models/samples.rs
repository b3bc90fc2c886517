//! Small models of each architecture for tests: metadata and tensor tables without data.

use std::collections::BTreeMap;

use unisonic_core::format::{GgmlType, Metadata, Strings, TensorInfo, Value};
use unisonic_core::plan::{MemoryWeights, Plan};

use crate::PlanOptions;

/// A model to plan.
#[derive(Clone)]
pub struct Sample {
    pub name: &'static str,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
}

pub const EMBEDDING: u64 = 256;
pub const FEED_FORWARD: u64 = 512;
pub const HEADS: u64 = 4;
pub const KV_HEADS: u64 = 2;
pub const VOCAB: u64 = 259;

impl Sample {
    /// Replaces or adds a metadata value; `{}` in the key is the architecture.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        let key = self.key(key);
        self = self.unset(&key);
        assert!(self.metadata.insert(&key, value));
        self
    }

    /// Removes a metadata key.
    pub fn unset(mut self, key: &str) -> Self {
        let key = self.key(key);
        let mut metadata = Metadata::default();
        for (k, v) in self.metadata.iter().filter(|(k, _)| *k != key) {
            assert!(metadata.insert(k, v.clone()));
        }
        self.metadata = metadata;
        self
    }

    /// The plan, with all passes.
    pub fn plan(&self) -> Plan {
        self.plan_without(&[])
    }

    /// The plan without some passes.
    pub fn plan_without(&self, off: &[String]) -> Plan {
        let options = PlanOptions { passes_off: off.to_vec(), ..PlanOptions::default() };
        let factors = [2.0_f32; 32].iter().flat_map(|value| value.to_le_bytes()).collect();
        let factors = MemoryWeights(BTreeMap::from([("rope_freqs.weight".to_owned(), factors)]));
        crate::plan(&self.metadata, &self.tensors, &factors, &options).expect(self.name)
    }

    fn key(&self, key: &str) -> String {
        key.replace("{}", self.metadata.string("general.architecture").unwrap().unwrap())
    }

    /// Adds a tensor; dimensions in file order.
    pub fn tensor(mut self, name: &str, ty: GgmlType, dims: &[u64]) -> Self {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push(TensorInfo { name, ty, dims, shard: 0, offset_bytes: 0, len_bytes: 0 });
        self
    }

    /// Changes a tensor.
    pub fn change(mut self, name: &str, change: impl FnOnce(&mut TensorInfo)) -> Self {
        change(self.tensors.iter_mut().find(|t| t.name == name).expect("a tensor of that name"));
        self
    }

    /// Removes a tensor.
    pub fn without(mut self, name: &str) -> Self {
        let before = self.tensors.len();
        self.tensors.retain(|t| t.name != name);
        assert_eq!(self.tensors.len() + 1, before, "{name}");
        self
    }

    fn named(self, name: &'static str) -> Self {
        Sample { name, ..self }
    }
}

fn base(architecture: &'static str, layers: u32, head_len: u64) -> Sample {
    let sample = Sample { name: architecture, metadata: Metadata::default(), tensors: Vec::new() };
    let mut metadata = Metadata::default();
    assert!(metadata.insert("general.architecture", Value::String(architecture.to_owned())));
    let mut sample = Sample { metadata, ..sample };
    for (key, value) in [
        ("context_length", 512),
        ("embedding_length", EMBEDDING as u32),
        ("block_count", layers),
        ("feed_forward_length", FEED_FORWARD as u32),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", KV_HEADS as u32),
        ("attention.key_length", head_len as u32),
        ("attention.value_length", head_len as u32),
        ("rope.dimension_count", head_len as u32),
    ] {
        sample = sample.set(&format!("{{}}.{key}"), Value::U32(value));
    }
    sample = sample
        .set("{}.attention.layer_norm_rms_epsilon", Value::F32(1e-5))
        .set("tokenizer.ggml.tokens", Value::Strings((0..VOCAB).map(|i| i.to_string()).collect::<Strings>()))
        .tensor("token_embd.weight", GgmlType::F16, &[EMBEDDING, VOCAB])
        .tensor("output_norm.weight", GgmlType::F32, &[EMBEDDING]);
    let (q, kv) = (HEADS * head_len, KV_HEADS * head_len);
    for layer in 0..layers {
        for (part, ty, dims) in [
            ("attn_norm", GgmlType::F32, vec![EMBEDDING]),
            ("attn_q", GgmlType::Q4_K, vec![EMBEDDING, q]),
            ("attn_k", GgmlType::Q4_K, vec![EMBEDDING, kv]),
            ("attn_v", GgmlType::Q6_K, vec![EMBEDDING, kv]),
            ("attn_output", GgmlType::Q4_K, vec![q, EMBEDDING]),
            ("ffn_norm", GgmlType::F32, vec![EMBEDDING]),
            ("ffn_gate", GgmlType::Q4_K, vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_up", GgmlType::Q4_K, vec![EMBEDDING, FEED_FORWARD]),
            ("ffn_down", GgmlType::Q6_K, vec![FEED_FORWARD, EMBEDDING]),
        ] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.weight"), ty, &dims);
        }
    }
    sample
}

fn layers(sample: &Sample) -> u32 {
    let key = sample.key("{}.block_count");
    sample.metadata.u32(&key).unwrap().unwrap()
}

fn head_norms(mut sample: Sample, head_len: u64) -> Sample {
    for layer in 0..layers(&sample) {
        for part in ["attn_q_norm", "attn_k_norm"] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.weight"), GgmlType::F32, &[head_len]);
        }
    }
    sample
}

pub fn llama() -> Sample {
    base("llama", 2, 64).tensor("output.weight", GgmlType::Q6_K, &[EMBEDDING, VOCAB])
}

pub fn llama_rope_freqs() -> Sample {
    llama().named("llama-ropefreqs").tensor("rope_freqs.weight", GgmlType::F32, &[32])
}

pub fn llama_yarn() -> Sample {
    llama()
        .named("llama-yarn")
        .set("{}.rope.scaling.type", Value::String("yarn".to_owned()))
        .set("{}.rope.scaling.factor", Value::F32(4.0))
        .set("{}.rope.scaling.original_context_length", Value::U32(128))
}

pub fn qwen2() -> Sample {
    with_biases("qwen2")
}

fn with_biases(architecture: &'static str) -> Sample {
    let mut sample = base(architecture, 2, 64);
    for layer in 0..2 {
        for (part, len) in [("attn_q", HEADS * 64), ("attn_k", KV_HEADS * 64), ("attn_v", KV_HEADS * 64)] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.bias"), GgmlType::F32, &[len]);
        }
    }
    sample.set("{}.rope.freq_base", Value::F32(1e6)).unset("{}.rope.dimension_count")
}

pub fn qwen3() -> Sample {
    head_norms(base("qwen3", 2, 128), 128)
}

fn post_norms(mut sample: Sample) -> Sample {
    for layer in 0..layers(&sample) {
        for part in ["post_attention_norm", "post_ffw_norm"] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.weight"), GgmlType::F32, &[EMBEDDING]);
        }
    }
    sample.set("{}.attention.sliding_window", Value::U32(16))
}

pub fn gemma2() -> Sample {
    post_norms(base("gemma2", 4, 64))
}

pub fn gemma3() -> Sample {
    post_norms(head_norms(base("gemma3", 6, 64), 64)).set("{}.rope.freq_base", Value::F32(1e6))
}

/// Local layers with heads of 32, of 3 layers the last global; the last 3 layers read caches of the first, and one of them
/// has a key and a value nevertheless.
pub fn gemma4() -> Sample {
    const LAYERS: u64 = 6;
    const LOCAL: u64 = 32;
    const PER_LAYER: u64 = 16;
    let mut sample = post_norms(head_norms(base("gemma4", LAYERS as u32, 64), 64));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        if layer % 3 < 2 {
            sample = sample
                .change(&name("attn_q"), |info| info.dims[1] = HEADS * LOCAL)
                .change(&name("attn_k"), |info| info.dims[1] = KV_HEADS * LOCAL)
                .change(&name("attn_v"), |info| info.dims[1] = KV_HEADS * LOCAL)
                .change(&name("attn_output"), |info| {
                    info.dims[0] = HEADS * LOCAL;
                    info.ty = GgmlType::F16;
                })
                .change(&name("attn_q_norm"), |info| info.dims[0] = LOCAL)
                .change(&name("attn_k_norm"), |info| info.dims[0] = LOCAL);
        }
        if layer > 3 {
            for part in ["attn_k", "attn_v", "attn_k_norm"] {
                sample = sample.without(&name(part));
            }
        }
        sample = sample
            .tensor(&name("inp_gate"), GgmlType::Q4_K, &[EMBEDDING, PER_LAYER])
            .tensor(&name("proj"), GgmlType::F16, &[PER_LAYER, EMBEDDING])
            .tensor(&name("post_norm"), GgmlType::F32, &[EMBEDDING])
            .tensor(&name("layer_output_scale"), GgmlType::F32, &[1]);
    }
    let local = (0..LAYERS).map(|layer| layer % 3 < 2).collect();
    sample
        .set("{}.attention.sliding_window_pattern", Value::Bools(local))
        .set("{}.attention.shared_kv_layers", Value::U32(3))
        .set("{}.attention.key_length_swa", Value::U32(LOCAL as u32))
        .set("{}.attention.value_length_swa", Value::U32(LOCAL as u32))
        .set("{}.rope.dimension_count_swa", Value::U32(LOCAL as u32))
        .set("{}.rope.freq_base", Value::F32(1e6))
        .set("{}.embedding_length_per_layer_input", Value::U32(PER_LAYER as u32))
        .set("{}.final_logit_softcapping", Value::F32(30.0))
        .tensor("rope_freqs.weight", GgmlType::F32, &[32])
        .tensor("per_layer_token_embd.weight", GgmlType::F16, &[PER_LAYER * LAYERS, VOCAB])
        .tensor("per_layer_model_proj.weight", GgmlType::F16, &[EMBEDDING, PER_LAYER * LAYERS])
        .tensor("per_layer_proj_norm.weight", GgmlType::F32, &[PER_LAYER])
}

/// q, k and v in one tensor.
fn fused_qkv(mut sample: Sample, rows: u64) -> Sample {
    for layer in 0..layers(&sample) {
        for part in ["attn_q", "attn_k", "attn_v"] {
            sample = sample.without(&format!("blk.{layer}.{part}.weight"));
        }
        sample = sample.tensor(&format!("blk.{layer}.attn_qkv.weight"), GgmlType::Q5_K, &[EMBEDDING, rows]);
    }
    sample
}

pub fn phi3() -> Sample {
    let mut sample = fused_qkv(base("phi3", 2, 64), (HEADS + 2 * KV_HEADS) * 64);
    for layer in 0..2 {
        sample = sample.without(&format!("blk.{layer}.ffn_gate.weight"));
        let name = format!("blk.{layer}.ffn_up.weight");
        sample = sample.change(&name, |info| info.dims = vec![EMBEDDING, 2 * FEED_FORWARD]);
    }
    // Not used, as in llama.cpp.
    sample.set("{}.attention.sliding_window", Value::U32(16))
}

pub fn gpt2() -> Sample {
    let mut sample = fused_qkv(base("gpt2", 2, 64), 3 * HEADS * 64)
        .unset("{}.attention.layer_norm_rms_epsilon")
        .set("{}.attention.layer_norm_epsilon", Value::F32(1e-5))
        .unset("{}.rope.dimension_count")
        .set("{}.attention.head_count_kv", Value::U32(HEADS as u32))
        .tensor("position_embd.weight", GgmlType::F16, &[EMBEDDING, 512])
        .tensor("output_norm.bias", GgmlType::F32, &[EMBEDDING]);
    for layer in 0..2 {
        sample = sample.without(&format!("blk.{layer}.ffn_gate.weight"));
        for (part, len) in [
            ("attn_norm", EMBEDDING),
            ("attn_qkv", 3 * HEADS * 64),
            ("attn_output", EMBEDDING),
            ("ffn_norm", EMBEDDING),
            ("ffn_up", FEED_FORWARD),
            ("ffn_down", EMBEDDING),
        ] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.bias"), GgmlType::F32, &[len]);
        }
    }
    sample
}

/// Of `count` experts each row takes `used`, of `len` values.
fn experts(mut sample: Sample, count: u64, used: u64, len: u64) -> Sample {
    for layer in 0..layers(&sample) {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        for part in ["ffn_gate", "ffn_up", "ffn_down"] {
            sample = sample.without(&name(part));
        }
        sample = sample
            .tensor(&name("ffn_gate_inp"), GgmlType::F32, &[EMBEDDING, count])
            .tensor(&name("ffn_gate_exps"), GgmlType::Q4_K, &[EMBEDDING, len, count])
            .tensor(&name("ffn_up_exps"), GgmlType::Q4_K, &[EMBEDDING, len, count])
            .tensor(&name("ffn_down_exps"), GgmlType::Q6_K, &[len, EMBEDDING, count]);
    }
    sample
        .set("{}.expert_count", Value::U32(count as u32))
        .set("{}.expert_used_count", Value::U32(used as u32))
        .set("{}.expert_feed_forward_length", Value::U32(len as u32))
}

pub fn llama_moe() -> Sample {
    experts(llama(), 4, 2, FEED_FORWARD).named("llama-moe").unset("{}.expert_feed_forward_length")
}

pub fn qwen2moe() -> Sample {
    let mut sample = experts(with_biases("qwen2moe"), 8, 3, 256);
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        sample = sample
            .tensor(&name("ffn_gate_inp_shexp"), GgmlType::F32, &[EMBEDDING])
            .tensor(&name("ffn_gate_shexp"), GgmlType::Q4_K, &[EMBEDDING, FEED_FORWARD])
            .tensor(&name("ffn_up_shexp"), GgmlType::Q4_K, &[EMBEDDING, FEED_FORWARD])
            .tensor(&name("ffn_down_shexp"), GgmlType::Q6_K, &[FEED_FORWARD, EMBEDDING]);
    }
    sample
}

pub fn qwen3moe() -> Sample {
    experts(head_norms(base("qwen3moe", 2, 128), 128), 8, 2, 256)
}

/// One of each kind.
pub fn all() -> Vec<Sample> {
    vec![
        llama(),
        llama_rope_freqs(),
        llama_yarn(),
        llama_moe(),
        qwen2(),
        qwen2moe(),
        qwen3(),
        qwen3moe(),
        gemma2(),
        gemma3(),
        gemma4(),
        phi3(),
        gpt2(),
    ]
}
