//! Half-width floats as f32, by integer code: no rounding, subnormals included.

use crate::plan::FloatSource;

/// IEEE binary16 to f32. Exact for every finite value; a binary16 subnormal becomes a normal f32.
pub fn f16_to_f32(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10) & 31;
    let fraction = u32::from(half) & 1023;
    f32::from_bits(match (exponent, fraction) {
        (0, 0) => sign,
        (0, _) => {
            let top = fraction.ilog2();
            sign | ((top + 103) << 23) | ((fraction << (23 - top)) & 0x7F_FFFF)
        }
        (31, _) => sign | 0x7F80_0000 | (fraction << 13),
        _ => sign | ((exponent + 112) << 23) | (fraction << 13),
    })
}

/// bfloat16 to f32: the upper half of the pattern.
pub fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The little-endian binary16 in bytes `at` and `at + 1` of a block.
pub(super) fn f16_at<const N: usize>(block: &[u8; N], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// Elements of a float tensor (little-endian, whole elements) as f32; replaces the contents of `out`.
pub fn expand_floats(source: FloatSource, bytes: &[u8], out: &mut Vec<f32>) {
    out.clear();
    let halves = bytes.as_chunks::<2>().0.iter().map(|&half| u16::from_le_bytes(half));
    match source {
        FloatSource::F32 => out.extend(bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word))),
        FloatSource::F16 => out.extend(halves.map(f16_to_f32)),
        FloatSource::BF16 => out.extend(halves.map(bf16_to_f32)),
    }
}
