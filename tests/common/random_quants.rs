//! Tiny llamas whose matrices are random blocks, of types that no committed file has.

use std::path::Path;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::format::{GgufFile, GgufWriter};
use unisonic_core::numerics::philox::random_word;
use unisonic_core::plan::WeightSource;

/// The types, by name.
pub const TYPES: [&str; 4] = ["IQ4_XS", "MXFP4", "TQ1_0", "TQ2_0"];

/// Writes the committed Q4_0 llama with random blocks in the place of its matrices. The same bytes every time:
/// `tests/data/goldens/tiny/quants-f32deq/llama-random-TYPE.json` is of them.
pub fn write(ty: &str, path: &Path) {
    let source = GgufFile::open(&super::quant("Q4_0")).unwrap();
    let format = BlockFormat::ALL.into_iter().find(|format| format.name() == ty).unwrap();
    let mut writer = GgufWriter::from_metadata(source.metadata());
    for (number, tensor) in (0..).zip(source.tensors()) {
        writer = match tensor.dims[..] {
            [cols, rows] => {
                let gain = match &tensor.name[..] {
                    "token_embd.weight" => 4,
                    "output.weight" => 1,
                    _ => 0,
                };
                // Weights of about gain/sqrt(cols).
                let exponent = gain - cols.ilog2() as i32 / 2;
                let count = (rows * cols) as usize / format.elems();
                let bytes = (0..count as u32).flat_map(|index| block(format, number, index, exponent));
                writer.tensor(&tensor.name, format.ggml_type(), &tensor.dims, bytes.collect::<Vec<u8>>())
            }
            _ => {
                let bytes = source.read(&tensor.name).unwrap();
                writer.tensor(&tensor.name, tensor.ty, &tensor.dims, bytes)
            }
        };
    }
    writer.write(path).unwrap();
}

/// Random integers, and a scale that makes weights of about 2^exponent of them.
fn block(format: BlockFormat, tensor: u32, index: u32, exponent: i32) -> Vec<u8> {
    let words = (0..format.len_bytes().div_ceil(4) as u32).map(|word| random_word(7, tensor, index, word));
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(format.len_bytes());
    if format == BlockFormat::TQ2_0 {
        // Of the four codes of two bits three are used.
        let codes = |byte: u8| (0..4).map(|n| (byte / 3_u8.pow(n) % 3) << (2 * n)).sum();
        bytes.iter_mut().for_each(|byte| *byte = codes(*byte));
    }
    // Of values of 2^n and a scale, of f16 or an exponent by itself.
    let half = |exponent: i32| match exponent + 14 {
        0.. => ((exponent + 15) as u16) << 10,
        below => 1 << (10 + below),
    };
    let (at, scale) = match format {
        BlockFormat::IQ4_XS => (0, half(exponent - 10).to_le_bytes().to_vec()),
        BlockFormat::MXFP4 => (0, vec![(128 + exponent - 3) as u8]),
        BlockFormat::TQ1_0 => (52, half(exponent).to_le_bytes().to_vec()),
        BlockFormat::TQ2_0 => (64, half(exponent).to_le_bytes().to_vec()),
        other => panic!("{other} has files"),
    };
    bytes[at..at + scale.len()].copy_from_slice(&scale);
    bytes
}
