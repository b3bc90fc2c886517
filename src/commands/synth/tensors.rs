//! The tensors of a shape, in the order of the file, and what their values are like.

use unisonic_core::format::{GgmlType, TensorShape};

use super::quant::{Quant, Role};
use super::shapes::{Experts, Gemma4, Hyperparameters};

/// What a tensor holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Random values of mean 0 and standard deviation `1 / sqrt(row length)`, so that a row times values of the order
    /// of 1 is of the order of 1.
    Matrix,
    /// Random values near 1.
    Norm,
    /// Small random values.
    Bias,
    /// These values.
    Values(Vec<f32>),
}

/// A tensor to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name, type and dimensions.
    pub shape: TensorShape,
    /// What it holds.
    pub content: Content,
}

/// All tensors of a shape cut to `layers` layers.
pub fn tensors(shape: &Hyperparameters, quant: Quant, layers: u32) -> Vec<Tensor> {
    let mut list = List { quant, layers, norm_bias: shape.architecture == "gpt2", tensors: Vec::new() };
    let embedding = shape.embedding_len;
    let table = if shape.tied { Role::Head } else { Role::Other };
    list.matrix("token_embd".into(), table, embedding, shape.vocab_len);
    if shape.architecture == "gpt2" {
        list.matrix("position_embd".into(), Role::Kept, embedding, shape.context_len);
    }
    if let Some(Gemma4 { per_layer_len, .. }) = shape.gemma4 {
        let len = per_layer_len * layers;
        // llama.cpp takes a second table of tokens for the head, too.
        list.matrix("per_layer_token_embd".into(), table, len, shape.vocab_len);
        list.matrix("per_layer_model_proj".into(), Role::Kept, embedding, len);
        list.vector("per_layer_proj_norm.weight".into(), per_layer_len, Content::Norm);
    }
    let factors = shape.rope_factor.map(|factor| rope_factors(shape, factor));
    if let Some(factors) = factors.or(shape.gemma4.map(|_| quarter_of_pairs(shape.head_len))) {
        list.vector("rope_freqs.weight".into(), factors.len() as u32, Content::Values(factors));
    }
    for layer in 0..layers {
        list.attention(shape, layer);
        list.feed_forward(shape, layer);
        if let Some(gemma4) = shape.gemma4 {
            list.per_layer_block(gemma4, embedding, layer);
        }
    }
    list.norm("output_norm".into(), embedding);
    if !shape.tied {
        list.matrix("output".into(), Role::Head, embedding, shape.vocab_len);
    }
    list.tensors
}

struct List {
    quant: Quant,
    layers: u32,
    /// Whether norms have biases.
    norm_bias: bool,
    tensors: Vec<Tensor>,
}

impl List {
    fn attention(&mut self, shape: &Hyperparameters, layer: u32) {
        let (embedding, head_len) = (shape.embedding_len, shape.head_len_of(layer));
        let (query, key) = (shape.heads * head_len, shape.kv_heads * head_len);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let caches = shape.gemma4.map_or(self.layers, |gemma4| gemma4.own_caches.min(self.layers));
        let has_cache = layer < caches;
        self.norm(name("attn_norm"), embedding);
        if matches!(shape.architecture, "phi3" | "gpt2") {
            self.linear(name("attn_qkv"), Role::Fused, embedding, query + 2 * key, shape.bias);
        } else {
            self.linear(name("attn_q"), Role::Other, embedding, query, shape.bias);
            if has_cache {
                self.linear(name("attn_k"), Role::Other, embedding, key, shape.bias);
                self.linear(name("attn_v"), Role::Values { layer, of: caches }, embedding, key, shape.bias);
            }
        }
        if shape.head_norms {
            self.norm(name("attn_q_norm"), head_len);
            if has_cache {
                self.norm(name("attn_k_norm"), head_len);
            }
        }
        self.linear(name("attn_output"), Role::AttentionOutput, query, embedding, self.norm_bias);
        if shape.has_post_norms() {
            self.norm(name("post_attention_norm"), embedding);
        }
    }

    fn feed_forward(&mut self, shape: &Hyperparameters, layer: u32) {
        let (embedding, len) = (shape.embedding_len, shape.feed_forward_len);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let down = Role::Down { layer, of: self.layers };
        self.norm(name("ffn_norm"), embedding);
        match (shape.experts, shape.architecture) {
            (Some(experts), _) => self.experts(experts, embedding, layer),
            (None, "gpt2") => {
                self.linear(name("ffn_up"), Role::Other, embedding, len, true);
                self.linear(name("ffn_down"), down, len, embedding, true);
            }
            (None, "phi3") => {
                self.matrix(name("ffn_up"), Role::Other, embedding, 2 * len);
                self.matrix(name("ffn_down"), down, len, embedding);
            }
            (None, _) => {
                self.matrix(name("ffn_gate"), Role::Other, embedding, len);
                self.matrix(name("ffn_up"), Role::Other, embedding, len);
                self.matrix(name("ffn_down"), down, len, embedding);
            }
        }
        if shape.has_post_norms() {
            self.norm(name("post_ffw_norm"), embedding);
        }
    }

