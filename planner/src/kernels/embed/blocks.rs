//! One element of a quantised block, as `core::format::blocks` takes it apart.

use unisonic_core::format::blocks::{BlockFormat, ScaleLayout};
use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};

use super::super::elementary::snap;
use super::source::{Bytes, sign_extend};

/// The 16 levels of IQ4_NL and IQ4_XS as bytes of words.
const IQ4_LEVELS: [u32; 4] = [0xBFAD_9881, 0xF6EA_DDCF, 0x2619_0D01, 0x7159_4535];
/// The doubled values of MXFP4 as bytes of words.
const MXFP4_LEVELS: [u32; 4] = [0x0302_0100, 0x0C08_0604, 0xFDFE_FF00, 0xF4F8_FAFC];

/// Element `j` of a block (`core::numerics::embedding::embed_row`).
pub fn element<'k>(k: &'k Build, format: BlockFormat, block: Bytes<'k>, j: V<'k>) -> V<'k> {
    let q = integer(k, format, block, j);
    let (d_at, m_at) = scales_at(format);
    let half = |at: u32| block.half(k.u32(at)).half(0);
    let d = if format == BlockFormat::MXFP4 { mxfp4_scale(k, block) } else { half(d_at) };
    let value = match (format.scale_layout(), m_at) {
        (ScaleLayout::Block32 | ScaleLayout::Block256, None) => q.to_f32() * d,
        (ScaleLayout::Block32 | ScaleLayout::Block256, Some(m_at)) => d * q.to_f32() + half(m_at),
        (_, None) => (sub_scale(k, format, block, j).0 * q).to_f32() * d,
        (_, Some(m_at)) => {
            let (scale, minimum) = sub_scale(k, format, block, j);
            (d * scale.to_f32()) * q.to_f32() - half(m_at) * minimum.to_f32()
        }
    };
    snap(k, value)
}

/// Byte offsets of the f16 scale and, where there is one, of the f16 minimum.
fn scales_at(format: BlockFormat) -> (u32, Option<u32>) {
    match format {
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K => (0, Some(2)),
        BlockFormat::Q2_K => (80, Some(82)),
        BlockFormat::Q3_K => (108, None),
        BlockFormat::Q6_K => (208, None),
        BlockFormat::TQ1_0 => (52, None),
        BlockFormat::TQ2_0 => (64, None),
        _ => (0, None),
    }
}

/// `2^(e - 128)`, +0 below e = 100. The loader refuses e above 148.
fn mxfp4_scale<'k>(k: &'k Build, block: Bytes<'k>) -> V<'k> {
    let e = block.byte(k.u32(0));
    e.lt(k.u32(100)).select(k.u32(0), (e - 1) << 23).cast(Scalar::F32)
}

/// q of element `j`, i32.
fn integer<'k>(k: &'k Build, format: BlockFormat, block: Bytes<'k>, j: V<'k>) -> V<'k> {
    let signed = |bits: V<'k>| bits.cast(Scalar::I32);
    // Element j of a block of 32 in the low, j + 16 in the high half of byte j.
    let nibble = |at: u32| (block.byte((j & 15) + at) >> ((j >> 4) << 2)) & 15;
    // Byte l of run r of 32 holds elements 64r + l and 64r + 32 + l.
    let nibble_of_run = |at: u32| (block.byte(((j >> 6) << 5) + (j & 31) + at) >> (((j >> 5) & 1) << 2)) & 15;
    // In each half of 128, element 32n + l lies in bits 2n of byte l.
    let pair = |at: u32| (block.byte(((j >> 7) << 5) + (j & 31) + at) >> (((j >> 5) & 3) << 1)) & 3;
    // Bit n of byte l is of element 32n + l.
    let bit_of_run = |at: u32| (block.byte((j & 31) + at) >> (j >> 5)) & 1;
    let fifth_bit = |at: u32| (block.byte((j >> 3) + at) >> (j & 7)) & 1;
    match format {
        BlockFormat::Q4_0 => signed(nibble(2)) - 8,
        BlockFormat::Q4_1 => signed(nibble(4)),
        BlockFormat::Q5_0 => signed(nibble(6) | (fifth_bit(2) << 4)) - 16,
        BlockFormat::Q5_1 => signed(nibble(8) | (fifth_bit(4) << 4)),
        BlockFormat::Q8_0 => sign_extend(block.byte(j + 2), 8),
        BlockFormat::Q2_K => signed(pair(16)),
        BlockFormat::Q3_K => signed(pair(32) | (bit_of_run(0) << 2)) - 4,
        BlockFormat::Q4_K => signed(nibble_of_run(16)),
        BlockFormat::Q5_K => signed(nibble_of_run(48) | (bit_of_run(16) << 4)),
        BlockFormat::Q6_K => {
            let (half, quarter) = (j >> 7, (j >> 5) & 3);
            let four = block.byte((half << 6) + ((quarter & 1) << 5) + (j & 31)) >> ((quarter >> 1) << 2);
            let two = block.byte((half << 5) + (j & 31) + 128) >> (quarter << 1);
            signed((four & 15) | ((two & 3) << 4)) - 32
        }
        BlockFormat::IQ4_NL => look_up(k, IQ4_LEVELS, nibble(2)),
        BlockFormat::MXFP4 => look_up(k, MXFP4_LEVELS, nibble(1)),
        BlockFormat::IQ4_XS => {
            let byte = block.byte(((j >> 5) << 4) + (j & 15) + 8);
            look_up(k, IQ4_LEVELS, (byte >> (((j >> 4) & 1) << 2)) & 15)
        }
        BlockFormat::TQ1_0 => signed(ternary_digit(k, block, j)) - 1,
        BlockFormat::TQ2_0 => signed(pair(0)) - 1,
    }
}

