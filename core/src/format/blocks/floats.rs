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

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, for every pattern: (-1)^s * 2^(e-25) * (1024 + f), and 2^-24 * f for subnormals.
    #[test]
    fn every_f16_is_exact() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10) & 31, f64::from(half & 1023));
            let found = f16_to_f32(half);
            assert_eq!(found.is_sign_negative(), half >> 15 == 1, "{half:04x}");
            let magnitude = match exponent {
                31 => {
                    assert_eq!((found.is_infinite(), found.is_nan()), (fraction == 0.0, fraction != 0.0));
                    continue;
                }
                0 => libm::scalbn(fraction, -24),
                _ => libm::scalbn(1024.0 + fraction, exponent - 25),
            };
            assert_eq!(f64::from(found).abs(), magnitude, "{half:04x}");
        }
    }

    #[test]
    fn floats_expand_from_little_endian() {
        let mut out = vec![9.0];
        expand_floats(FloatSource::F32, &[0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0], &mut out);
        assert_eq!(out, [1.0, -2.0]);
        expand_floats(FloatSource::F16, &[0x00, 0x3C, 0x01, 0x80], &mut out);
        assert_eq!(out, [1.0, -f32::from_bits(103 << 23)]);
        expand_floats(FloatSource::BF16, &[0x80, 0x3F, 0x01, 0x80], &mut out);
        assert_eq!(out.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), [0x3F80_0000, 0x8001_0000]);
    }
}
