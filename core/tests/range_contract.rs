//! The range contract of docs/numerics.md: what is refused when a file is loaded, what flags a row when it runs, and
//! where exactly the limits lie.

use unisonic_core::format::blocks::{BadBlock, BlockFormat, check_row};
use unisonic_core::numerics::a16::quantize_a16;
use unisonic_core::numerics::embedding::{HOST_FLOOR, host_row};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::norm::{layer_norm, rms_norm};
use unisonic_core::numerics::range::{
    check_eps, check_rope_factors, check_router, check_soft_cap, check_vector, logit_in_range,
};
use unisonic_core::numerics::w16::quantize_w16;

const NOT_FINITE: [u32; 6] = [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_0000, 0x7F80_0001, 0xFFFF_FFFF];

fn below(x: f32) -> f32 {
    f32::from_bits(x.to_bits() - 1)
}

fn above(x: f32) -> f32 {
    f32::from_bits(x.to_bits() + 1)
}

/// Values that a quantiser with this limit takes, and values that it refuses.
fn around(limit: f32) -> (Vec<f32>, Vec<f32>) {
    let good = vec![below(limit), -below(limit), 0.0, -0.0, pow2(-149 + 23)];
    let mut bad = vec![limit, -limit, f32::MAX];
    bad.extend(NOT_FINITE.map(f32::from_bits));
    (good, bad)
}

#[test]
fn a16_refuses_from_2_64() {
    let run = |value: f32| {
        let mut x = [1.0; 300];
        x[270] = value;
        let (mut high, mut low, mut scales) = ([-128; 320], [-128; 320], [f32::NAN; 2]);
        let in_range = quantize_a16(&x, &mut high, &mut low, &mut scales);
        // The neighbouring superblock is what it would have been.
        assert!(high[..256].iter().all(|&h| h == 127) && low[..256].iter().all(|&l| l == 63));
        assert!(in_range || (high[256..] == [0; 64] && low[256..] == [0; 64] && scales[1].to_bits() == 0));
        in_range
    };
    let (good, bad) = around(pow2(64));
    assert!(good.into_iter().all(run));
    assert!(!bad.into_iter().any(run));
}

#[test]
fn heads_refuse_from_2_56_and_values_from_2_64() {
    let (good, bad) = around(pow2(56));
    let head = |value: f32| {
        let (mut high, mut low, mut scale) = ([-128; 16], [-128; 16], f32::NAN);
        let mut x = [1.0; 16];
        x[5] = value;
        let in_range = quantize_head_16(&x, &mut high, &mut low, &mut scale);
        assert!(in_range || (high == [0; 16] && low == [0; 16] && scale.to_bits() == 0));
        in_range
    };
    assert!(good.into_iter().all(head));
    assert!(!bad.into_iter().any(head));
    let (good, bad) = around(pow2(64));
    // One dimension: the rotation leaves it as it is.
    let value = |v: f32| {
        let (mut plane, mut scale) = ([-128], f32::NAN);
        let in_range = quantize_value_8(&mut [v], &mut plane, &mut scale);
        assert!(in_range || (plane == [0] && scale.to_bits() == 0));
        in_range
    };
    assert!(good.into_iter().all(value));
    assert!(!bad.into_iter().any(value));
}

/// Below 2^-40 a block is zero and in range; at 2^-40 it is not zero.
#[test]
fn quantisers_floor_at_2_minus_40() {
    for (value, zero) in [(below(pow2(-40)), true), (pow2(-40), false)] {
        let (mut high, mut low, mut scale) = ([-128; 32], [-128; 32], [f32::NAN]);
        assert!(quantize_a16(&[-value], &mut high, &mut low, &mut scale));
        assert_eq!((high[0] == 0, scale[0].to_bits() == 0), (zero, zero));
        let (mut plane, mut scale) = ([-128], f32::NAN);
        assert!(quantize_value_8(&mut [-value], &mut plane, &mut scale));
        assert_eq!((plane[0] == 0, scale.to_bits() == 0), (zero, zero));
    }
}

