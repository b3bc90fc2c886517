use unisonic_core::format::blocks::{BlockFormat, DecodedRow, check_row, decode_row, expand_floats};
use unisonic_core::numerics::embedding::{embed_row, embed_w16_row};
use unisonic_core::numerics::w16::{W16Row, quantize_w16, w16_plane_len, w16_scales_len};
use unisonic_core::plan::FloatSource;

use super::super::tests::{bits, floats, launch, random, rows, word_bytes};

const TOKENS: [u32; 4] = [2, 0, 4, 2];
const TABLE_ROWS: usize = 5;

/// Random blocks whose scales the range contract admits; subnormal scales too.
fn table(format: BlockFormat, row_len_bytes: usize) -> Vec<u8> {
    let mut next = random(format as u64 + 1);
    let block_len_bytes = format.len_bytes();
    let mut bytes = Vec::new();
    while bytes.len() < TABLE_ROWS * row_len_bytes {
        let mut block: Vec<u8> = (0..block_len_bytes).map(|_| (next() >> 32) as u8).collect();
        if format == BlockFormat::MXFP4 {
            block[0] = 90 + block[0] % 59;
        }
        if check_row(format, &block).is_ok() {
            bytes.extend(block);
        }
    }
    bytes
}

fn expected(rows: impl Fn(usize) -> Vec<f32>, scale: Option<f32>) -> Vec<u32> {
    let all: Vec<f32> = TOKENS.iter().flat_map(|&token| rows(token as usize)).collect();
    bits(&all.iter().map(|&x| scale.map_or(x, |scale| x * scale)).collect::<Vec<_>>())
}

fn found(kernel: &super::RowKernel, width: usize, mut table: Vec<u8>) -> Vec<u32> {
    table.resize(table.len().next_multiple_of(4), 0xEE);
    let buffers = vec![table, word_bytes(&TOKENS), vec![0xEE; 16 * width]];
    bits(&floats(&launch(kernel, TOKENS.len(), buffers)[2]))
}

#[test]
fn blocks_equal_the_reference() {
    for format in BlockFormat::ALL {
        for (blocks, scale) in [(1, None), (3, Some(25.3))] {
            let (width, row_len_bytes) = (blocks * format.elems(), blocks * format.len_bytes());
            let table = table(format, row_len_bytes);
            let row = |token: usize| {
                let (mut row, mut out) = (DecodedRow::new(), vec![0.0; width]);
                decode_row(format, &table[token * row_len_bytes..][..row_len_bytes], &mut row);
                embed_row(&row, &mut out);
                out
            };
            let kernel = super::embed_blocks(format, width as u32, scale);
            assert_eq!(found(&kernel, width, table.clone()), expected(row, scale), "{format}, {blocks}");
        }
    }
}

#[test]
fn floats_equal_w16() {
    for source in [FloatSource::F32, FloatSource::F16, FloatSource::BF16] {
        for (width, scale) in [(31, None), (64, None), (576, Some(24.0))] {
            let mut values = rows(TABLE_ROWS, width, 3);
            values[..32.min(width)].iter_mut().for_each(|x| *x *= f32::from_bits(0x2A80_0000));
            values[2 * width..2 * width + 16].fill(0.0);
            let mut table: Vec<u8> = Vec::new();
            for x in values {
                match source {
                    FloatSource::F32 => table.extend(x.to_le_bytes()),
                    // Any finite pattern will do; subnormals too.
                    FloatSource::F16 => table.extend(((x.to_bits() >> 9) as u16 & 0xBBFF).to_le_bytes()),
                    FloatSource::BF16 => table.extend(((x.to_bits() >> 16) as u16).to_le_bytes()),
                }
            }
            let row_len_bytes = width * source.len_bytes();
            let row = |token: usize| {
                let mut weights = Vec::new();
                expand_floats(source, &table[token * row_len_bytes..][..row_len_bytes], &mut weights);
                let mut planes = [vec![0; w16_plane_len(width)], vec![0; w16_plane_len(width)]];
                let mut scales = vec![0.0; w16_scales_len(width)];
                let [high, low] = &mut planes;
                quantize_w16(&weights, high, low, &mut scales).unwrap();
                let mut out = vec![0.0; width];
                embed_w16_row(&W16Row { high, low, scales: &scales }, &mut out);
                out
            };
            let kernel = super::embed_floats(source, width as u32, scale);
            assert_eq!(found(&kernel, width, table.clone()), expected(row, scale), "{source:?}, {width}");
        }
    }
}
