//! Tiny models that are made from nothing: the same everywhere, one for each block format and one for each architecture.

use std::collections::BTreeMap;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::format::{GgmlType, Metadata, Strings, TensorInfo, Value};
use unisonic_core::plan::{MemoryWeights, Plan};
use unisonic_planner::kernels::samples::data::{blocks, random};
use unisonic_planner::{PlanError, PlanOptions, plan};

/// Tokens of the vocabulary.
pub const VOCAB_LEN: u32 = 64;
const EMBEDDING_LEN: u64 = 256;
const FEED_FORWARD_LEN: u64 = 512;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD_LEN: u64 = 64;
const LAYERS: u32 = 2;

/// What tells tiny models apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiny {
    /// Name of the architecture.
    pub architecture: &'static str,
    /// Of all matrices but the embedding.
    pub format: BlockFormat,
}

/// All of them: each format, then each other architecture.
pub fn all() -> Vec<Tiny> {
    let of_formats = BlockFormat::ALL.map(|format| Tiny { architecture: "llama", format });
    let others = [("qwen2", BlockFormat::Q4_K), ("qwen3", BlockFormat::Q6_K), ("gemma3", BlockFormat::Q8_0)];
    let others = others.map(|(architecture, format)| Tiny { architecture, format });
    of_formats.into_iter().chain(others).collect()
}

impl Tiny {
    /// As in reports.
    pub fn name(self) -> String {
        format!("{}-{}", self.architecture, self.format.name())
    }

    /// Its plan, and its weights.
    pub fn made(self) -> Result<(Plan, MemoryWeights), PlanError> {
        let tensors = self.tensors();
        let bytes =
            tensors.iter().zip(1..).map(|(tensor, seed)| (tensor.name.clone(), self.bytes(tensor, seed)));
        let weights = MemoryWeights(bytes.collect::<BTreeMap<_, _>>());
        let plan = plan(&self.metadata(), &tensors, &weights, &PlanOptions::default())?;
        Ok((plan, weights))
    }

    fn metadata(self) -> Metadata {
        let mut metadata = Metadata::default();
        let name = self.architecture;
        let numbers = [
            ("context_length", 256),
            ("embedding_length", EMBEDDING_LEN as u32),
            ("block_count", LAYERS),
            ("feed_forward_length", FEED_FORWARD_LEN as u32),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", KV_HEADS as u32),
            ("attention.key_length", HEAD_LEN as u32),
            ("attention.value_length", HEAD_LEN as u32),
        ];
        let mut set = |key: String, value: Value| {
            let is_new = metadata.insert(&key, value);
            debug_assert!(is_new, "{key}");
        };
        set("general.architecture".to_owned(), Value::String(name.to_owned()));
        for (key, number) in numbers {
            set(format!("{name}.{key}"), Value::U32(number));
        }
        set(format!("{name}.attention.layer_norm_rms_epsilon"), Value::F32(1e-5));
        let tokens = (0..VOCAB_LEN).map(|token| token.to_string()).collect::<Strings>();
        set("tokenizer.ggml.tokens".to_owned(), Value::Strings(tokens));
        match name {
            "llama" => set(format!("{name}.rope.dimension_count"), Value::U32(HEAD_LEN as u32)),
            "gemma3" => set(format!("{name}.attention.sliding_window"), Value::U32(16)),
            _ => {}
        }
        metadata
    }

