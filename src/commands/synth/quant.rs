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
    /// `attn_v` or `ffn_down` of this layer, which mixtures keep more bits of in some layers.
    Sensitive {
        /// Layer.
        layer: u32,
    },
    /// Any other.
    Other,
}

impl Quant {
    /// Type of a matrix with rows of `row_len`, in a model of `layers` layers.
    ///
    /// The head is Q6_K where the rest has fewer bits. The `_M` mixtures give Q6_K to the sensitive matrices of the
    /// first and the last eighth of the layers and of each third one between. Rows that are not whole blocks of 256 get
    /// the type of blocks of 32 that is next: Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K.
    pub fn matrix_type(self, role: Role, layers: u32, row_len: u32) -> GgmlType {
        let few_bits = !matches!(self, Quant::Q8_0 | Quant::F16 | Quant::Bf16 | Quant::F32);
        let mixed = matches!(self, Quant::Q4_K_M | Quant::Q5_K_M);
        let ty = match role {
            Role::Head if few_bits => GgmlType::Q6_K,
            Role::Sensitive { layer } if mixed && use_more_bits(layer, layers) => GgmlType::Q6_K,
            _ => self.base(),
        };
        match ty {
            ty if u64::from(row_len).is_multiple_of(ty.block_elems()) => ty,
            GgmlType::Q4_K => GgmlType::Q5_0,
            GgmlType::Q5_K => GgmlType::Q5_1,
            _ => GgmlType::Q8_0,
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
        let ty = |quant: Quant, role, row_len| quant.matrix_type(role, 24, row_len);
        assert_eq!(ty(Quant::Q4_K_M, Role::Other, 896), GgmlType::Q5_0);
        assert_eq!(ty(Quant::Q4_K_M, Role::Head, 896), GgmlType::Q8_0);
        assert_eq!(ty(Quant::Q4_K_M, Role::Head, 1024), GgmlType::Q6_K);
        assert_eq!(ty(Quant::Q5_K_M, Role::Other, 640), GgmlType::Q5_1);
        assert_eq!(ty(Quant::Q8_0, Role::Head, 1024), GgmlType::Q8_0);
        assert_eq!(ty(Quant::F16, Role::Head, 1024), GgmlType::F16);
    }

    #[test]
    fn some_layers_keep_more_bits() {
        let more: Vec<u32> = (0..24).filter(|&layer| use_more_bits(layer, 24)).collect();
        assert_eq!(more, [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]);
    }
}
