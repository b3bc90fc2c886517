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
    let mut sample = base("qwen2", 2, 64);
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

pub fn gemma3() -> Sample {
    let mut sample = head_norms(base("gemma3", 6, 64), 64);
    for layer in 0..6 {
        for part in ["post_attention_norm", "post_ffw_norm"] {
            sample = sample.tensor(&format!("blk.{layer}.{part}.weight"), GgmlType::F32, &[EMBEDDING]);
        }
    }
    sample.set("{}.attention.sliding_window", Value::U32(16)).set("{}.rope.freq_base", Value::F32(1e6))
}

/// One of each kind.
pub fn all() -> Vec<Sample> {
    vec![llama(), llama_rope_freqs(), llama_yarn(), qwen2(), qwen3(), gemma3()]
}
