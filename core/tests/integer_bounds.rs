//! Every integer sum fits i32 in its worst case, by the bounds of docs/numerics.md. Test builds check overflow, so the
//! sums are also taken on the worst case itself.

#[path = "support/generator.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod generator;

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, ScaleLayout, decode_row};
use unisonic_core::numerics::a16::{A16Row, MAX_16, quantize_a16};
use unisonic_core::numerics::attention::{
    CHUNK, Q16, ValueWeights, score_dot, value_weights, weighted_values,
};
use unisonic_core::numerics::float::{amax, i2f, pow2};
use unisonic_core::numerics::integer::{join, split};
use unisonic_core::numerics::kv::quantize_value_8;
use unisonic_core::numerics::linear::{scaled_dot, scaled_sum, sub_block_dot, sub_block_sum, whole_dot};
use unisonic_core::numerics::w16::{W16Row, w16_block_dot};

/// Blocks that reach every integer of a format: each byte value everywhere, and noise.
fn blocks(format: BlockFormat) -> Vec<u8> {
    let len = format.len_bytes();
    let mut bytes: Vec<u8> = (0..=255_u8).flat_map(|byte| std::iter::repeat_n(byte, len)).collect();
    bytes.extend((0..2000 * len as u64).map(|i| generator::splitmix64(5, i) as u8));
    bytes
}

/// A row of one superblock whose integers all have the largest magnitude that the format can reach.
fn worst_row(format: BlockFormat) -> DecodedRow {
    let mut all = DecodedRow::new();
    decode_row(format, &blocks(format), &mut all);
    let extreme = |values: &[i8]| values.iter().copied().max_by_key(|value| value.unsigned_abs());
    let fill =
        |values: &[i8], len| vec![extreme(values).unwrap_or(0); if values.is_empty() { 0 } else { len }];
    let sub_blocks = if format.scale_layout() == ScaleLayout::Sub16 { 16 } else { 8 };
    DecodedRow {
        format,
        q: fill(&all.q, 256),
        scales: vec![1.0; 256 / format.elems()],
        minima: vec![1.0; 256 / format.elems()],
        sub_scales: fill(&all.sub_scales, sub_blocks),
        sub_minima: fill(&all.sub_minima, sub_blocks),
    }
}

/// The largest |I| of a superblock (of a block, in formats of 32) with this value all over the plane.
fn worst_sum(row: &DecodedRow, plane_value: i8) -> i64 {
    let plane = [plane_value; 256];
    let x = A16Row { high: &plane, low: &plane, scales: &[1.0] };
    let (high, low) = match row.format.scale_layout() {
        ScaleLayout::Block32 => sub_block_dot::<32>(row, &x, 0),
        ScaleLayout::Sub16 => scaled_dot::<16>(row, &x, 0),
        ScaleLayout::Sub32 => scaled_dot::<32>(row, &x, 0),
        ScaleLayout::Block256 => whole_dot(row, &x, 0),
    };
    assert_eq!(high, low);
    i64::from(high).abs()
}

#[test]
fn weighted_sums_stay_in_bounds() {
    for format in BlockFormat::ALL {
        let (worst, bound) = match format {
            BlockFormat::Q4_0 => (32 * 8 * 127, 1 << 19),
            BlockFormat::Q4_1 => (32 * 15 * 127, 1 << 19),
            BlockFormat::Q5_0 => (32 * 16 * 127, 1 << 19),
            BlockFormat::Q5_1 => (32 * 31 * 127, 1 << 19),
            BlockFormat::Q8_0 => (32 * 128 * 127, 1 << 19),
            BlockFormat::IQ4_NL => (32 * 127 * 127, 1 << 19),
            BlockFormat::MXFP4 => (32 * 12 * 127, 1 << 19),
            BlockFormat::Q2_K => (256 * 15 * 3 * 127, 1_500_000),
            BlockFormat::Q3_K => (256 * 32 * 4 * 127, 4_200_000),
            BlockFormat::Q4_K => (256 * 63 * 15 * 127, 31_000_000),
            BlockFormat::Q5_K => (256 * 63 * 31 * 127, 64_000_000),
            BlockFormat::Q6_K => (256 * 128 * 32 * 127, 133_200_000),
            BlockFormat::IQ4_XS => (256 * 32 * 127 * 127, 133_200_000),
            BlockFormat::TQ1_0 => (256 * 127, 1 << 15),
            BlockFormat::TQ2_0 => (256 * 2 * 127, 1 << 16),
        };
        let row = worst_row(format);
        assert_eq!(worst_sum(&row, 127), worst, "{format}: high plane");
        assert!(worst < bound, "{format}");
        assert_eq!(worst_sum(&row, -64), worst / 127 * 64, "{format}: low plane");
    }
}

#[test]
fn sums_of_activations_stay_in_bounds() {
    for sign in [1, -1] {
        let (high, low) = split(sign * MAX_16);
        let x = A16Row { high: &[high; 256], low: &[low; 256], scales: &[1.0] };
        let block = i64::from(sub_block_sum::<32>(&x, 0));
        assert_eq!(block, i64::from(sign) * 32 * 16319);
        assert!(block.abs() < 1 << 19);
        for (format, worst) in [(BlockFormat::Q2_K, 15), (BlockFormat::Q4_K, 63), (BlockFormat::Q5_K, 63)] {
            let row = worst_row(format);
            let sum = match format.scale_layout() {
                ScaleLayout::Sub16 => scaled_sum::<16>(&row, &x, 0),
                _ => scaled_sum::<32>(&row, &x, 0),
            };
            assert_eq!(i64::from(sum), i64::from(sign) * worst * 256 * 16319, "{format}");
            assert!(sum.abs() < 1 << 28, "{format}");
        }
    }
}

