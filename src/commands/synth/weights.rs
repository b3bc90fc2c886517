//! Random values of tensors, written directly as blocks.
//!
//! The random bits are Philox4x32-10 words with the seed as key; the counter is the number of the draw within the
//! tensor and a digest of the tensor's name. So a tensor's bytes depend on seed, name, type and row length alone: not on the
//! machine, on the order in which tensors are written, or on how many layers there are.

use half::{bf16, f16};
use sha2::{Digest, Sha256};
use unisonic_core::format::GgmlType;
use unisonic_core::numerics::philox::philox4x32_10;

/// Bytes of a draw.
const DRAW_LEN_BYTES: usize = 16;

/// Random values of one tensor.
pub struct Weights {
    key: [u32; 2],
    name: [u32; 2],
    ty: GgmlType,
    /// Standard deviation of the values.
    standard_deviation: f64,
    /// Mean of the values.
    mean: f64,
}

impl Weights {
    /// `standard_deviation` and `mean` of the values; a mean other than 0 is for floats only.
    pub fn new(seed: u64, name: &str, ty: GgmlType, standard_deviation: f64, mean: f64) -> Self {
        let digest = Sha256::digest(name);
        let word = |i: usize| u32::from_le_bytes([digest[i], digest[i + 1], digest[i + 2], digest[i + 3]]);
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            name: [word(0), word(4)],
            ty,
            standard_deviation,
            mean,
        }
    }

    /// Bytes that are filled at a time: a block, or a few floats.
    pub fn unit_len_bytes(&self) -> usize {
        match self.ty.block_elems() {
            1 => DRAW_LEN_BYTES,
            _ => self.ty.block_len_bytes() as usize,
        }
    }

    /// Fills whole units, of which the first has this number in the tensor. A part of a unit at the end of a tensor of
    /// floats is filled as well.
    pub fn fill(&self, first_unit: u64, bytes: &mut [u8]) {
        let unit_len = self.unit_len_bytes();
        let draws = unit_len.div_ceil(DRAW_LEN_BYTES) as u64;
        for (unit, bytes) in (first_unit..).zip(bytes.chunks_mut(unit_len)) {
            for (draw, bytes) in (unit * draws..).zip(bytes.chunks_mut(DRAW_LEN_BYTES)) {
                let words = self.draw(draw).map(u32::to_le_bytes);
                bytes.iter_mut().zip(words.as_flattened()).for_each(|(byte, &random)| *byte = random);
            }
            self.shape(bytes);
        }
    }

    fn draw(&self, index: u64) -> [u32; 4] {
        philox4x32_10([index as u32, (index >> 32) as u32, self.name[0], self.name[1]], self.key)
    }

    /// Turns random bits into a block: quants stay what they are, scales get the size that gives the standard
    /// deviation.
    fn shape(&self, bytes: &mut [u8]) {
        match self.ty {
            GgmlType::F32 => floats::<4>(bytes, |b| (self.uniform(u32::from_le_bytes(b))).to_le_bytes()),
            GgmlType::F16 => floats::<2>(bytes, |b| f16::from_f32(self.uniform(high(b))).to_le_bytes()),
            GgmlType::BF16 => floats::<2>(bytes, |b| bf16::from_f32(self.uniform(high(b))).to_le_bytes()),
            GgmlType::Q4_0 => self.block32(4, None, bytes),
            GgmlType::Q5_0 => self.block32(5, None, bytes),
            GgmlType::Q8_0 => self.block32(8, None, bytes),
            GgmlType::Q4_1 => self.block32(4, Some(7.5), bytes),
            GgmlType::Q5_1 => self.block32(5, Some(15.5), bytes),
            GgmlType::Q3_K => self.q3_k(bytes),
            GgmlType::Q4_K => self.sub_blocks32(4, 7.5, bytes),
            GgmlType::Q5_K => self.sub_blocks32(5, 15.5, bytes),
            GgmlType::Q6_K => self.q6_k(bytes),
            // No mixture of `quant` names another type.
            other => unreachable!("{other} is not written"),
        }
    }

    /// A value of the uniform distribution with this mean and standard deviation, from the upper 24 bits of a word.
    fn uniform(&self, word: u32) -> f32 {
        let unit = (f64::from(word >> 8) + 0.5) / f64::from(1 << 24);
        (self.mean + (2.0 * unit - 1.0) * self.standard_deviation * libm::sqrt(3.0)) as f32
    }

    /// f16 d, and for formats with a minimum f16 m = -centre * d; then quants of `bits` bits. Without a minimum the
    /// levels reach one further down than up, so that d has either sign, for a mean of 0.
    fn block32(&self, bits: u32, centre: Option<f64>, bytes: &mut [u8]) {
        let d = self.standard_deviation / level_standard_deviation(bits) * variation(bytes[0]);
        match centre {
            Some(centre) => {
                put_f16(bytes, 0, d);
                put_f16(bytes, 2, -centre * d);
            }
            None => put_f16(bytes, 0, if bytes[1] & 1 == 0 { d } else { -d }),
        }
    }

    /// Q4_K and Q5_K: f16 d, f16 dmin, 12 bytes of six-bit scales and minima. A value is `d*sc*q - dmin*mn`; mn = sc
    /// and dmin = centre * d make it `d*sc*(q - centre)`. Scales are 32 to 63.
    fn sub_blocks32(&self, bits: u32, centre: f64, bytes: &mut [u8]) {
        let scales: [u8; 8] = std::array::from_fn(|j| 32 | bytes[4 + j] & 31);
        let d = self.standard_deviation / level_standard_deviation(bits) / root_mean_square(32..64);
        put_f16(bytes, 0, d);
        put_f16(bytes, 2, centre * d);
        for j in 0..4 {
            let (low, high) = (scales[j], scales[j + 4]);
            bytes[4 + j] = low | (high >> 4) << 6;
            bytes[8 + j] = low | (high >> 4) << 6;
            bytes[12 + j] = (high & 15) | (high & 15) << 4;
        }
    }

    /// Random six-bit scales, of which 32 is 0, so that a sub-block has either sign and any size; f16 d at the end. Levels
    /// are -4 to 3.
    fn q3_k(&self, bytes: &mut [u8]) {
        let levels = root_mean_square(-4..4);
        put_f16(bytes, 108, self.standard_deviation / levels / root_mean_square(-32..32));
    }

    /// Signed scales of 64 to 127 in either sign, for a mean of 0; f16 d at the end.
    fn q6_k(&self, bytes: &mut [u8]) {
        for scale in &mut bytes[192..208] {
            let magnitude = (64 | *scale & 63) as i8;
            *scale = (if *scale & 64 == 0 { magnitude } else { -magnitude }) as u8;
        }
        put_f16(
            bytes,
            208,
            self.standard_deviation / level_standard_deviation(6) / root_mean_square(64..128),
        );
    }
}

