//! The tensors of a shape, in the order of the file, and what their values are like.

use unisonic_core::format::{GgmlType, TensorShape};

use super::quant::{Quant, Role};
use super::shapes::Hyperparameters;

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
    let mut list = List { quant, layers, tensors: Vec::new() };
    let embedding = shape.embedding_len;
    let table = if shape.tied { Role::Head } else { Role::Other };
    list.matrix("token_embd".into(), table, embedding, shape.vocab_len);
    if let Some(factor) = shape.rope_factor {
        let factors = rope_factors(shape, factor);
        list.vector("rope_freqs.weight".into(), factors.len() as u32, Content::Values(factors));
    }
    for layer in 0..layers {
        list.layer(shape, layer);
    }
    list.vector("output_norm.weight".into(), embedding, Content::Norm);
    if !shape.tied {
        list.matrix("output".into(), Role::Head, embedding, shape.vocab_len);
    }
    list.tensors
}

struct List {
    quant: Quant,
    layers: u32,
    tensors: Vec<Tensor>,
}

impl List {
    fn layer(&mut self, shape: &Hyperparameters, layer: u32) {
        let (embedding, feed_forward) = (shape.embedding_len, shape.feed_forward_len);
        let (query, key) = (shape.query_len(), shape.key_len());
        let name = |part: &str| format!("blk.{layer}.{part}");
        self.vector(name("attn_norm.weight"), embedding, Content::Norm);
        let sensitive = Role::Sensitive { layer };
        for (part, role, len) in
            [("attn_q", Role::Other, query), ("attn_k", Role::Other, key), ("attn_v", sensitive, key)]
        {
            self.matrix(name(part), role, embedding, len);
            if shape.bias {
                self.vector(name(&format!("{part}.bias")), len, Content::Bias);
            }
        }
        if shape.head_norms {
            self.vector(name("attn_q_norm.weight"), shape.head_len, Content::Norm);
            self.vector(name("attn_k_norm.weight"), shape.head_len, Content::Norm);
        }
        self.matrix(name("attn_output"), Role::Other, query, embedding);
        if shape.window.is_some() {
            self.vector(name("post_attention_norm.weight"), embedding, Content::Norm);
        }
        self.vector(name("ffn_norm.weight"), embedding, Content::Norm);
        self.matrix(name("ffn_gate"), Role::Other, embedding, feed_forward);
        self.matrix(name("ffn_up"), Role::Other, embedding, feed_forward);
        self.matrix(name("ffn_down"), sensitive, feed_forward, embedding);
        if shape.window.is_some() {
            self.vector(name("post_ffw_norm.weight"), embedding, Content::Norm);
        }
    }

    /// A matrix `label.weight` with `rows` rows of `row_len`.
    fn matrix(&mut self, label: String, role: Role, row_len: u32, rows: u32) {
        let ty = self.quant.matrix_type(role, self.layers, row_len);
        let dims = vec![row_len.into(), rows.into()];
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
