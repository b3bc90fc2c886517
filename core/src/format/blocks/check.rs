//! What the range contract asks of a quantised row (docs/numerics.md "Range contract"), checked once when it is loaded.

use super::codebook::MXFP4_MAX_EXPONENT;
use super::floats::f16_to_f32;
use super::{BlockFormat, GgmlType};

/// A block that the arithmetic is not defined for. The caller adds the tensor and the row.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadBlock {
    /// A scale or minimum is an infinity or NaN: the file is damaged.
    #[error("block {block}: {field} is {found}, but scales and minima are finite; the file is damaged")]
    NotFinite {
        /// Block of the row.
        block: usize,
        /// `scale` or `minimum`.
        field: &'static str,
        /// Its value.
        found: f32,
    },
    /// An MXFP4 exponent above 148, a scale above 2^20.
    #[error("block {block}: MXFP4 exponent {found}, but profile u1 is defined up to 148 (a scale of 2^20)")]
    Exponent {
        /// Block of the row.
        block: usize,
        /// Exponent byte.
        found: u8,
    },
    /// A float matrix holds a value that is not finite or above 2^24.
    #[error(
        "block {block} of 32: largest magnitude {found}, but float matrices hold finite values up to 2^24"
    )]
    Magnitude {
        /// Block of the row.
        block: usize,
        /// The largest magnitude.
        found: f32,
    },
    /// Not whole blocks.
    #[error("{format} rows are whole blocks of {block_len_bytes} bytes, but this one has {found} bytes")]
    Length {
        /// Format.
        format: GgmlType,
        /// Bytes of its blocks.
        block_len_bytes: usize,
        /// Bytes of the row.
        found: usize,
    },
}

/// Whether a row (or any number of rows: whole blocks) may be used: its scales and minima are finite, and MXFP4
/// exponents at most 148.
pub fn check_row(format: BlockFormat, bytes: &[u8]) -> Result<(), BadBlock> {
    let block_len_bytes = format.len_bytes();
    if !bytes.len().is_multiple_of(block_len_bytes) {
        let format = format.ggml_type();
        return Err(BadBlock::Length { format, block_len_bytes, found: bytes.len() });
    }
    for (index, block) in bytes.chunks_exact(block_len_bytes).enumerate() {
        if format == BlockFormat::MXFP4 {
            if block[0] > MXFP4_MAX_EXPONENT {
                return Err(BadBlock::Exponent { block: index, found: block[0] });
            }
            continue;
        }
        for &(field, at) in half_fields(format) {
            let half = u16::from_le_bytes([block[at], block[at + 1]]);
            if half & 0x7C00 == 0x7C00 {
                return Err(BadBlock::NotFinite { block: index, field, found: f16_to_f32(half) });
            }
        }
    }
    Ok(())
}

/// Names and byte offsets of a block's f16 fields.
pub(crate) fn half_fields(format: BlockFormat) -> &'static [(&'static str, usize)] {
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[("scale", 0)],
        BlockFormat::IQ4_NL | BlockFormat::IQ4_XS => &[("scale", 0)],
        BlockFormat::Q4_1 | BlockFormat::Q5_1 => &[("scale", 0), ("minimum", 2)],
        BlockFormat::Q4_K | BlockFormat::Q5_K => &[("scale", 0), ("minimum", 2)],
        BlockFormat::Q2_K => &[("scale", 80), ("minimum", 82)],
        BlockFormat::Q3_K => &[("scale", 108)],
        BlockFormat::Q6_K => &[("scale", 208)],
        BlockFormat::TQ1_0 => &[("scale", 52)],
        BlockFormat::TQ2_0 => &[("scale", 64)],
        BlockFormat::MXFP4 => &[],
    }
}
