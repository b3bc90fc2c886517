//! Unpacking the planes, written from the description of [`Plane`], gives exactly the integers and scales of `decode_row`.

use super::super::LayoutError;
use super::*;
use crate::format::blocks::f16_to_f32;
use crate::numerics::float::pow2;
use crate::numerics::w16::{quantize_w16, w16_plane_len, w16_scales_len};

struct Unpacked<'a> {
    layout: WeightLayout,
    group: &'a [u32],
}

impl Unpacked<'_> {
    fn word(&self, plane: Plane, at: usize) -> u32 {
        assert!(at < self.layout.plane_len(plane) as usize);
        self.group[self.layout.plane_offset(plane) as usize + at]
    }

    fn byte(&self, plane: Plane, word: usize, byte: usize) -> u8 {
        self.word(plane, word).to_le_bytes()[byte]
    }

    fn half(&self, plane: Plane, at: usize) -> f32 {
        f16_to_f32((self.word(plane, at / 2) >> (16 * (at % 2))) as u16)
    }

    /// Element k of a row, as the plane of bytes or the code of the other planes.
    fn integer(&self, plane: Plane, row: usize, k: usize) -> i8 {
        let (format, b, j) = (self.layout.format(), k / 32, k % 4);
        let (lane, p) = (4 * (row % 8) + k % 16 / 4, row / 8 + k % 32 / 16 * 2);
        if matches!(plane, Plane::Bytes | Plane::LowBytes) {
            return self.byte(plane, (b * 32 + lane) * 4 + p, j) as i8;
        }
        let (mut code, mut bits) = (0, 0);
        if format.has(Plane::Nibbles) {
            let word = (b / 2 * 32 + lane) * 4 + b % 2 * 2 + p % 2;
            code = self.byte(Plane::Nibbles, word, j) >> (p / 2 * 4) & 15;
            bits = 4;
        }
        if format.has(Plane::Pairs) {
            code |= (self.byte(Plane::Pairs, (b / 4 * 32 + lane) * 4 + b % 4, j) >> (2 * p) & 3) << bits;
            bits += 2;
        }
        if format.has(Plane::Bits) {
            let byte = self.byte(Plane::Bits, b / 8 * 128 + lane * 4 + b % 8 / 2, j);
            code |= (byte >> (p + b % 2 * 4) & 1) << bits;
        }
        match format.levels() {
            Some(levels) => levels[usize::from(code)],
            None => code as i8 - format.offset() as i8,
        }
    }
}

/// 2^(e-128), +0 below 100; above 148 is refused before.
fn mxfp4_scale(exponent: u8) -> f32 {
    if exponent < 100 { 0.0 } else { pow2(i32::from(exponent.min(148)) - 128) }
}

fn noise(len: usize) -> impl Iterator<Item = u8> {
    let mut state = len as u64 | 0x9E37_79B9_7F4A_7C15;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(len)
}

#[test]
fn planes_hold_what_the_rows_hold() {
    for format in WeightFormat::ALL {
        let WeightFormat::Block(block_format) = format else { continue };
        let widths: &[usize] =
            if block_format.elems() == 32 { &[32, 96, 256, 576, 640, 896] } else { &[256, 768] };
        for (&width, rows) in widths.iter().zip([16, 1, 7, 9, 16, 15]) {
            let layout = WeightLayout::new(format, rows, width).expect("a layout");
            let mut packer = GroupPacker::new(layout);
            let bytes: Vec<u8> = noise(rows * packer.row_len_bytes()).collect();
            let mut group = vec![0xDEAD_BEEF; layout.group_len() as usize];
            packer.pack(&bytes, &mut group);
            let unpacked = Unpacked { layout, group: &group };
            for row in 0..rows {
                let mut expected = DecodedRow::new();
                let bytes = &bytes[row * packer.row_len_bytes()..][..packer.row_len_bytes()];
                decode_row(block_format, bytes, &mut expected);
                check_row(&unpacked, row, &expected);
            }
            let ends = layout.plane_offset(*format.planes().last().expect("a plane"));
            assert_eq!(layout.group_len() % 4 + ends % 4, 0);
        }
    }
}