#[test]
fn w16_sums_stay_in_bounds() {
    let row = |high, low| ([high; 32], [low; 32]);
    for (xh, xl) in [(127, 63), (127, -64), (-127, 63), (-127, -64)] {
        for (wh, wl) in [(127, 63), (127, -64), (-127, 63), (-127, -64)] {
            let (x, w) = (row(xh, xl), row(wh, wl));
            let x = A16Row { high: &x.0, low: &x.1, scales: &[1.0] };
            let w = W16Row { high: &w.0, low: &w.1, scales: &[1.0] };
            let (hh, c) = w16_block_dot(&w, &x, 0);
            assert_eq!(hh.abs(), 32 * 127 * 127);
            assert!(hh.abs() < 520_200 && c.abs() < 520_200, "HH {hh}, C {c}");
        }
    }
}

/// X = 128h + l with h in [-127, 127] and l in [-64, 63] for every X, and no plane ever holds -128.
#[test]
fn planes_split_exactly() {
    for x in -MAX_16..=MAX_16 {
        let (high, low) = split(x);
        assert_eq!(join(high, low), x);
        assert!((-127..=127).contains(&high) && (-64..=63).contains(&low), "X = {x}");
    }
}

/// |S| < 2^31 for heads up to 1024: the worst pair of elements, found by trying them, a thousand times over.
#[test]
fn scores_stay_in_bounds() {
    let candidates: Vec<i32> =
        (-MAX_16..=MAX_16).filter(|x| x.abs() > 16_000 || x.abs() % 997 == 0).collect();
    let mut worst = (0_i64, 0, 0);
    for &x in &candidates {
        for &y in &candidates {
            let ((xh, xl), (yh, yl)) = (split(x), split(y));
            let [xh, xl, yh, yl] = [xh, xl, yh, yl].map(i64::from);
            let s = (128 * xh * yh + xh * yl + xl * yh).abs();
            if s > worst.0 {
                worst = (s, x, y);
            }
        }
    }
    assert_eq!(worst.0, 128 * 127 * 127 + 2 * 127 * 63);
    assert!(1024 * worst.0 < 1 << 31);
    for (x, y) in [(MAX_16, MAX_16), (MAX_16, -MAX_16)] {
        let ((xh, xl), (yh, yl)) = (split(x), split(y));
        let query = Q16 { high: &[xh; 1024], low: &[xl; 1024], scale: 1.0 };
        let s = score_dot(&query, &[yh; 1024], &[yl; 1024]);
        assert_eq!(i64::from(s), 1024 * worst.0 * i64::from(y.signum()));
    }
}

/// |O| < 2^28, and `O = 128*sum h*vq + sum l*vq` over the planes of w.
#[test]
fn weighted_values_stay_in_bounds() {
    let weights = ValueWeights { w: [16_319; CHUNK], amax: 16_319.0 };
    for v in [127, -127] {
        let mut output = [0.0];
        weighted_values(&weights, &[v; CHUNK], &mut output);
        let worst = 64 * 16_319 * i32::from(v);
        assert!(worst.abs() < 1 << 28);
        let (high, low) = split(16_319);
        assert_eq!(64 * (128 * i32::from(high) * i32::from(v) + i32::from(low) * i32::from(v)), worst);
        let step = 16_319.0 * unisonic_core::numerics::float::INV_16319;
        assert_eq!(output[0].to_bits(), (i2f(worst) * step).to_bits());
    }
}

/// For every mantissa of A, the largest element becomes exactly ±16319 (±127 in V8), before the clamp has to act.
#[test]
fn the_largest_element_takes_the_last_step() {
    for bits in pow2(0).to_bits()..pow2(1).to_bits() {
        let a = f32::from_bits(bits);
        let w = value_weights(&only(a), &[1.0; CHUNK], 0..1).w[0];
        assert_eq!(w, 16_319, "P15, a = {a}");
        if bits % 5 == 0 {
            let (mut high, mut low, mut scale) = ([0; 32], [0; 32], [0.0]);
            assert!(quantize_a16(&[-a], &mut high, &mut low, &mut scale));
            assert_eq!(join(high[0], low[0]), -MAX_16, "A16, A = {a}");
            let (mut plane, mut scale) = ([0], 0.0);
            assert!(quantize_value_8(&mut [-a], &mut plane, &mut scale));
            assert_eq!(plane[0], -127, "V8, A = {a}");
        }
    }
}

fn only(p: f32) -> [f32; CHUNK] {
    let mut all = [0.0; CHUNK];
    all[0] = p;
    all
}

/// amax is by pattern: NaN and infinity of either sign are larger than any number.
#[test]
fn amax_sees_what_is_not_finite() {
    for bits in [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_0001, 0x7F80_0001, 0xFFFF_FFFF_u32] {
        let largest = amax(&[1.0, f32::from_bits(bits), f32::MAX]);
        assert_eq!(largest.to_bits(), bits & 0x7FFF_FFFF);
    }
    assert_eq!(amax(&[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(amax(&[]).to_bits(), 0);
}
