//! A model file as far as it goes: header, plan, tokenizer, chat template. An answer or an error, never a panic.
//!
//! An input that begins with `GGUF` is a file, once as it is and once with zeros behind it for tensor data. Any other
//! input is a [`Draft`]: a small model and changes to its metadata and tensor table, as bytes that change at random
//! rarely get past a header.

use std::io::Read;

use unisonic_core::format::{GgmlType, GgufHeader, Metadata, Strings, TensorInfo, Value};
use unisonic_core::plan::{ReadError, WeightSource};
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::tokenizer::{ControlTokens, Specials, Tokenizer};
use unisonic_planner::passes::PASSES;
use unisonic_planner::{PlanOptions, plan};

use super::vocabularies;

/// Zeros behind a file, so that small tensors are inside of it.
const DATA_LEN_BYTES: u64 = 1 << 20;
const TENSOR_LEN_MAX_BYTES: u64 = 1 << 20;
const TEXT: &str = "Hello the <|im_end|>\n\n  12345 你好🙂 <s> aaaa";

pub fn check(bytes: &[u8]) {
    if !bytes.starts_with(b"GGUF") {
        let mut rest = bytes.iter().copied();
        let draft = Draft::new(&mut rest);
        let off = rest.next_back().unwrap_or_default();
        return check_model(&draft.metadata(), &draft.tensors, bytes, off);
    }
    let len = bytes.len() as u64;
    let padded = || bytes.chain(std::io::repeat(0).take(DATA_LEN_BYTES));
    let headers = [GgufHeader::read(bytes, len), GgufHeader::read(padded(), len + DATA_LEN_BYTES)];
    for (header, len) in headers.into_iter().zip([len, len + DATA_LEN_BYTES]) {
        let Ok(header) = header else { continue };
        assert!(header.len_bytes <= len && header.data_end_bytes() <= len);
        assert!(header.tensors.iter().all(|t| t.offset_bytes >= header.len_bytes));
        check_model(&header.metadata, &header.tensors, bytes, 0);
    }
}

fn check_model(metadata: &Metadata, tensors: &[TensorInfo], data: &[u8], passes_off: u8) {
    let off = PASSES.iter().filter(|pass| !pass.required).enumerate();
    let off = off.filter(|(bit, _)| passes_off >> bit & 1 == 1).map(|(_, pass)| pass.name.to_owned());
    let options = PlanOptions { passes_off: off.collect(), ..PlanOptions::default() };
    let weights = Data { tensors, bytes: data };
    match (plan(metadata, tensors, &weights, &options), plan(metadata, tensors, &weights, &options)) {
        (Ok(first), Ok(second)) => {
            // As text, since NaN is not NaN.
            assert_eq!(first.to_string(), second.to_string(), "the same file gives the same plan");
            assert!(first.to_string().len() > first.steps.len());
        }
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        _ => panic!("the same file gives the same plan"),
    }

    let Ok(tokenizer) = Tokenizer::from_metadata(metadata) else { return };
    for specials in [Specials::Parse, Specials::Literal] {
        if let Ok(ids) = tokenizer.encode_prompt(TEXT, specials) {
            assert!(ids.iter().all(|&id| id < tokenizer.vocab_len()));
            tokenizer.decode(&ids, ControlTokens::Show);
        }
    }
    assert!(tokenizer.stops().iter().all(|&id| tokenizer.is_stop(id) && id < tokenizer.vocab_len()));
    let Ok(template) = ChatTemplate::from_metadata(metadata, None) else { return };
    let messages = [Message::new("user", TEXT)];
    if let Ok(rendered) = template.render(&tokenizer, &messages, &ChatOptions::default()) {
        let _ = encode_chat(&tokenizer, &rendered);
    }
}

/// Tensor data: the input over and over.
struct Data<'a> {
    tensors: &'a [TensorInfo],
    bytes: &'a [u8],
}

