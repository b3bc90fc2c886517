//! Inputs of samples: the same for the same seed, and bytes of them.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, check_row, decode_row};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::range::is_below;

/// What lies where nobody has written, or where nobody may read.
pub const POISON: u8 = 0xEE;
/// A word of it.
pub const POISON_WORD: u32 = u32::from_le_bytes([POISON; 4]);

/// Random words.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Rows of values of either sign whose magnitudes differ widely, from 2^-12 to 2^12; some are zero.
pub fn rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    let mut value = move || {
        let word = next();
        let exponent = 127 - 12 + (word >> 40) as u32 % 24;
        if word >> 60 == 0 { 0.0 } else { f32::from_bits((word as u32 & 0x807F_FFFF) | exponent << 23) }
    };
    (0..count * width).map(|_| value()).collect()
}

/// [`rows`] of which the second is negative zeros, and the third partly below what quantisers keep.
pub fn hard_rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut x = rows(count, width, seed);
    for (number, row) in x.chunks_mut(width).enumerate() {
        match number % 5 {
            1 => row.fill(-0.0),
            2 => row.iter_mut().for_each(|x| *x *= pow2(-44)),
            _ => {}
        }
    }
    x
}

/// Blocks of random bytes that may be used as weights; scales and minima in f16 are below 2^9, some subnormal.
pub fn blocks(format: BlockFormat, count: usize, seed: u64) -> Vec<u8> {
    let mut next = random(seed ^ format as u64);
    let mut row = DecodedRow::new();
    let mut bytes = Vec::with_capacity(count * format.len_bytes());
    while bytes.len() < count * format.len_bytes() {
        let mut block: Vec<u8> = (0..format.len_bytes()).map(|_| (next() >> 32) as u8).collect();
        if format == BlockFormat::MXFP4 {
            // From below the smallest exponent that counts to the largest that is allowed.
            block[0] = 90 + block[0] % 59;
        }
        if check_row(format, &block).is_err() {
            continue;
        }
        decode_row(format, &block, &mut row);
        let is_moderate = row.scales.iter().chain(&row.minima).all(|&x| is_below(x, pow2(9)));
        if format == BlockFormat::MXFP4 || is_moderate {
            bytes.extend(block);
        }
    }
    bytes
}

/// Little-endian bytes.
pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Little-endian bytes.
pub fn word_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words of little-endian bytes.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// Floats of little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_bits).collect()
}

/// Bit patterns: what tests compare.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Words of flags: 1 for what is out of range.
pub fn flags(in_range: &[bool]) -> Vec<u32> {
    in_range.iter().map(|&fits| u32::from(!fits)).collect()
}
