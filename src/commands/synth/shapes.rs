//! The shapes that can be written: hyperparameters of published models, from their `config.json`.

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// Hyperparameters of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyperparameters {
    /// What `unisonic synth` calls it.
    pub name: &'static str,
    /// `general.architecture`.
    pub architecture: &'static str,
    /// `block_count`.
    pub layers: u32,
    /// `embedding_length`.
    pub embedding_len: u32,
    /// `feed_forward_length`.
    pub feed_forward_len: u32,
    /// `attention.head_count`.
    pub heads: u32,
    /// `attention.head_count_kv`.
    pub kv_heads: u32,
    /// `attention.key_length` and `attention.value_length`.
    pub head_len: u32,
    /// Tokens of the vocabulary.
    pub vocab_len: u32,
    /// `context_length`.
    pub context_len: u32,
    /// `rope.freq_base`.
    pub rope_base: f32,
    /// Llama 3's factor of long wavelengths (`rope_freqs.weight`).
    pub rope_factor: Option<f64>,
    /// `attention.layer_norm_rms_epsilon`.
    pub eps: f32,
    /// Whether the embedding table is the head as well.
    pub tied: bool,
    /// Whether the projections of q, k and v have biases.
    pub bias: bool,
    /// Whether query and key heads are normed.
    pub head_norms: bool,
    /// `attention.sliding_window`; with it come norms behind each block (Gemma 3).
    pub window: Option<u32>,
}

const LLAMA: Hyperparameters = Hyperparameters {
    name: "",
    architecture: "llama",
    layers: 0,
    embedding_len: 0,
    feed_forward_len: 0,
    heads: 0,
    kv_heads: 0,
    head_len: 64,
    vocab_len: 128_256,
    context_len: 131_072,
    rope_base: 500_000.0,
    rope_factor: None,
    eps: 1e-5,
    tied: true,
    bias: false,
    head_norms: false,
    window: None,
};

const QWEN2: Hyperparameters = Hyperparameters {
    architecture: "qwen2",
    vocab_len: 151_936,
    context_len: 32_768,
    rope_base: 1_000_000.0,
    eps: 1e-6,
    bias: true,
    ..LLAMA
};

const GEMMA3: Hyperparameters = Hyperparameters {
    architecture: "gemma3",
    heads: 4,
    kv_heads: 1,
    head_len: 256,
    vocab_len: 262_144,
    context_len: 32_768,
    rope_base: 1_000_000.0,
    eps: 1e-6,
    head_norms: true,
    window: Some(512),
    ..LLAMA
};

/// All shapes, smaller ones of a family first.
pub const SHAPES: &[Hyperparameters] = &[
    Hyperparameters {
        name: "smollm2-135m",
        layers: 30,
        embedding_len: 576,
        feed_forward_len: 1536,
        heads: 9,
        kv_heads: 3,
        vocab_len: 49_152,
        context_len: 8192,
        rope_base: 100_000.0,
        ..LLAMA
    },
    Hyperparameters {
        name: "qwen2.5-0.5b",
        layers: 24,
        embedding_len: 896,
        feed_forward_len: 4864,
        heads: 14,
        kv_heads: 2,
        ..QWEN2
    },
    Hyperparameters {
        name: "qwen2.5-1.5b",
        layers: 28,
        embedding_len: 1536,
        feed_forward_len: 8960,
        heads: 12,
        kv_heads: 2,
        head_len: 128,
        ..QWEN2
    },
    Hyperparameters {
        name: "qwen2.5-7b",
        layers: 28,
        embedding_len: 3584,
        feed_forward_len: 18_944,
        heads: 28,
        kv_heads: 4,
        head_len: 128,
        vocab_len: 152_064,
        tied: false,
        ..QWEN2
    },
    Hyperparameters {
        name: "qwen3-0.6b",
        architecture: "qwen3",
        layers: 28,
        embedding_len: 1024,
        feed_forward_len: 3072,
        heads: 16,
        kv_heads: 8,
        head_len: 128,
        context_len: 40_960,
        bias: false,
        head_norms: true,
        ..QWEN2
    },
    Hyperparameters { name: "gemma3-270m", layers: 18, embedding_len: 640, feed_forward_len: 2048, ..GEMMA3 },
    Hyperparameters { name: "gemma3-1b", layers: 26, embedding_len: 1152, feed_forward_len: 6912, ..GEMMA3 },
    Hyperparameters {
        name: "llama-3.2-1b",
        layers: 16,
        embedding_len: 2048,
        feed_forward_len: 8192,
        heads: 32,
        kv_heads: 8,
        rope_factor: Some(32.0),
        ..LLAMA
    },
    Hyperparameters {
        name: "llama-3.1-8b",
        layers: 32,
        embedding_len: 4096,
        feed_forward_len: 14_336,
        heads: 32,
        kv_heads: 8,
        head_len: 128,
        rope_factor: Some(8.0),
        tied: false,
        ..LLAMA
    },
];

/// A shape is chosen by its name.
impl ValueEnum for Hyperparameters {
    fn value_variants<'a>() -> &'a [Self] {
        SHAPES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name))
    }
}

impl Hyperparameters {
    /// Values of all query heads.
    pub fn query_len(&self) -> u32 {
        self.heads * self.head_len
    }

    /// Values of all key heads.
    pub fn key_len(&self) -> u32 {
        self.kv_heads * self.head_len
    }
}