impl WeightSource for Data<'_> {
    fn len_bytes(&self, tensor: &str) -> Result<u64, ReadError> {
        let refuse = |reason: &str| ReadError { tensor: tensor.to_owned(), reason: reason.to_owned() };
        let info = self.tensors.iter().find(|t| t.name == tensor).ok_or_else(|| refuse("absent"))?;
        let elems = info.dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        let len = elems.and_then(|n| (n / info.ty.block_elems()).checked_mul(info.ty.block_len_bytes()));
        len.filter(|&len| len <= TENSOR_LEN_MAX_BYTES).ok_or_else(|| refuse("too large for this test"))
    }

    fn read_at(&self, _: &str, offset_bytes: u64, to: &mut [u8]) -> Result<(), ReadError> {
        let start = (offset_bytes % self.bytes.len().max(1) as u64) as usize;
        to.iter_mut().zip(self.bytes.iter().cycle().skip(start)).for_each(|(to, &byte)| *to = byte);
        Ok(())
    }
}

/// A small model and changes to it.
struct Draft {
    entries: Vec<(String, Value)>,
    tensors: Vec<TensorInfo>,
}

const ARCHITECTURES: [&str; 9] =
    ["llama", "qwen2", "qwen3", "gemma3", "gemma2", "phi3", "gpt2", "qwen2moe", "qwen3moe"];

/// `ARCHITECTURE.` keys.
const KEYS: [&str; 31] = [
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_log_multiplier",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "final_logit_softcapping",
    "expert_count",
    "vocab_size",
    "attention.scale",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "attention.layer_norm_epsilon",
    "attn_logit_softcapping",
];

/// Keys as they are.
const OTHER_KEYS: [&str; 18] = [
    "general.architecture",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.fim_pre_token_id",
    "tokenizer.ggml.fim_sep_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.chat_template",
];

/// More `ARCHITECTURE.` keys; at the end, so that inputs mean what they did before these were there.
const LATER_KEYS: [&str; 5] = [
    "attention.shared_kv_layers",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count_swa",
    "embedding_length_per_layer_input",
];

/// First byte of the inputs of Gemma 4: more than all combinations of an architecture and a vocabulary.
const GEMMA4: u8 = 243;

/// Strings that some key understands.
const WORDS: [&str; 20] = [
    "",
    "llama",
    "qwen2",
    "qwen3",
    "gemma3",
    "gpt2",
    "gpt-2",
    "llama-bpe",
    "smollm",
    "none",
    "linear",
    "yarn",
    "{{ messages[0].content }}",
    "a b",
    "a",
    " ",
    "▁",
    "Ġ",
    "<|im_end|>",
    "<0x41>",
];

/// Parts of tensor names.
const TENSORS: [&str; 10] = [
    "token_embd.weight",
    "output_norm.weight",
    "output.weight",
    "rope_freqs.weight",
    "blk.0.attn_q.bias",
    "blk.0.attn_q_norm.weight",
    "blk.1.attn_norm.weight",
    "blk.0.post_ffw_norm.weight",
    "blk.0.ffn_gate.weight",
    "blk.1023.attn_norm.weight",
];

const EMBEDDING: u64 = 64;
const FEED_FORWARD: u64 = 96;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = 32;

type Bytes<'b> = std::iter::Copied<std::slice::Iter<'b, u8>>;

