//! Quantised blocks as exact integers and f32 scales.
//!
//! [`check_row`] says whether the blocks of a row may be used at all, [`decode_row`] turns a row into a
//! [`DecodedRow`]: integers, sub-scales and scales, which [`crate::numerics::linear`] and
//! [`crate::numerics::embedding`] work on. Layouts of the blocks: `ggml-common.h`; their meaning: `ggml-quants.c`,
//! `dequantize_row_*`. Float matrices become f32 first, by [`expand_floats`].

mod check;
mod codebook;
mod floats;
mod kquants;
mod plain;
mod row;
mod ternary;

pub(crate) use check::half_fields;
pub use check::{BadBlock, check_row};
pub use codebook::{IQ4_LEVELS, MXFP4_LEVELS};
pub use floats::{bf16_to_f32, expand_floats, f16_to_f32};
pub use row::{DecodedRow, decode_row};

use super::GgmlType;

/// A block format whose rows can be used by the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs, reason = "the names the format uses")]
pub enum BlockFormat {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    TQ1_0,
    TQ2_0,
}

/// Where the scales of a format lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleLayout {
    /// Blocks of 32, one f32 scale each.
    Block32,
    /// Blocks of 256, one f32 scale each and an integer scale for each 16 elements.
    Sub16,
    /// Blocks of 256, one f32 scale each and an integer scale for each 32 elements.
    Sub32,
    /// Blocks of 256, one f32 scale each.
    Block256,
}

impl BlockFormat {
    /// Every format.
    pub const ALL: [BlockFormat; 15] = [
        BlockFormat::Q4_0,
        BlockFormat::Q4_1,
        BlockFormat::Q5_0,
        BlockFormat::Q5_1,
        BlockFormat::Q8_0,
        BlockFormat::Q2_K,
        BlockFormat::Q3_K,
        BlockFormat::Q4_K,
        BlockFormat::Q5_K,
        BlockFormat::Q6_K,
        BlockFormat::IQ4_NL,
        BlockFormat::IQ4_XS,
        BlockFormat::MXFP4,
        BlockFormat::TQ1_0,
        BlockFormat::TQ2_0,
    ];

    /// The format of a tensor type; none for floats, integers and formats that the arithmetic does not define.
    pub fn from_ggml(ty: GgmlType) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.ggml_type() == ty)
    }

    /// The tensor type.
    pub fn ggml_type(self) -> GgmlType {
        match self {
            Self::Q4_0 => GgmlType::Q4_0,
            Self::Q4_1 => GgmlType::Q4_1,
            Self::Q5_0 => GgmlType::Q5_0,
            Self::Q5_1 => GgmlType::Q5_1,
            Self::Q8_0 => GgmlType::Q8_0,
            Self::Q2_K => GgmlType::Q2_K,
            Self::Q3_K => GgmlType::Q3_K,
            Self::Q4_K => GgmlType::Q4_K,
            Self::Q5_K => GgmlType::Q5_K,
            Self::Q6_K => GgmlType::Q6_K,
            Self::IQ4_NL => GgmlType::IQ4_NL,
            Self::IQ4_XS => GgmlType::IQ4_XS,
            Self::MXFP4 => GgmlType::MXFP4,
            Self::TQ1_0 => GgmlType::TQ1_0,
            Self::TQ2_0 => GgmlType::TQ2_0,
        }
    }

    /// The name the format uses, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.ggml_type().name()
    }

    /// Elements of a block: 32 or 256.
    pub fn elems(self) -> usize {
        self.ggml_type().block_elems() as usize
    }

    /// Bytes of a block.
    pub fn len_bytes(self) -> usize {
        self.ggml_type().block_len_bytes() as usize
    }

    /// Whether blocks hold a minimum beside the scale.
    pub fn has_minimum(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2_K | Self::Q4_K | Self::Q5_K)
    }

    /// Where the scales lie.
    pub fn scale_layout(self) -> ScaleLayout {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::IQ4_NL | Self::MXFP4 => {
                ScaleLayout::Block32
            }
            Self::Q2_K | Self::Q3_K | Self::Q6_K => ScaleLayout::Sub16,
            Self::Q4_K | Self::Q5_K | Self::IQ4_XS => ScaleLayout::Sub32,
            Self::TQ1_0 | Self::TQ2_0 => ScaleLayout::Block256,
        }
    }
}

impl std::fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_tensor_types() {
        for format in BlockFormat::ALL {
            assert_eq!(BlockFormat::from_ggml(format.ggml_type()), Some(format));
            assert_eq!(format!("{format:?}"), format.name());
            let elems = if format.scale_layout() == ScaleLayout::Block32 { 32 } else { 256 };
            assert_eq!(format.elems(), elems, "{format}");
        }
        for ty in [GgmlType::F32, GgmlType::F16, GgmlType::Q8_1, GgmlType::Q8_K, GgmlType::IQ2_XS] {
            assert_eq!(BlockFormat::from_ggml(ty), None);
        }
    }

    /// A row is filled anew each time, whatever it held before.
    #[test]
    fn rows_are_reused() {
        let mut reused = DecodedRow::new();
        decode_row(BlockFormat::Q4_K, &[0x5A; 2 * 144], &mut reused);
        for format in BlockFormat::ALL {
            let bytes = vec![0x2B; format.len_bytes()];
            decode_row(format, &bytes, &mut reused);
            let mut fresh = DecodedRow::new();
            decode_row(format, &bytes, &mut fresh);
            assert_eq!(format!("{reused:?}"), format!("{fresh:?}"));
            assert_eq!(reused.q.len(), format.elems());
        }
    }

    #[test]
    #[should_panic(expected = "a Q8_0 row is whole blocks of 34 bytes, not 33 bytes")]
    fn part_of_a_block_is_a_bug() {
        decode_row(BlockFormat::Q8_0, &[0; 33], &mut DecodedRow::new());
    }
}