#[test]
fn norms_refuse_from_2_100() {
    let rms = |x: f32| {
        let mut out = [f32::NAN];
        let in_range = rms_norm(&[x], &[1.0], 1e-5, &mut out);
        assert!(in_range || out[0].to_bits() == 0);
        in_range
    };
    assert!(rms(below(pow2(50))) && rms(-below(pow2(50))));
    assert!(!rms(pow2(50)) && !rms(-pow2(50)) && !rms(f32::MAX));
    assert!(NOT_FINITE.iter().all(|&bits| !rms(f32::from_bits(bits))));
    let layer = |x: f32| {
        let mut out = [f32::NAN; 2];
        let in_range = layer_norm(&[x, -x], &[1.0; 2], &[1.0; 2], 1e-5, &mut out);
        assert!(in_range || out.map(f32::to_bits) == [0; 2]);
        in_range
    };
    assert!(layer(pow2(49)) && !layer(pow2(50)) && !layer(f32::MAX));
    assert!(NOT_FINITE.iter().all(|&bits| !layer(f32::from_bits(bits))));
}

#[test]
fn logits_are_out_of_range_from_2_64() {
    let (good, bad) = around(pow2(64));
    assert!(good.into_iter().all(logit_in_range));
    assert!(!bad.into_iter().any(logit_in_range));
}

/// The largest activations and scales that the contract admits: nothing overflows on the way.
#[test]
fn extreme_rows_stay_finite() {
    use unisonic_core::format::blocks::{DecodedRow, decode_row};
    use unisonic_core::numerics::a16::A16Row;
    use unisonic_core::numerics::linear::linear_row;
    for format in BlockFormat::ALL {
        for (byte, x) in [(0xFF, below(pow2(64))), (0x00, -below(pow2(64))), (0x80, below(pow2(64)))] {
            let mut blocks = vec![byte; 256 / format.elems() * format.len_bytes()];
            for block in blocks.chunks_mut(format.len_bytes()) {
                for at in scale_fields(format) {
                    block[at..at + 2].copy_from_slice(&0x7BFF_u16.to_le_bytes());
                }
                if format == BlockFormat::MXFP4 {
                    block[0] = 148;
                }
            }
            check_row(format, &blocks).unwrap();
            let mut row = DecodedRow::new();
            decode_row(format, &blocks, &mut row);
            let (mut high, mut low, mut scales) = ([0; 256], [0; 256], [0.0]);
            assert!(quantize_a16(&[x; 256], &mut high, &mut low, &mut scales));
            let x = A16Row { high: &high, low: &low, scales: &scales };
            assert!(linear_row(&row, &x, Some(pow2(60))).is_finite(), "{format}");
        }
    }
}

/// Byte offsets of a block's f16 fields.
fn scale_fields(format: BlockFormat) -> Vec<usize> {
    match format {
        BlockFormat::MXFP4 => vec![],
        BlockFormat::Q2_K => vec![80, 82],
        BlockFormat::Q3_K => vec![108],
        BlockFormat::Q6_K => vec![208],
        BlockFormat::TQ1_0 => vec![52],
        BlockFormat::TQ2_0 => vec![64],
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K => vec![0, 2],
        _ => vec![0],
    }
}

/// A scale or minimum that is not finite is refused in every format, and the error names the block.
#[test]
fn bad_scales_are_refused() {
    for format in BlockFormat::ALL {
        let len = format.len_bytes();
        let good = vec![0x11; 3 * len];
        check_row(format, &good).unwrap();
        for at in scale_fields(format) {
            for half in [0x7C00_u16, 0xFC00, 0x7E00, 0xFFFF, 0x7C01] {
                let mut bad = good.clone();
                bad[len + at..len + at + 2].copy_from_slice(&half.to_le_bytes());
                let error = check_row(format, &bad).unwrap_err();
                assert!(matches!(error, BadBlock::NotFinite { block: 1, .. }), "{format}: {error}");
                assert!(error.to_string().starts_with("block 1: "), "{error}");
            }
            let mut largest = good.clone();
            largest[len + at..len + at + 2].copy_from_slice(&0xFBFF_u16.to_le_bytes());
            check_row(format, &largest).unwrap();
        }
        assert!(
            matches!(check_row(format, &good[1..]), Err(BadBlock::Length { found, .. }) if found == 3 * len - 1)
        );
    }
}