impl Draft {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let kind = bytes.next().unwrap_or_default();
        let architecture = match kind {
            GEMMA4.. => "gemma4",
            _ => ARCHITECTURES[usize::from(kind) % ARCHITECTURES.len()],
        };
        let mut draft = Self { entries: Vec::new(), tensors: Vec::new() };
        draft.entries.push(("general.architecture".to_owned(), Value::String(architecture.to_owned())));
        let vocabulary = match usize::from(kind) / ARCHITECTURES.len() % 3 {
            0 => vocabularies::byte_bpe("qwen2"),
            1 => vocabularies::spm(true),
            _ => vec![("tokenizer.ggml.tokens", Value::Strings(Strings::from_iter(["a", "b"])))],
        };
        let vocab_len = match &vocabulary[..] {
            [(_, Value::Strings(tokens)), ..] => tokens.len() as u64,
            _ => 0,
        };
        draft.entries.extend(vocabulary.into_iter().map(|(key, value)| (key.to_owned(), value)));
        draft.add_model(architecture, vocab_len);
        if architecture == "gemma4" {
            draft.add_gemma4(vocab_len);
        }
        while let Some(op) = bytes.next() {
            draft.change(op, bytes);
        }
        draft
    }

    fn add_model(&mut self, architecture: &str, vocab_len: u64) {
        for (key, value) in [
            (0, 64),
            (1, EMBEDDING),
            (2, 2),
            (3, FEED_FORWARD),
            (4, HEADS),
            (5, KV_HEADS),
            (6, HEAD),
            (7, HEAD),
            (8, HEAD),
            (20, 16),
        ] {
            self.entries.push((format!("{architecture}.{}", KEYS[key]), Value::U32(value as u32)));
        }
        let eps = if architecture == "gpt2" { KEYS[29] } else { KEYS[9] };
        self.entries.push((format!("{architecture}.{eps}"), Value::F32(1e-5)));
        self.tensor("token_embd.weight", GgmlType::Q8_0, &[EMBEDDING, vocab_len]);
        self.tensor("output_norm.weight", GgmlType::F32, &[EMBEDDING]);
        if architecture == "gpt2" {
            self.tensor("output_norm.bias", GgmlType::F32, &[EMBEDDING]);
            self.tensor("position_embd.weight", GgmlType::Q8_0, &[EMBEDDING, 64]);
        }
        for layer in 0..2 {
            let (q, kv) = (HEADS * HEAD, KV_HEADS * HEAD);
            let mut matrices = vec![("attn_output", [q, EMBEDDING])];
            let qkv = [("attn_q", [EMBEDDING, q]), ("attn_k", [EMBEDDING, kv]), ("attn_v", [EMBEDDING, kv])];
            match architecture {
                "phi3" | "gpt2" => matrices.push(("attn_qkv", [EMBEDDING, q + 2 * kv])),
                _ => matrices.extend(qkv),
            }
            let down = ("ffn_down", [FEED_FORWARD, EMBEDDING]);
            let up = |len| ("ffn_up", [EMBEDDING, len]);
            match architecture {
                "phi3" => matrices.extend([up(2 * FEED_FORWARD), down]),
                "gpt2" => matrices.extend([up(FEED_FORWARD), down]),
                "qwen2moe" | "qwen3moe" => self.add_experts(architecture, layer),
                _ => matrices.extend([("ffn_gate", [EMBEDDING, FEED_FORWARD]), up(FEED_FORWARD), down]),
            }
            for (name, dims) in matrices {
                self.tensor(&format!("blk.{layer}.{name}.weight"), GgmlType::Q8_0, &dims);
            }
            let mut vectors = vec![("attn_norm.weight", EMBEDDING), ("ffn_norm.weight", EMBEDDING)];
            match architecture {
                "qwen2" | "qwen2moe" => {
                    vectors.extend([("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)])
                }
                "qwen3" | "qwen3moe" | "gemma3" | "gemma4" => {
                    vectors.extend([("attn_q_norm.weight", HEAD), ("attn_k_norm.weight", HEAD)]);
                }
                _ => {}
            }
            if architecture == "gpt2" {
                vectors.extend([("attn_norm.bias", EMBEDDING), ("ffn_norm.bias", EMBEDDING)]);
                vectors.extend([("attn_qkv.bias", q + 2 * kv), ("attn_output.bias", EMBEDDING)]);
                vectors.extend([("ffn_up.bias", FEED_FORWARD), ("ffn_down.bias", EMBEDDING)]);
            }
            if architecture.starts_with("gemma") {
                vectors
                    .extend([("post_attention_norm.weight", EMBEDDING), ("post_ffw_norm.weight", EMBEDDING)]);
            }
            for (name, len) in vectors {
                self.tensor(&format!("blk.{layer}.{name}"), GgmlType::F32, &[len]);
            }
        }
    }

    /// What Gemma 4 has beside Gemma 3; all layers local, since random bytes are no factors of RoPE.
    fn add_gemma4(&mut self, vocab_len: u64) {
        for (key, value) in LATER_KEYS.into_iter().zip([0, HEAD, HEAD, HEAD, HEAD]) {
            self.entries.push((format!("gemma4.{key}"), Value::U32(value as u32)));
        }
        let pattern = format!("gemma4.{}", KEYS[21]);
        self.entries.push((pattern, Value::Bools(vec![true; 2])));
        self.tensor("per_layer_token_embd.weight", GgmlType::Q8_0, &[2 * HEAD, vocab_len]);
        self.tensor("per_layer_model_proj.weight", GgmlType::Q8_0, &[EMBEDDING, 2 * HEAD]);
        self.tensor("per_layer_proj_norm.weight", GgmlType::F32, &[HEAD]);
        for layer in 0..2 {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            self.tensor(&name("inp_gate"), GgmlType::Q8_0, &[EMBEDDING, HEAD]);
            self.tensor(&name("proj"), GgmlType::Q8_0, &[HEAD, EMBEDDING]);
            self.tensor(&name("post_norm"), GgmlType::F32, &[EMBEDDING]);
            self.tensor(&name("layer_output_scale"), GgmlType::F32, &[1]);
        }
    }

    /// Three experts of which a row takes two.
    fn add_experts(&mut self, architecture: &str, layer: u32) {
        if layer == 0 {
            for (key, value) in
                [("expert_count", 3), ("expert_used_count", 2), ("expert_feed_forward_length", 32)]
            {
                self.entries.push((format!("{architecture}.{key}"), Value::U32(value)));
            }
        }
        let name = |part: &str| format!("blk.{layer}.ffn_{part}.weight");
        self.tensor(&name("gate_inp"), GgmlType::F32, &[EMBEDDING, 3]);
        for (part, dims) in
            [("gate", [EMBEDDING, 32, 3]), ("up", [EMBEDDING, 32, 3]), ("down", [32, EMBEDDING, 3])]
        {
            self.tensor(&name(&format!("{part}_exps")), GgmlType::Q8_0, &dims);
        }
        if architecture == "qwen2moe" {
            self.tensor(&name("gate_inp_shexp"), GgmlType::F32, &[EMBEDDING]);
            for (part, dims) in [
                ("gate", [EMBEDDING, FEED_FORWARD]),
                ("up", [EMBEDDING, FEED_FORWARD]),
                ("down", [FEED_FORWARD, EMBEDDING]),
            ] {
                self.tensor(&name(&format!("{part}_shexp")), GgmlType::Q8_0, &dims);
            }
        }
    }

    fn tensor(&mut self, name: &str, ty: GgmlType, dims: &[u64]) {
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push(TensorInfo { name, ty, dims, shard: 0, offset_bytes: 0, len_bytes: 0 });
    }

    /// One change; bytes that are not there are 0.
    fn change(&mut self, op: u8, bytes: &mut Bytes<'_>) {
        let mut byte = || usize::from(bytes.next().unwrap_or_default());
        let count = self.tensors.len().max(1);
        match op % 8 {
            0 | 1 => {
                let key = self.key(byte());
                let value = value(bytes);
                self.entries.retain(|(k, _)| *k != key);
                self.entries.push((key, value));
            }
            2 => {
                let key = self.key(byte());
                self.entries.retain(|(k, _)| *k != key);
            }
            3 => {
                let (tensor, dim) = (byte() % count, byte() % 5);
                let value = number(bytes);
                if let Some(info) = self.tensors.get_mut(tensor) {
                    if let Some(slot) = info.dims.get_mut(dim) {
                        *slot = value;
                    } else if info.dims.len() < 4 {
                        info.dims.push(value);
                    }
                }
            }
            4 => {
                let (tensor, ty) = (byte() % count, byte() % GgmlType::ALL.len());
                if let Some(info) = self.tensors.get_mut(tensor) {
                    info.ty = GgmlType::ALL[ty];
                }
            }
            5 => {
                let tensor = byte() % count;
                if tensor < self.tensors.len() {
                    self.tensors.swap_remove(tensor);
                }
            }
            6 => {
                let name = TENSORS[byte() % TENSORS.len()];
                let (ty, cols, rows) = (byte() % GgmlType::ALL.len(), byte() as u64 * 8, byte() as u64);
                let dims = if rows == 0 { vec![cols] } else { vec![cols, rows] };
                self.tensors.retain(|t| t.name != name);
                self.tensor(name, GgmlType::ALL[ty], &dims);
            }
            _ => {
                // A shape that fits all matrices with one dimension of this length.
                let (from, to) = (byte() as u64, byte() as u64 * 8);
                for info in &mut self.tensors {
                    info.dims.iter_mut().filter(|dim| **dim == from).for_each(|dim| *dim = to);
                }
            }
        }
    }

    fn key(&self, index: usize) -> String {
        let architecture = match self.entries.iter().find(|(key, _)| key == "general.architecture") {
            Some((_, Value::String(name))) => name.as_str(),
            _ => "llama",
        };
        let index = index % (KEYS.len() + OTHER_KEYS.len() + LATER_KEYS.len());
        let later =
            || index.checked_sub(KEYS.len() + OTHER_KEYS.len()).and_then(|index| LATER_KEYS.get(index));
        match KEYS.get(index).or_else(later) {
            Some(key) => format!("{architecture}.{key}"),
            None => OTHER_KEYS[(index - KEYS.len()) % OTHER_KEYS.len()].to_owned(),
        }
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in &self.entries {
            let _ = metadata.insert(key, value.clone());
        }
        metadata
    }
}

/// A number of up to 64 bits, small ones in few bytes.
fn number(bytes: &mut Bytes<'_>) -> u64 {
    let len = bytes.next().unwrap_or_default() % 9;
    let bytes = bytes.by_ref().take(usize::from(len));
    bytes.enumerate().fold(0, |number, (i, byte)| number | u64::from(byte) << (8 * i))
}

fn value(bytes: &mut Bytes<'_>) -> Value {
    let ty = bytes.next().unwrap_or_default() % 16;
    let mut word = || WORDS[usize::from(bytes.next().unwrap_or_default()) % WORDS.len()];
    match ty {
        0 => Value::String(word().to_owned()),
        1 => {
            let len = bytes.next().unwrap_or_default();
            let text: Vec<u8> = bytes.by_ref().take(usize::from(len)).collect();
            Value::String(String::from_utf8_lossy(&text).into_owned())
        }
        2 | 3 => {
            let first = word();
            let count = usize::from(bytes.next().unwrap_or_default());
            let mut text = |i: usize| match bytes.next().unwrap_or_default() {
                byte @ 0..64 => WORDS[usize::from(byte) % WORDS.len()].to_owned(),
                byte @ 64..128 => format!("{first}{}", char::from(byte)),
                byte => format!("{byte} {i}"),
            };
            Value::Strings((0..count).map(&mut text).collect())
        }
        4 => Value::Bool(number(bytes) & 1 == 1),
        5 => {
            let count = number(bytes) % 2048;
            Value::Bools((0..count).map(|_| bytes.next().unwrap_or_default() & 1 == 1).collect())
        }
        6 => {
            let count = number(bytes) % 2048;
            Value::I32s((0..count).map(|_| bytes.next().unwrap_or(1) as i8).map(i32::from).collect())
        }
        7 => {
            let count = number(bytes) % 2048;
            Value::F32s((0..count).map(|_| f32::from_bits(number(bytes) as u32)).collect())
        }
        8 => Value::F32(f32::from_bits(number(bytes) as u32)),
        9 => Value::F32(number(bytes) as u32 as f32 / 256.0),
        10 => Value::F64(f64::from_bits(number(bytes))),
        11 => Value::I32(number(bytes) as i32),
        12 => Value::U64(number(bytes)),
        13 => Value::I64(number(bytes) as i64),
        _ => Value::U32(number(bytes) as u32),
    }
}
