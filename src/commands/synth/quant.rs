//! Which type each tensor gets: the mixtures of llama.cpp (`llama-quant.cpp`, `llama_tensor_get_type`).

use clap::ValueEnum;
use unisonic_core::format::GgmlType;

/// A mixture of types, by llama.cpp's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
#[allow(non_camel_case_types, reason = "the names that users know")]
pub enum Quant {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q3_K_M,
    Q4_K_M,
    Q5_K_M,
    Q6_K,
    F16,
    Bf16,
    F32,
}

/// What a matrix is for, as far as the mixtures care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The head: `output.weight`, or the embedding table where it is the head as well.
    Head,
    /// `attn_v` of the so-manieth layer that has one, and how many have.
    Values {
        /// Layer.
        layer: u32,
        /// Layers.
        of: u32,
    },
    /// `ffn_down` of a layer.
    Down {
        /// Layer.
        layer: u32,
        /// Layers.
        of: u32,
    },
    /// `attn_output`.
    AttentionOutput,
    /// `attn_qkv`.
    Fused,
    /// One that no mixture has in blocks.
    Kept,
    /// Any other.
    Other,
}

impl Quant {
    /// Type of a matrix with rows of `row_len`.
    ///
    /// The head is Q6_K where the rest has fewer bits. The `_M` mixtures keep more bits of the projection to values and of
    /// the second matrix of the feed-forward block: Q6_K in the first and the last eighth of the layers and of each third
    /// one between; with Q3_K_M Q5_K in the first layers and Q4_K elsewhere. Rows that are not whole blocks of 256 get the
    /// type of blocks of 32 that is next: Q4_0 for Q3_K, Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K.
    pub fn matrix_type(self, role: Role, row_len: u32) -> GgmlType {
        let ty = self.wanted(role);
        match ty {
            ty if u64::from(row_len).is_multiple_of(ty.block_elems()) => ty,
            GgmlType::Q3_K => GgmlType::Q4_0,
            GgmlType::Q4_K => GgmlType::Q5_0,
            GgmlType::Q5_K => GgmlType::Q5_1,
            _ => GgmlType::Q8_0,
        }
    }

    /// Type of a matrix with rows of any length.
    fn wanted(self, role: Role) -> GgmlType {
        use GgmlType::{BF16, F16, F32, Q4_K, Q5_K, Q6_K};
        let few_bits = !matches!(self, Quant::Q8_0 | Quant::F16 | Quant::Bf16 | Quant::F32);
        match (self, role) {
            (Quant::F32, Role::Kept) => F32,
            (Quant::Bf16, Role::Kept) => BF16,
            (_, Role::Kept) => F16,
            (_, Role::Head) if few_bits => Q6_K,
            (Quant::Q4_K_M | Quant::Q5_K_M, Role::Values { layer, of } | Role::Down { layer, of })
                if use_more_bits(layer, of) =>
            {
                Q6_K
            }
            (Quant::Q4_K_M, Role::Fused) => Q5_K,
            (Quant::Q5_K_M, Role::Fused) => Q6_K,
            (Quant::Q3_K_M, Role::Values { layer, .. }) if layer < 2 => Q5_K,
            (Quant::Q3_K_M, Role::Down { layer, of }) if layer < of / 16 => Q5_K,
            (
                Quant::Q3_K_M,
                Role::Values { .. } | Role::Down { .. } | Role::AttentionOutput | Role::Fused,
            ) => Q4_K,
            _ => self.base(),
        }
    }

    /// Type of most matrices.
    fn base(self) -> GgmlType {
        match self {
            Quant::Q4_0 => GgmlType::Q4_0,
            Quant::Q4_1 => GgmlType::Q4_1,
            Quant::Q5_0 => GgmlType::Q5_0,
            Quant::Q5_1 => GgmlType::Q5_1,
            Quant::Q8_0 => GgmlType::Q8_0,
            Quant::Q3_K_M => GgmlType::Q3_K,
            Quant::Q4_K_M => GgmlType::Q4_K,
            Quant::Q5_K_M => GgmlType::Q5_K,
            Quant::Q6_K => GgmlType::Q6_K,
            Quant::F16 => GgmlType::F16,
            Quant::Bf16 => GgmlType::BF16,
            Quant::F32 => GgmlType::F32,
        }
    }

    /// `general.file_type` (`llama.h`, `enum llama_ftype`).
    pub fn file_type(self) -> u32 {
        match self {
            Quant::F32 => 0,
            Quant::F16 => 1,
            Quant::Q4_0 => 2,
            Quant::Q4_1 => 3,
            Quant::Q8_0 => 7,
            Quant::Q5_0 => 8,
            Quant::Q5_1 => 9,
            Quant::Q3_K_M => 12,
            Quant::Q4_K_M => 15,
            Quant::Q5_K_M => 17,
            Quant::Q6_K => 18,
            Quant::Bf16 => 32,
        }
    }
}

/// `use_more_bits` of llama.cpp.
fn use_more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_no_whole_blocks_fall_back() {
        let ty = |quant: Quant, role, row_len| quant.matrix_type(role, row_len);
        assert_eq!(ty(Quant::Q4_K_M, Role::Other, 896), GgmlType::Q5_0);
        assert_eq!(ty(Quant::Q4_K_M, Role::Head, 896), GgmlType::Q8_0);
        assert_eq!(ty(Quant::Q4_K_M, Role::Head, 1024), GgmlType::Q6_K);
        assert_eq!(ty(Quant::Q5_K_M, Role::Other, 640), GgmlType::Q5_1);
        assert_eq!(ty(Quant::Q8_0, Role::Head, 1024), GgmlType::Q8_0);
        assert_eq!(ty(Quant::F16, Role::Head, 1024), GgmlType::F16);
        assert_eq!(ty(Quant::Q3_K_M, Role::Other, 896), GgmlType::Q4_0);
    }

    #[test]
    fn some_layers_keep_more_bits() {
        let more: Vec<u32> = (0..24).filter(|&layer| use_more_bits(layer, 24)).collect();
        assert_eq!(more, [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]);
    }

    #[test]
    fn q3_k_m_keeps_more_bits_of_some_matrices() {
        let ty = |role| Quant::Q3_K_M.matrix_type(role, 1024);
        let values = [0, 1, 2, 23].map(|layer| ty(Role::Values { layer, of: 24 }));
        assert_eq!(values, [GgmlType::Q5_K, GgmlType::Q5_K, GgmlType::Q4_K, GgmlType::Q4_K]);
        let down = [0, 1, 2, 41].map(|layer| ty(Role::Down { layer, of: 42 }));
        assert_eq!(down, [GgmlType::Q5_K, GgmlType::Q5_K, GgmlType::Q4_K, GgmlType::Q4_K]);
        assert_eq!(ty(Role::AttentionOutput), GgmlType::Q4_K);
        assert_eq!(
            (ty(Role::Other), ty(Role::Head), ty(Role::Kept)),
            (GgmlType::Q3_K, GgmlType::Q6_K, GgmlType::F16)
        );
    }
}