    fn tensors(self) -> Vec<TensorInfo> {
        let tensor = |name: String, ty: GgmlType, dims: &[u64]| TensorInfo {
            name,
            ty,
            dims: dims.to_vec(),
            shard: 0,
            offset_bytes: 0,
            len_bytes: 0,
        };
        let mut all = vec![
            tensor("token_embd.weight".to_owned(), GgmlType::F16, &[EMBEDDING_LEN, VOCAB_LEN.into()]),
            tensor("output_norm.weight".to_owned(), GgmlType::F32, &[EMBEDDING_LEN]),
        ];
        let (q_len, kv_len) = (HEADS * HEAD_LEN, KV_HEADS * HEAD_LEN);
        for layer in 0..LAYERS {
            let mut add =
                |part: &str, ty, dims: &[u64]| all.push(tensor(format!("blk.{layer}.{part}"), ty, dims));
            let block = self.format.ggml_type();
            add("attn_norm.weight", GgmlType::F32, &[EMBEDDING_LEN]);
            add("attn_q.weight", block, &[EMBEDDING_LEN, q_len]);
            add("attn_k.weight", block, &[EMBEDDING_LEN, kv_len]);
            add("attn_v.weight", block, &[EMBEDDING_LEN, kv_len]);
            add("attn_output.weight", block, &[q_len, EMBEDDING_LEN]);
            add("ffn_norm.weight", GgmlType::F32, &[EMBEDDING_LEN]);
            add("ffn_gate.weight", block, &[EMBEDDING_LEN, FEED_FORWARD_LEN]);
            add("ffn_up.weight", block, &[EMBEDDING_LEN, FEED_FORWARD_LEN]);
            add("ffn_down.weight", block, &[FEED_FORWARD_LEN, EMBEDDING_LEN]);
            if self.architecture == "qwen2" {
                add("attn_q.bias", GgmlType::F32, &[q_len]);
                add("attn_k.bias", GgmlType::F32, &[kv_len]);
                add("attn_v.bias", GgmlType::F32, &[kv_len]);
            }
            if matches!(self.architecture, "qwen3" | "gemma3") {
                add("attn_q_norm.weight", GgmlType::F32, &[HEAD_LEN]);
                add("attn_k_norm.weight", GgmlType::F32, &[HEAD_LEN]);
            }
            if self.architecture == "gemma3" {
                add("post_attention_norm.weight", GgmlType::F32, &[EMBEDDING_LEN]);
                add("post_ffw_norm.weight", GgmlType::F32, &[EMBEDDING_LEN]);
            }
        }
        all
    }

    /// Random weights that keep activations around 1.
    fn bytes(self, tensor: &TensorInfo, seed: u64) -> Vec<u8> {
        let count: u64 = tensor.dims.iter().product();
        let mut next = random(seed);
        match tensor.ty {
            // From 2^-5 to 2^-1, of both signs.
            GgmlType::F16 => {
                (0..count).flat_map(|_| (next() as u16 & 0x8FFF | 0x2800).to_le_bytes()).collect()
            }
            GgmlType::F32 => {
                (0..count).flat_map(|_| (0.5 + (next() % 256) as f32 / 256.0).to_le_bytes()).collect()
            }
            _ => {
                let mut bytes = blocks(self.format, count as usize / self.format.elems(), seed);
                let (scales, exponent) = scales(self.format);
                for block in bytes.chunks_exact_mut(self.format.len_bytes()) {
                    if self.format == BlockFormat::MXFP4 {
                        block[0] = 118 + (next() % 4) as u8;
                    }
                    for &at in scales {
                        let half = next() as u16 & 0x07FF | exponent << 10;
                        block[at..at + 2].copy_from_slice(&half.to_le_bytes());
                    }
                }
                bytes
            }
        }
    }
}

/// Where the halves of a block lie, and an exponent for weights of about 2^-4.
fn scales(format: BlockFormat) -> (&'static [usize], u16) {
    match format {
        BlockFormat::Q4_0 => (&[0], 8),
        BlockFormat::Q4_1 => (&[0, 2], 7),
        BlockFormat::Q5_0 => (&[0], 7),
        BlockFormat::Q5_1 => (&[0, 2], 6),
        BlockFormat::Q8_0 | BlockFormat::IQ4_NL => (&[0], 4),
        BlockFormat::Q2_K => (&[80, 82], 6),
        BlockFormat::Q3_K => (&[108], 4),
        BlockFormat::Q4_K | BlockFormat::Q5_K => (&[0, 2], 2),
        BlockFormat::Q6_K => (&[208], 0),
        BlockFormat::IQ4_XS => (&[0], 0),
        BlockFormat::MXFP4 => (&[], 0),
        BlockFormat::TQ1_0 => (&[52], 11),
        BlockFormat::TQ2_0 => (&[64], 11),
    }
}
