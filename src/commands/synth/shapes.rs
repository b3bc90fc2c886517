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
    /// `attention.sliding_window`.
    pub window: Option<u32>,
    /// Its mixture of experts, if it is one.
    pub experts: Option<Experts>,
    /// What Gemma 4 has beside the others.
    pub gemma4: Option<Gemma4>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// `expert_count`.
    pub count: u32,
    /// `expert_used_count`.
    pub used: u32,
    /// Values between the matrices of an expert.
    pub feed_forward_len: u32,
    /// The same of the expert that every row takes, if there is one.
    pub shared_len: Option<u32>,
}

/// What Gemma 4 has beside the others; `head_len` is that of its global layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemma4 {
    /// `attention.key_length_swa` and `attention.value_length_swa`.
    pub local_head_len: u32,
    /// Of so many layers the last is global.
    pub period: u32,
    /// Layers with a cache of their own; later ones read that of an earlier.
    pub own_caches: u32,
    /// `embedding_length_per_layer_input`.
    pub per_layer_len: u32,
}

impl Gemma4 {
    /// Whether a layer is local.
    pub fn is_local(self, layer: u32) -> bool {
        layer % self.period < self.period - 1
    }
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
    experts: None,
    gemma4: None,
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

/// `google/gemma-4-E4B`. Lengths are those of its published configuration, written down from memory. What can be checked
/// here agrees: the reference's number of layers of this size (`llama.cpp`, `src/models/gemma4.cpp`), its rule that the
/// last layer with a cache is global and the one before it local, and the size: 4.6 thousand million parameters without
/// per-layer embeddings, near the 4.5 of the card, and 7.5 with them.
const GEMMA4_E4B: Hyperparameters = Hyperparameters {
    name: "gemma4-e4b",
    architecture: "gemma4",
    layers: 42,
    embedding_len: 2560,
    feed_forward_len: 10_240,
    heads: 8,
    kv_heads: 2,
    head_len: 512,
    context_len: 131_072,
    gemma4: Some(Gemma4 { local_head_len: 256, period: 6, own_caches: 24, per_layer_len: 256 }),
    ..GEMMA3
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
    Hyperparameters {
        name: "qwen1.5-moe-a2.7b",
        architecture: "qwen2moe",
        layers: 24,
        embedding_len: 2048,
        feed_forward_len: 5632,
        heads: 16,
        kv_heads: 16,
        head_len: 128,
        context_len: 8192,
        tied: false,
        experts: Some(Experts { count: 60, used: 4, feed_forward_len: 1408, shared_len: Some(5632) }),
        ..QWEN2
    },
    Hyperparameters {
        name: "qwen3-30b-a3b",
        architecture: "qwen3moe",
        layers: 48,
        embedding_len: 2048,
        feed_forward_len: 6144,
        heads: 32,
        kv_heads: 4,
        head_len: 128,
        context_len: 40_960,
        tied: false,
        bias: false,
        head_norms: true,
        experts: Some(Experts { count: 128, used: 8, feed_forward_len: 768, shared_len: None }),
        ..QWEN2
    },
    Hyperparameters {
        name: "gemma2-2b",
        architecture: "gemma2",
        layers: 26,
        embedding_len: 2304,
        feed_forward_len: 9216,
        heads: 8,
        vocab_len: 256_000,
        kv_heads: 4,
        context_len: 8192,
        rope_base: 10_000.0,
        head_norms: false,
        window: Some(4096),
        ..GEMMA3
    },
    Hyperparameters { name: "gemma3-270m", layers: 18, embedding_len: 640, feed_forward_len: 2048, ..GEMMA3 },
    Hyperparameters { name: "gemma3-1b", layers: 26, embedding_len: 1152, feed_forward_len: 6912, ..GEMMA3 },
    GEMMA4_E4B,
    Hyperparameters {
        name: "gpt2",
        architecture: "gpt2",
        layers: 12,
        embedding_len: 768,
        feed_forward_len: 3072,
        heads: 12,
        kv_heads: 12,
        vocab_len: 50_257,
        context_len: 1024,
        bias: true,
        ..LLAMA
    },
    Hyperparameters {
        name: "phi3-mini-4k",
        architecture: "phi3",
        layers: 32,
        embedding_len: 3072,
        feed_forward_len: 8192,
        heads: 32,
        kv_heads: 32,
        head_len: 96,
        vocab_len: 32_064,
        context_len: 4096,
        rope_base: 10_000.0,
        tied: false,
        window: Some(2047),
        ..LLAMA
    },
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
    Hyperparameters {
        name: "mixtral-8x7b",
        layers: 32,
        embedding_len: 4096,
        feed_forward_len: 14_336,
        heads: 32,
        kv_heads: 8,
        head_len: 128,
        vocab_len: 32_000,
        context_len: 32_768,
        rope_base: 1_000_000.0,
        tied: false,
        experts: Some(Experts { count: 8, used: 2, feed_forward_len: 14_336, shared_len: None }),
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
    /// Values a head of a layer.
    pub fn head_len_of(&self, layer: u32) -> u32 {
        match self.gemma4 {
            Some(gemma4) if gemma4.is_local(layer) => gemma4.local_head_len,
            _ => self.head_len,
        }
    }

    /// Whether norms are behind each block, too.
    pub fn has_post_norms(&self) -> bool {
        self.architecture.starts_with("gemma")
    }
}