fn check_row(unpacked: &Unpacked<'_>, row: usize, expected: &DecodedRow) {
    let format = unpacked.layout.format();
    let plane = if format.has(Plane::Bytes) { Plane::Bytes } else { Plane::Nibbles };
    let q: Vec<i8> = (0..expected.q.len()).map(|k| unpacked.integer(plane, row, k)).collect();
    assert_eq!(q, expected.q, "{format}, row {row}");
    let bits = |values: Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let blocks = expected.scales.len();
    let of_blocks =
        |plane| (0..blocks).map(|b| unpacked.half(plane, b / 8 * 128 + row * 8 + b % 8)).collect();
    // d or dmin.
    let of_superblocks = |k: usize| -> Vec<f32> {
        let index = |s: usize| match format {
            WeightFormat::Block(BlockFormat::Q2_K) => unpacked.half(Plane::Halves, (s * 16 + row) * 2 + k),
            _ if format.has(Plane::Halves) => unpacked.half(Plane::Halves, s * 16 + row % 8 * 2 + row / 8),
            // Behind the 12 bytes of scales.
            _ => unpacked.half(Plane::SubScales, s * 128 + row * 8 + 6 + k),
        };
        (0..blocks).map(index).collect()
    };
    let (scales, minima): (Vec<f32>, Vec<f32>) = match format.has(Plane::BlockScales) {
        true if format.has(Plane::BlockMinima) => {
            (of_blocks(Plane::BlockScales), of_blocks(Plane::BlockMinima))
        }
        true => (of_blocks(Plane::BlockScales), vec![]),
        false if format == WeightFormat::Block(BlockFormat::MXFP4) => {
            let byte = |b| unpacked.byte(Plane::BlockBytes, b / 8 * 32 + row * 2 + b % 8 / 4, b % 4);
            ((0..blocks).map(|b| mxfp4_scale(byte(b))).collect(), vec![])
        }
        false if expected.minima.is_empty() => (of_superblocks(0), vec![]),
        false => (of_superblocks(0), of_superblocks(1)),
    };
    assert_eq!(bits(scales), bits(expected.scales.clone()), "{format}, row {row}");
    assert_eq!(bits(minima), bits(expected.minima.clone()), "{format}, row {row}");
    for (j, &scale) in expected.sub_scales.iter().enumerate() {
        match format {
            WeightFormat::Block(BlockFormat::Q4_K | BlockFormat::Q5_K) => {
                // As whole words at once, the way kernels take them apart.
                let w = [0, 1, 2].map(|i| unpacked.word(Plane::SubScales, j / 8 * 64 + row * 4 + i));
                let words = [
                    w[0] & 0x3F3F_3F3F,
                    w[2] & 0x0F0F_0F0F | w[0] >> 2 & 0x3030_3030,
                    w[1] & 0x3F3F_3F3F,
                    w[2] >> 4 & 0x0F0F_0F0F | w[1] >> 2 & 0x3030_3030,
                ];
                let byte = |words: &[u32]| words[j % 8 / 4].to_le_bytes()[j % 4] as i8;
                assert_eq!(byte(&words[..2]), scale, "{format}, row {row}");
                assert_eq!(byte(&words[2..]), expected.sub_minima[j], "{format}, row {row}");
            }
            WeightFormat::Block(BlockFormat::IQ4_XS) => {
                let found = unpacked.byte(Plane::BlockBytes, j / 8 * 32 + row * 2 + j % 8 / 4, j % 4);
                assert_eq!(found as i8, scale, "{format}, row {row}");
            }
            _ => {
                let found = unpacked.byte(Plane::SubScales, j / 16 * 64 + row * 4 + j % 16 / 4, j % 4);
                match expected.sub_minima.get(j) {
                    Some(&minimum) => assert_eq!(((found & 15) as i8, (found >> 4) as i8), (scale, minimum)),
                    None => assert_eq!(found as i8, scale, "{format}, row {row}"),
                }
            }
        }
    }
}