fn floats<const N: usize>(bytes: &mut [u8], float: impl Fn([u8; N]) -> [u8; N]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|bytes| *bytes = float(*bytes));
}

/// 16 random bits as the upper half of a word.
fn high(bytes: [u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(bytes)) << 16
}

/// Standard deviation of the integers of this many bits, all equally likely.
fn level_standard_deviation(bits: u32) -> f64 {
    let levels = f64::from(1u32 << bits);
    libm::sqrt((levels * levels - 1.0) / 12.0)
}

fn root_mean_square(range: std::ops::Range<i32>) -> f64 {
    let count = range.len() as f64;
    libm::sqrt(range.map(|n| f64::from(n * n)).sum::<f64>() / count)
}

/// Blocks differ: 0.75 to 1.25, by a random byte.
fn variation(byte: u8) -> f64 {
    0.75 + f64::from(byte) / 512.0
}

fn put_f16(bytes: &mut [u8], at: usize, value: f64) {
    bytes[at..at + 2].copy_from_slice(&f16::from_f64(value).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use unisonic_core::format::blocks::{BlockFormat, bf16_to_f32, check_row, f16_to_f32};

    use super::*;

    const TYPES: [GgmlType; 12] = [
        GgmlType::F32,
        GgmlType::F16,
        GgmlType::BF16,
        GgmlType::Q4_0,
        GgmlType::Q4_1,
        GgmlType::Q5_0,
        GgmlType::Q5_1,
        GgmlType::Q8_0,
        GgmlType::Q4_K,
        GgmlType::Q5_K,
        GgmlType::Q6_K,
        GgmlType::Q3_K,
    ];

    /// Values of a row, decoded by the reader of the core.
    fn values(ty: GgmlType, bytes: &[u8]) -> Vec<f32> {
        use unisonic_core::format::blocks::{DecodedRow, decode_row};
        use unisonic_core::numerics::embedding::embed_row;
        match ty {
            GgmlType::F32 => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
            GgmlType::F16 => bytes.as_chunks().0.iter().map(|&b| f16_to_f32(u16::from_le_bytes(b))).collect(),
            GgmlType::BF16 => {
                bytes.as_chunks().0.iter().map(|&b| bf16_to_f32(u16::from_le_bytes(b))).collect()
            }
            ty => {
                let format = BlockFormat::from_ggml(ty).expect("a block format");
                check_row(format, bytes).expect("usable blocks");
                let mut row = DecodedRow::new();
                decode_row(format, bytes, &mut row);
                let mut out = vec![0.0; row.q.len()];
                embed_row(&row, &mut out);
                out
            }
        }
    }

    #[test]
    fn values_have_the_deviation_that_was_asked_for() {
        for ty in TYPES {
            let weights = Weights::new(1, "blk.0.attn_q.weight", ty, 1.0 / 64.0, 0.0);
            let mut bytes = vec![0; weights.unit_len_bytes() * 256];
            weights.fill(0, &mut bytes);
            let values = values(ty, &bytes);
            let square: f64 = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            let standard_deviation = libm::sqrt(square / values.len() as f64) * 64.0;
            assert!((0.93..1.07).contains(&standard_deviation), "{ty}: {standard_deviation}");
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64 * 64.0;
            assert!((-0.05..0.05).contains(&mean), "{ty}: {mean}");
        }
    }

    #[test]
    fn bytes_do_not_depend_on_how_they_are_cut() {
        for ty in TYPES {
            let weights = Weights::new(7, "x", ty, 0.1, 0.0);
            let unit = weights.unit_len_bytes();
            let mut whole = vec![0; unit * 5];
            weights.fill(0, &mut whole);
            let mut tail = vec![0; unit * 2];
            weights.fill(3, &mut tail);
            assert_eq!(whole[3 * unit..], tail, "{ty}");
        }
    }

    #[test]
    fn seed_and_name_change_the_bytes() {
        let bytes = |seed, name| {
            let mut bytes = [0; 18];
            Weights::new(seed, name, GgmlType::Q4_0, 0.1, 0.0).fill(0, &mut bytes);
            bytes
        };
        assert_ne!(bytes(0, "a"), bytes(1, "a"));
        assert_ne!(bytes(0, "a"), bytes(0, "b"));
        assert_ne!(bytes(0, "a"), bytes(1 << 32, "a"));
    }

    /// The same on every machine, for as long as files of a seed are to stay what they are.
    #[test]
    fn bytes_of_a_seed_are_known() {
        let of = |types: &[GgmlType]| {
            let mut digest = Sha256::new();
            for &ty in types {
                let weights = Weights::new(42, "blk.0.ffn_down.weight", ty, 1.0 / 32.0, 0.0);
                let mut bytes = vec![0; weights.unit_len_bytes() * 3];
                weights.fill(1 << 33, &mut bytes);
                digest.update(bytes);
            }
            format!("{:x}", digest.finalize())
        };
        let (first, later) = TYPES.split_at(11);
        assert_eq!(of(first), "32a4efbd337617242a4b4cea1f8400b362bb3f0cd7f1efcd25487d28aef2d420");
        assert_eq!(of(later), "ab23aefb387884df369b737d2ae5b948e443123d25839bf184f7255dd453e226");
    }
}