/// Byte `index` of four words, signed.
fn look_up<'k>(k: &'k Build, levels: [u32; 4], index: V<'k>) -> V<'k> {
    let [a, b, c, d] = levels.map(|word| k.u32(word));
    let low = index.lt(k.u32(4)).select(a, b);
    let high = index.lt(k.u32(12)).select(c, d);
    sign_extend(index.lt(k.u32(8)).select(low, high) >> ((index & 3) << 3), 8)
}

/// Digit n of a byte is `((byte*3^n mod 256)*3) >> 8`. Bytes 0..31 hold elements 0..159 (digit n of byte m is
/// element 32n + m), bytes 32..47 elements 160..239, bytes 48..51 the rest.
fn ternary_digit<'k>(k: &'k Build, block: Bytes<'k>, j: V<'k>) -> V<'k> {
    let second = j - 160;
    let third = j - 240;
    let (is_first, is_third) = (j.lt(k.u32(160)), k.u32(239).lt(j));
    let number = is_first.select(j >> 5, is_third.select(third >> 2, second >> 4));
    let byte = is_first.select(j & 31, is_third.select((third & 3) + 48, (second & 15) + 32));
    // 1, 3, 9 and 27 are bytes of a word; a fifth digit takes 81.
    let power = number.lt(k.u32(4)).select((k.u32(0x1B09_0301) >> ((number & 3) << 3)) & 0xFF, k.u32(81));
    (((block.byte(byte) * power) & 0xFF) * 3) >> 8
}

/// The integer scale and minimum of the sub-block of element `j`, i32. The minimum is the scale where there is
/// none.
fn sub_scale<'k>(k: &'k Build, format: BlockFormat, block: Bytes<'k>, j: V<'k>) -> (V<'k>, V<'k>) {
    let signed = |bits: V<'k>| bits.cast(Scalar::I32);
    let one = |scale: V<'k>| (scale, scale);
    match format {
        BlockFormat::Q2_K => {
            let byte = block.byte(j >> 4);
            (signed(byte & 15), signed(byte >> 4))
        }
        BlockFormat::Q3_K => {
            let s = j >> 4;
            let low = (block.byte((s & 7) + 96) >> ((s >> 3) << 2)) & 15;
            let high = (block.byte((s & 3) + 104) >> ((s >> 2) << 1)) & 3;
            one(signed(low | (high << 4)) - 32)
        }
        BlockFormat::Q6_K => one(sign_extend(block.byte((j >> 4) + 192), 8)),
        BlockFormat::IQ4_XS => {
            let s = j >> 5;
            let low = (block.byte((s >> 1) + 4) >> ((s & 1) << 2)) & 15;
            let high = (block.half(k.u32(2)) >> (s << 1)) & 3;
            one(signed(low | (high << 4)) - 32)
        }
        _ => six_bit_scale(k, block, j >> 5),
    }
}

/// (sc, mn) of sub-block `s` of Q4_K and Q5_K: six bits each, in bytes 4..15.
fn six_bit_scale<'k>(k: &'k Build, block: Bytes<'k>, s: V<'k>) -> (V<'k>, V<'k>) {
    let is_first = s.lt(k.u32(4));
    let (first, second) = (block.byte((s & 3) + 4), block.byte((s & 3) + 8));
    let third = block.byte((s & 3) + 12);
    let scale = is_first.select(first & 63, (third & 15) | ((first >> 6) << 4));
    let minimum = is_first.select(second & 63, (third >> 4) | ((second >> 6) << 4));
    (scale.cast(Scalar::I32), minimum.cast(Scalar::I32))
}