    fn experts(&mut self, experts: Experts, embedding: u32, layer: u32) {
        let Experts { count, feed_forward_len, shared_len, .. } = experts;
        let name = |part: &str| format!("blk.{layer}.{part}");
        let down = Role::Down { layer, of: self.layers };
        self.router(name("ffn_gate_inp"), vec![embedding, count]);
        let lens = [embedding, feed_forward_len];
        for (part, role, [row_len, rows]) in [
            ("ffn_gate_exps", Role::Other, lens),
            ("ffn_up_exps", Role::Other, lens),
            ("ffn_down_exps", down, [feed_forward_len, embedding]),
        ] {
            self.push(name(part), role, vec![row_len, rows, count]);
        }
        if let Some(len) = shared_len {
            self.router(name("ffn_gate_inp_shexp"), vec![embedding]);
            self.matrix(name("ffn_gate_shexp"), Role::Other, embedding, len);
            self.matrix(name("ffn_up_shexp"), Role::Other, embedding, len);
            self.matrix(name("ffn_down_shexp"), down, len, embedding);
        }
    }

    /// What Gemma 4 does with the embeddings for a layer.
    fn per_layer_block(&mut self, Gemma4 { per_layer_len, .. }: Gemma4, embedding: u32, layer: u32) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        self.matrix(name("inp_gate"), Role::Other, embedding, per_layer_len);
        self.matrix(name("proj"), Role::Other, per_layer_len, embedding);
        self.norm(name("post_norm"), embedding);
        self.vector(name("layer_output_scale.weight"), 1, Content::Norm);
    }

    /// A matrix and, if asked, `label.bias`.
    fn linear(&mut self, label: String, role: Role, row_len: u32, rows: u32, bias: bool) {
        let name = format!("{label}.bias");
        self.matrix(label, role, row_len, rows);
        if bias {
            self.vector(name, rows, Content::Bias);
        }
    }

    fn norm(&mut self, label: String, len: u32) {
        self.vector(format!("{label}.weight"), len, Content::Norm);
        if self.norm_bias {
            self.vector(format!("{label}.bias"), len, Content::Bias);
        }
    }

    /// Scores of experts stay F32.
    fn router(&mut self, label: String, dims: Vec<u32>) {
        let dims = dims.into_iter().map(u64::from).collect();
        let shape = TensorShape { name: format!("{label}.weight"), ty: GgmlType::F32, dims };
        self.tensors.push(Tensor { shape, content: Content::Matrix });
    }

    /// A matrix `label.weight` with `rows` rows of `row_len`.
    fn matrix(&mut self, label: String, role: Role, row_len: u32, rows: u32) {
        self.push(label, role, vec![row_len, rows]);
    }

    /// Matrices `label.weight` with these dimensions, that of rows first.
    fn push(&mut self, label: String, role: Role, dims: Vec<u32>) {
        let ty = self.quant.matrix_type(role, dims.first().copied().unwrap_or(1));
        let dims = dims.into_iter().map(u64::from).collect();
        let shape = TensorShape { name: format!("{label}.weight"), ty, dims };
        self.tensors.push(Tensor { shape, content: Content::Matrix });
    }

    fn vector(&mut self, name: String, len: u32, content: Content) {
        let shape = TensorShape { name, ty: GgmlType::F32, dims: vec![len.into()] };
        self.tensors.push(Tensor { shape, content });
    }
}

