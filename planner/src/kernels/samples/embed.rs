//! Samples of embedding tables: quantised blocks, and floats as W16.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row, expand_floats};
use unisonic_core::numerics::embedding::{embed_row, embed_w16_row};
use unisonic_core::numerics::float::pow2;
use unisonic_core::plan::FloatSource;

use super::super::{GridKernel, Lookup, embed_blocks, embed_floats};
use super::buffers::Buffers;
use super::data::{POISON, blocks, bytes, rows, word_bytes};
use super::planes::W16Rows;
use super::rows::row_sample;
use super::{DEVICES, Extent, Sample};

const TABLE_ROWS: usize = 5;
const TOKENS: [u32; 4] = [2, 0, 4, 2];
/// With the last, rows past the table are its last.
const LOOKUPS: [Lookup; 3] = [Lookup::Token(None), Lookup::Token(Some(25.3)), Lookup::Position(2)];

/// Samples of [`embed_blocks`].
pub fn embed_blocks_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const BLOCKS: [usize; 3] = [1, 3, 9];
    let choices = extent.combinations([BlockFormat::ALL.len(), BLOCKS.len(), LOOKUPS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[format, count, of, device]| {
        let (format, count, of) = (BlockFormat::ALL[format], BLOCKS[count], LOOKUPS[of]);
        let (width, row_len_bytes) = (count * format.elems(), count * format.len_bytes());
        let table = blocks(format, TABLE_ROWS * count, 1);
        let row = |bytes: &[u8]| {
            let (mut row, mut out) = (DecodedRow::new(), vec![0.0; width]);
            decode_row(format, bytes, &mut row);
            embed_row(&row, &mut out);
            out
        };
        let buffers = buffers(table, row_len_bytes, row, of);
        sample(embed_blocks(format, width as u32, of), &format, width, of, buffers, device)
    }))
}

/// Samples of [`embed_floats`].
pub fn embed_floats_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const SOURCES: [FloatSource; 3] = [FloatSource::F32, FloatSource::F16, FloatSource::BF16];
    const WIDTHS: [usize; 4] = [64, 31, 300, 576];
    let choices = extent.combinations([SOURCES.len(), WIDTHS.len(), LOOKUPS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[source, width, of, device]| {
        let (source, width, of) = (SOURCES[source], WIDTHS[width], LOOKUPS[of]);
        let row_len_bytes = width * source.len_bytes();
        let row = |bytes: &[u8]| {
            let (mut weights, mut out) = (Vec::new(), vec![0.0; width]);
            expand_floats(source, bytes, &mut weights);
            embed_w16_row(&W16Rows::new(&weights, width).row(0), &mut out);
            out
        };
        let buffers = buffers(float_table(source, width), row_len_bytes, row, of);
        let name = format!("{source:?}");
        sample(embed_floats(source, width as u32, of), &name, width, of, buffers, device)
    }))
}

/// A table with a block that is partly below the quantiser's floor, and zeros.
fn float_table(source: FloatSource, width: usize) -> Vec<u8> {
    let mut values = rows(TABLE_ROWS, width, 3);
    values[..32.min(width)].iter_mut().for_each(|x| *x *= pow2(-42));
    values[2 * width..2 * width + 16].fill(0.0);
    let bytes_of = |x: f32| match source {
        FloatSource::F32 => x.to_le_bytes().to_vec(),
        // Any finite pattern will do; subnormals too.
        FloatSource::F16 => ((x.to_bits() >> 9) as u16 & 0xBBFF).to_le_bytes().to_vec(),
        FloatSource::BF16 => ((x.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
    };
    values.into_iter().flat_map(bytes_of).collect()
}

/// The table with poison for rows of which there is no token, the tokens, and their rows.
fn buffers(mut table: Vec<u8>, row_len_bytes: usize, row: impl Fn(&[u8]) -> Vec<f32>, of: Lookup) -> Buffers {
    let (last, scale) = match of {
        Lookup::Token(scale) => (u32::MAX, scale),
        Lookup::Position(last) => (last, None),
    };
    let of_row = |&token: &u32| row(&table[token.min(last) as usize * row_len_bytes..][..row_len_bytes]);
    let values = TOKENS.iter().flat_map(of_row);
    let out: Vec<f32> = values.map(|x| scale.map_or(x, |scale| x * scale)).collect();
    for (number, row) in (0..).zip(table.chunks_mut(row_len_bytes)) {
        if !TOKENS.contains(&number) {
            row.fill(POISON);
        }
    }
    table.resize(table.len().next_multiple_of(4), POISON);
    Buffers::default().read(table).read(word_bytes(&TOKENS)).write(bytes(&out))
}

fn sample(
    template: GridKernel,
    format: &dyn std::fmt::Display,
    width: usize,
    of: Lookup,
    buffers: Buffers,
    device: usize,
) -> Sample {
    let what = format!("{width} of {format}, {of:?}");
    row_sample(template, what, TOKENS.len(), buffers, device)
}