#[test]
fn w16_planes_hold_what_the_rows_hold() {
    for (rows, width) in [(16, 256), (3, 40), (9, 640)] {
        let layout = WeightLayout::new(WeightFormat::W16, rows, width).expect("a layout");
        let (len, scales_len) = (w16_plane_len(width), w16_scales_len(width));
        let floats: Vec<f32> = noise(rows * width).map(|byte| f32::from(byte) - 127.5).collect();
        let mut planes = (vec![0; rows * len], vec![0; rows * len], vec![0.0; rows * scales_len]);
        for row in 0..rows {
            let (high, low) = (&mut planes.0[row * len..][..len], &mut planes.1[row * len..][..len]);
            let scales = &mut planes.2[row * scales_len..][..scales_len];
            quantize_w16(&floats[row * width..][..width], high, low, scales).expect("values in range");
        }
        let w16_rows: Vec<W16Row<'_>> = (0..rows)
            .map(|row| W16Row {
                high: &planes.0[row * len..][..len],
                low: &planes.1[row * len..][..len],
                scales: &planes.2[row * scales_len..][..scales_len],
            })
            .collect();
        let mut group = vec![1; layout.group_len() as usize];
        GroupPacker::new(layout).pack_w16(&w16_rows, &mut group);
        let unpacked = Unpacked { layout, group: &group };
        for (r, row) in w16_rows.iter().enumerate() {
            for (plane, expected) in [(Plane::Bytes, row.high), (Plane::LowBytes, row.low)] {
                let found: Vec<i8> = (0..len).map(|k| unpacked.integer(plane, r, k)).collect();
                assert_eq!(found, expected);
            }
            for (b, scale) in row.scales.iter().enumerate() {
                assert_eq!(unpacked.word(Plane::FloatScales, b / 8 * 128 + r * 8 + b % 8), scale.to_bits());
            }
        }
    }
}

/// Whole superblocks take as many bytes as in the file, except for scales of Q3_K and IQ4_XS and digits of TQ1_0, which
/// are spread out.
#[test]
fn planes_are_as_large_as_the_file() {
    for format in WeightFormat::ALL {
        let WeightFormat::Block(block_format) = format else { continue };
        let layout = WeightLayout::new(format, 16, 512).expect("a layout");
        let in_file = 16 * 512 / block_format.elems() * block_format.len_bytes();
        let grown = match block_format {
            BlockFormat::Q3_K => 4,
            BlockFormat::IQ4_XS => 2,
            BlockFormat::TQ1_0 => 12,
            _ => 0,
        };
        assert_eq!(4 * layout.group_len() as usize, in_file + 16 * 2 * grown, "{format}");
    }
}

#[test]
fn matrices_that_do_not_fit_are_errors() {
    let q4_k = WeightFormat::Block(BlockFormat::Q4_K);
    assert_eq!(WeightLayout::new(q4_k, 0, 256), Err(LayoutError::Empty { rows: 0, width: 256 }));
    assert!(matches!(WeightLayout::new(q4_k, 16, 128), Err(LayoutError::Width { .. })));
    assert!(matches!(WeightLayout::new(q4_k, usize::MAX, 256), Err(LayoutError::TooLarge { .. })));
    assert!(matches!(WeightLayout::new(q4_k, 1 << 20, 1 << 20), Err(LayoutError::TooLarge { .. })));
    assert!(matches!(WeightLayout::new(q4_k, 1, 1 << 62), Err(LayoutError::TooLarge { .. })));
    assert!(WeightLayout::new(q4_k, 152_064, 3584).is_ok());
}