/// What the frequency of each pair of a head is divided by (Llama 3's scaling as llama.cpp's converter computes it):
/// nothing for short wavelengths, `factor` for long ones, a blend between. The context that the model was first made
/// for is 8192 tokens.
fn rope_factors(shape: &Hyperparameters, factor: f64) -> Vec<f32> {
    const ORIGINAL_CONTEXT_LEN: f64 = 8192.0;
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let pairs = shape.head_len / 2;
    let base = f64::from(shape.rope_base);
    let factor_of = |pair: u32| {
        let wavelength =
            2.0 * std::f64::consts::PI * libm::pow(base, f64::from(2 * pair) / f64::from(shape.head_len));
        if wavelength < ORIGINAL_CONTEXT_LEN / HIGH {
            1.0
        } else if wavelength > ORIGINAL_CONTEXT_LEN / LOW {
            factor
        } else {
            let smooth = (ORIGINAL_CONTEXT_LEN / wavelength - LOW) / (HIGH - LOW);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    (0..pairs).map(|pair| factor_of(pair) as f32).collect()
}

/// Only the first quarter of the pairs turns: the frequencies of the others are divided by so much that nothing is left
/// (`convert_hf_to_gguf.py` for Gemma 4).
fn quarter_of_pairs(head_len: u32) -> Vec<f32> {
    let pairs = head_len / 2;
    (0..pairs).map(|pair| if pair < pairs / 4 { 1.0 } else { 1e30 }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::ValueEnum;

    use super::super::shapes::SHAPES;
    use super::*;

    fn shape(name: &str) -> Hyperparameters {
        Hyperparameters::from_str(name, false).expect("a shape")
    }

    fn counts(name: &str, quant: Quant) -> String {
        let shape = shape(name);
        let mut counts = BTreeMap::<&str, u32>::new();
        for tensor in tensors(&shape, quant, shape.layers) {
            *counts.entry(tensor.shape.ty.name()).or_default() += 1;
        }
        counts.iter().map(|(ty, count)| format!("{ty} {count}")).collect::<Vec<_>>().join(", ")
    }

    /// As in `unisonic info` of published files: Gemma 3 270M Q4_K_M, and SmolLM2 135M Q4_1. Of Qwen2.5 0.5B Q4_K_M,
    /// which has its tied head as a tensor of its own, it is F32 121, Q4_K 12, Q5_0 133, Q6_K 12, Q8_0 13.
    #[test]
    fn types_are_those_of_real_files() {
        assert_eq!(counts("gemma3-270m", Quant::Q4_K_M), "F32 109, Q4_K 27, Q5_0 81, Q6_K 9, Q8_0 10");
        assert_eq!(counts("smollm2-135m", Quant::Q4_1), "F32 61, Q4_1 210, Q8_0 1");
        assert_eq!(counts("qwen2.5-0.5b", Quant::Q4_K_M), "F32 121, Q4_K 12, Q5_0 132, Q6_K 12, Q8_0 13");
    }

    #[test]
    fn parameters_are_those_of_real_models() {
        let parameters = |name| {
            let shape = shape(name);
            let tensors = tensors(&shape, Quant::F16, shape.layers);
            tensors.iter().map(|tensor| tensor.shape.dims.iter().product::<u64>()).sum::<u64>()
        };
        assert_eq!(parameters("smollm2-135m"), 134_515_008);
        assert_eq!(parameters("gemma3-270m"), 268_098_176);
        assert_eq!(parameters("qwen2.5-0.5b"), 630_167_424 - 151_936 * 896);
        // Numbers of the model cards: 7.62, 8.03 and 1.24 thousand million; rope factors are no parameters.
        assert_eq!(parameters("qwen2.5-7b"), 7_615_616_512);
        assert_eq!(parameters("llama-3.1-8b"), 8_030_261_248 + 64);
        assert_eq!(parameters("llama-3.2-1b"), 1_235_814_400 + 32);
        // From the cards: 46.7, 14.3, 30.5, 3.82 and 2.61 thousand million, and 124 million.
        assert_eq!(parameters("mixtral-8x7b") / 100_000_000, 467);
        assert_eq!(parameters("qwen1.5-moe-a2.7b") / 100_000_000, 143);
        assert_eq!(parameters("qwen3-30b-a3b") / 100_000_000, 305);
        assert_eq!(parameters("phi3-mini-4k") / 10_000_000, 382);
        assert_eq!(parameters("gemma2-2b") / 10_000_000, 261);
        assert_eq!(parameters("gpt2"), 124_439_808);
        // The card says 4.5 thousand million beside the second table.
        let table = 262_144 * 256 * 42;
        assert_eq!((parameters("gemma4-e4b") - table) / 100_000_000, 46);
    }

    #[test]
    fn long_wavelengths_are_stretched() {
        let factors = rope_factors(&shape("llama-3.1-8b"), 8.0);
        assert_eq!(factors.len(), 64);
        assert_eq!((factors[0], factors[63]), (1.0, 8.0));
        assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn every_shape_has_whole_blocks_in_every_mixture() {
        for shape in SHAPES {
            for &quant in Quant::value_variants() {
                for tensor in tensors(shape, quant, shape.layers) {
                    tensor
                        .shape
                        .len_bytes()
                        .unwrap_or_else(|error| panic!("{} {quant:?}: {error}", shape.name));
                }
            }
        }
    }
}
