//! Rows made to show a difference between kept and flushed subnormals: values around every threshold, on the smallest
//! grids, subnormal, zero of either sign, and anything. Each function runs an operation on row `row` and returns a digest
//! of every bit that came out.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, check_row, decode_row};
use unisonic_core::numerics::a16::{A16Row, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::activation::{gelu_gate, soft_cap, swiglu};
use unisonic_core::numerics::attention::{CHUNK, KvChunk, Q16, attend_chunk, finish};
use unisonic_core::numerics::embedding::{embed_row, embed_w16_row};
use unisonic_core::numerics::float::{pow2, snap};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::linear::linear_row;
use unisonic_core::numerics::merge::Merger;
use unisonic_core::numerics::moe::{Denominator, route, router_dot};
use unisonic_core::numerics::norm::{layer_norm, rms_norm};
use unisonic_core::numerics::rope::rotate;
use unisonic_core::numerics::w16::{W16Row, quantize_w16, w16_linear_row};
use unisonic_core::plan::RopeStyle;

use crate::generator::splitmix64;

/// A stream of random words of its own for every row and use.
pub struct Random {
    seed: u64,
    count: u64,
}

impl Random {
    pub fn new(row: u64, purpose: u64) -> Self {
        Self { seed: splitmix64(row, purpose), count: 0 }
    }

    fn word(&mut self) -> u64 {
        self.count += 1;
        splitmix64(self.seed, self.count)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    fn pick(&mut self, exponents: &[i32]) -> i32 {
        exponents[self.below(exponents.len() as u64) as usize]
    }

    /// A float of either sign with a random fraction and an exponent close to `exponent`; small ones are subnormal.
    fn near(&mut self, exponent: i32) -> f32 {
        let word = self.word();
        let biased = (127 + exponent - 2 + (word >> 40) as i32 % 5).max(0) as u32;
        let fraction = if word & 3 == 0 { 0 } else { (word >> 8) as u32 & 0x7F_FFFF };
        f32::from_bits(((word >> 63) as u32) << 31 | biased << 23 | fraction)
    }
}

/// Exponents at which something happens: the smallest normal numbers, the residual grid, the snaps, the quantisers'
/// floor, and ordinary values.
const EXPONENTS: [i32; 12] = [-149, -127, -126, -100, -83, -80, -62, -60, -40, -30, 0, 10];

/// Anything finite that a quantiser may meet.
fn any(random: &mut Random, n: usize) -> Vec<f32> {
    let (a, b) = (random.pick(&EXPONENTS), random.pick(&EXPONENTS));
    (0..n)
        .map(|_| match random.below(8) {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(random.word() as u32 & 0x807F_FFFF),
            3..5 => random.near(a),
            _ => random.near(b),
        })
        .collect()
}

/// What operations leave behind: 0, or at least 2^-60 in magnitude.
fn snapped(random: &mut Random, n: usize) -> Vec<f32> {
    let (a, b) = (random.pick(&[-62, -60, -50, -30, 0, 20]), random.pick(&[-60, -59, -40, 0]));
    (0..n).map(|_| snap(if random.below(2) == 0 { random.near(a) } else { random.near(b) })).collect()
}

/// A row of the residual stream: sums of snapped values, so 0 or a multiple of 2^-83.
pub fn residual(row: u64, n: usize) -> Vec<f32> {
    let mut random = Random::new(row, 1);
    if random.below(4) == 0 {
        return (0..n).map(|_| (random.below(1 << 20) as f32 - 524_288.0) * pow2(-83)).collect();
    }
    let (a, b) = (snapped(&mut random, n), snapped(&mut random, n));
    // With cancellation the second value is the first one but for its last bits.
    let almost = |a: f32, b: f32| f32::from_bits(a.to_bits() ^ (b.to_bits() & 7));
    let cancel = random.below(2) == 0;
    a.into_iter().zip(b).map(|(a, b)| if cancel && a != 0.0 { a - almost(a, b) } else { a + b }).collect()
}

/// FNV-1a over 32-bit patterns.
pub struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn word(&mut self, word: u32) {
        self.0 = (self.0 ^ u64::from(word)).wrapping_mul(0x100_0000_01B3);
    }

    fn floats(&mut self, values: &[f32]) {
        values.iter().for_each(|value| self.word(value.to_bits()));
    }

    fn plane(&mut self, values: &[i8]) {
        values.iter().for_each(|&value| self.word(u32::from(value as u8)));
    }
}

struct Activation {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Activation {
    fn of(x: &[f32]) -> Self {
        let (mut high, mut low) = (vec![0; plane_len(x.len())], vec![0; plane_len(x.len())]);
        let mut scales = vec![0.0; scales_len(x.len())];
        assert!(quantize_a16(x, &mut high, &mut low, &mut scales));
        Self { high, low, scales }
    }

    fn view(&self) -> A16Row<'_> {
        A16Row { high: &self.high, low: &self.low, scales: &self.scales }
    }
}

pub fn a16(row: u64) -> u64 {
    let mut digest = Digest::new();
    let row = Activation::of(&any(&mut Random::new(row, 2), 96));
    digest.plane(&row.high);
    digest.plane(&row.low);
    digest.floats(&row.scales);
    digest.0
}

pub fn norms(row: u64) -> u64 {
    let mut random = Random::new(row, 3);
    let x = residual(row, 64);
    let exponent = random.pick(&[-149, -60, 0, 57]);
    let weight: Vec<f32> = (0..64).map(|_| random.near(exponent)).collect();
    let bias = any(&mut random, 64);
    let eps = [pow2(-60), pow2(-40), 1e-5][random.below(3) as usize];
    let (mut digest, mut out) = (Digest::new(), [f32::NAN; 64]);
    digest.word(u32::from(rms_norm(&x, &weight, eps, &mut out)));
    digest.floats(&out);
    digest.word(u32::from(layer_norm(&x, &weight, &bias, eps, &mut out)));
    digest.floats(&out);
    digest.0
}

pub fn linear(row: u64) -> u64 {
    let mut random = Random::new(row, 4);
    let x = Activation::of(&any(&mut random, 256));
    let format = BlockFormat::ALL[random.below(15) as usize];
    let blocks = small_blocks(&mut random, format);
    let mut weights = DecodedRow::new();
    decode_row(format, &blocks, &mut weights);
    let bias = any(&mut random, 1)[0];
    let mut out = vec![f32::NAN; 256];
    embed_row(&weights, &mut out);
    let mut digest = Digest::new();
    digest.floats(&out);
    digest.floats(&[linear_row(&weights, &x.view(), None), linear_row(&weights, &x.view(), Some(bias))]);
    digest.0
}

/// 256 weights with random integers and scales that are mostly the smallest there are.
fn small_blocks(random: &mut Random, format: BlockFormat) -> Vec<u8> {
    let len = format.len_bytes();
    let mut bytes: Vec<u8> = (0..256 / format.elems() * len).map(|_| random.word() as u8).collect();
    let fields: &[usize] = match format {
        BlockFormat::MXFP4 => &[],
        BlockFormat::Q2_K => &[80, 82],
        BlockFormat::Q3_K => &[108],
        BlockFormat::Q6_K => &[208],
        BlockFormat::TQ1_0 => &[52],
        BlockFormat::TQ2_0 => &[64],
        _ if format.has_minimum() => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_mut(len) {
        for &at in fields {
            // Subnormal half the time, else an exponent up to 7.
            let half = random.word() as u16 & if random.below(2) == 0 { 0x83FF } else { 0x9FFF };
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        if format == BlockFormat::MXFP4 {
            block[0] = 98 + random.below(6) as u8;
        }
    }
    check_row(format, &bytes).expect("scales are finite");
    bytes
}

pub fn w16(row: u64) -> u64 {
    let mut random = Random::new(row, 5);
    let n = [64, 40, 17][random.below(3) as usize];
    let x = Activation::of(&any(&mut random, n));
    let weights = any(&mut random, n);
    let (mut high, mut low, mut scales) =
        (vec![0; plane_len(n)], vec![0; plane_len(n)], vec![0.0; n.div_ceil(32)]);
    quantize_w16(&weights, &mut high, &mut low, &mut scales).expect("weights are small");
    let view = W16Row { high: &high, low: &low, scales: &scales };
    let bias = any(&mut random, 1)[0];
    let (mut digest, mut out) = (Digest::new(), vec![f32::NAN; n]);
    embed_w16_row(&view, &mut out);
    digest.floats(&out);
    digest.floats(&[w16_linear_row(&view, &x.view(), None), w16_linear_row(&view, &x.view(), Some(bias))]);
    digest.0
}

pub fn elementwise(row: u64) -> u64 {
    let mut random = Random::new(row, 6);
    let (gate, up) = (snapped(&mut random, 32), snapped(&mut random, 32));
    let mut digest = Digest::new();
    let mut rotated = up.clone();
    for (&g, &u) in gate.iter().zip(&up) {
        digest.floats(&[swiglu(g, u), gelu_gate(g, u), soft_cap(g, 50.0), soft_cap(u, pow2(-10))]);
    }
    let (cosines, sines) = (vec![pow2(-20), 0.5, 0.0, 1.0], vec![1.0, -0.75, -1.0, pow2(-20)]);
    rotate(RopeStyle::Interleaved, &mut rotated[..8], &cosines, &sines);
    digest.floats(&rotated);
    let z: Vec<f32> = (0..8).map(|e| router_dot(&gate, &any(&mut Random::new(row, 7 + e), 32))).collect();
    digest.floats(&z);
    for denominator in [Denominator::Chosen, Denominator::All] {
        digest.floats(&route(&z, 3, denominator, None).weights);
    }
    digest.0
}

/// Four chunks of a few keys each, in two groups.
pub fn attention(row: u64) -> u64 {
    const HEAD: usize = 16;
    let mut random = Random::new(row, 20);
    let (mut high, mut low, mut scale) = ([0; HEAD], [0; HEAD], 0.0);
    assert!(quantize_head_16(&any(&mut random, HEAD), &mut high, &mut low, &mut scale));
    let query = Q16 { high: &high, low: &low, scale };
    let soft_cap = [None, Some(50.0), Some(pow2(20)), Some(pow2(-10))][random.below(4) as usize];
    let (mut merger, mut digest) = (Merger::new(), Digest::new());
    let (mut key_high, mut key_low, mut value) =
        (vec![0; CHUNK * HEAD], vec![0; CHUNK * HEAD], vec![0; CHUNK * HEAD]);
    let (mut key_scales, mut value_scales) = (vec![0.0; CHUNK], vec![0.0; CHUNK]);
    for number in [3, 4, 15, 16] {
        for j in 0..4 {
            let at = j * HEAD..(j + 1) * HEAD;
            let key = any(&mut random, HEAD);
            let (high, low) = (&mut key_high[at.clone()], &mut key_low[at.clone()]);
            assert!(quantize_head_16(&key, high, low, &mut key_scales[j]));
            let mut v = any(&mut random, HEAD);
            assert!(quantize_value_8(&mut v, &mut value[at], &mut value_scales[j]));
        }
        let chunk = KvChunk {
            key_high: &key_high,
            key_low: &key_low,
            key_scales: &key_scales,
            value: &value,
            value_scales: &value_scales,
        };
        let state = attend_chunk(&query, 0.36, soft_cap, &chunk, 0..4);
        digest.floats(&state.output);
        digest.floats(&[state.sum]);
        merger.push(number, state);
    }
    let state = merger.finish().expect("there were chunks");
    let mut out = [f32::NAN; HEAD];
    finish(&state, &mut out);
    digest.floats(&out);
    digest.floats(&key_scales);
    digest.floats(&value_scales);
    digest.0
}