#[test]
fn mxfp4_exponents_end_at_148() {
    let row = |exponent: u8| {
        let mut bytes = [0; 34];
        bytes[17] = exponent;
        check_row(BlockFormat::MXFP4, &bytes)
    };
    assert_eq!(row(148), Ok(()));
    for exponent in [149, 255] {
        assert_eq!(row(exponent), Err(BadBlock::Exponent { block: 1, found: exponent }));
    }
}

#[test]
fn w16_values_end_at_2_24() {
    let run = |value: f32| {
        let mut weights = [1.0; 70];
        weights[69] = value;
        let (mut high, mut low, mut scales) = ([0; 96], [0; 96], [0.0; 3]);
        quantize_w16(&weights, &mut high, &mut low, &mut scales)
    };
    assert_eq!(run(pow2(24)), Ok(()));
    assert_eq!(run(-pow2(24)), Ok(()));
    let too_large = above(pow2(24));
    assert_eq!(run(-too_large), Err(BadBlock::Magnitude { block: 2, found: too_large }));
    for bits in NOT_FINITE {
        assert!(matches!(run(f32::from_bits(bits)), Err(BadBlock::Magnitude { block: 2, .. })));
    }
}

#[test]
fn parameters_have_limits() {
    let all_refuse =
        |check: &dyn Fn(f32) -> bool| NOT_FINITE.iter().all(|&bits| !check(f32::from_bits(bits)));
    let vector = |w: f32| check_vector(&[0.0, w]).is_ok();
    assert!(vector(pow2(60)) && vector(-pow2(60)) && !vector(above(pow2(60))) && all_refuse(&vector));
    let router = |w: f32| check_router(&[w]).is_ok();
    assert!(router(-pow2(40)) && !router(-above(pow2(40))) && all_refuse(&router));
    let eps = |eps: f32| check_eps(eps).is_ok();
    assert!(eps(pow2(-60)) && eps(1.0) && !eps(below(pow2(-60))) && !eps(above(1.0)) && !eps(-1e-5));
    assert!(all_refuse(&eps));
    let cap = |cap: f32| check_soft_cap(cap).is_ok();
    assert!(
        cap(pow2(-10)) && cap(pow2(20)) && !cap(below(pow2(-10))) && !cap(above(pow2(20))) && !cap(-50.0)
    );
    assert!(all_refuse(&cap));
    let factor = |factor: f32| check_rope_factors(&[1.0, factor]).is_ok();
    assert!(
        factor(1e-3) && factor(64.0) && !factor(0.0) && !factor(-0.0) && !factor(-1.0) && all_refuse(&factor)
    );
    let error = check_vector(&[1.0, 2.0, f32::INFINITY]).unwrap_err();
    assert_eq!(error.index, 2);
    assert!(error.to_string().starts_with("element 2 is inf"), "{error}");
}

#[test]
fn rows_of_the_host_have_no_subnormals() {
    let (below, at) = (f32::from_bits(HOST_FLOOR.to_bits() - 1), HOST_FLOOR);
    let x = [0.0, -0.0, f32::from_bits(1), -f32::from_bits(1), below, -below, at, -at, 1.5, -pow2(63)];
    let mut out = [7.0; 10];
    host_row(&x, &mut out);
    let expected = [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, at, -at, 1.5, -pow2(63)];
    assert_eq!(out.map(f32::to_bits), expected.map(f32::to_bits));
}
