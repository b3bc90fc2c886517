//! Thresholds inside operations, from both sides: values that ordinary rows seldom meet and whose effect is mostly below
//! rounding, so that only a direct look shows a backend that is off by one.

use unisonic_core::numerics::a16::A16Row;
use unisonic_core::numerics::activation::scaled;
use unisonic_core::numerics::attention::{
    CHUNK, KeyChunk, KvChunk, Q16, attend_chunk, chunk_weights, score, value_weights,
};
use unisonic_core::numerics::float::{INV_16319, pow2, snap};
use unisonic_core::numerics::linear::finish;
use unisonic_core::numerics::merge::{Merger, State};
use unisonic_core::numerics::moe::{Denominator, add_expert, route};
use unisonic_core::numerics::norm::{rms_norm, rms_norm_plain};
use unisonic_core::numerics::w16::{W16Row, w16_dot_row, w16_superblock_total};

fn below(x: f32) -> f32 {
    f32::from_bits(x.to_bits() - 1)
}

/// p_j of keys whose scores lie `gaps` powers of two below the best one. Head of one dimension: S = 128*128*128.
fn weights(gaps: &[i32]) -> Vec<f32> {
    let query = Q16 { high: &[64], low: &[0], scale: pow2(-7) };
    let mut scales = vec![f32::NAN; CHUNK];
    for (scale, &gap) in scales.iter_mut().zip(gaps) {
        // t = 2^19 * scale = 100 - gap
        *scale = (100 - gap) as f32 * pow2(-19);
    }
    let keys = KeyChunk { high: &[64; CHUNK], low: &[0; CHUNK], scales: &scales };
    let weights = chunk_weights(&query, 1.0, None, &keys, 0..gaps.len());
    assert_eq!(weights.max_exponent, 100);
    weights.p[..gaps.len()].to_vec()
}

#[test]
fn softmax_weights_end_at_2_minus_32() {
    let p = weights(&[0, 1, 31, 32, 33, 34]);
    let expected = [pow2(0), pow2(-1), pow2(-31), pow2(-32), 0.0, 0.0];
    assert_eq!(p, expected);
}

#[test]
fn scores_are_clamped_to_2_20() {
    for (product, expected) in [(1 << 20, pow2(20)), ((1 << 20) + 1, pow2(20)), ((1 << 20) - 1, 1_048_575.0)]
    {
        assert_eq!(score(product, 1.0, 1.0, None).to_bits(), expected.to_bits());
        assert_eq!(score(-product, 1.0, 1.0, None).to_bits(), (-expected).to_bits());
    }
    assert_eq!(score(i32::MAX, pow2(42), pow2(48), None).to_bits(), pow2(20).to_bits());
}

/// a below 2^-60 makes the chunk's output 0; at 2^-60 it does not.
#[test]
fn negligible_values_are_dropped() {
    let mut p = [0.0; CHUNK];
    p[0] = 1.0;
    for (scale, kept) in [(pow2(-60), true), (below(pow2(-60)), false), (0.0, false)] {
        assert_eq!(value_weights(&p, &[scale; CHUNK], 0..1).w[0], if kept { 16_319 } else { 0 });
        let query = Q16 { high: &[0], low: &[0], scale: 0.0 };
        let chunk = KvChunk {
            key_high: &[0; CHUNK],
            key_low: &[0; CHUNK],
            key_scales: &[0.0; CHUNK],
            value: &[127; CHUNK],
            value_scales: &[scale; CHUNK],
        };
        let state = attend_chunk(&query, 1.0, None, &chunk, 0..1);
        let expected = if kept { (127.0 * 16_319.0) * (pow2(-60) * INV_16319) } else { 0.0 };
        assert_eq!(state.output[0].to_bits(), expected.to_bits());
        assert_eq!((state.max_exponent, state.sum.to_bits()), (0, 1.0_f32.to_bits()));
    }
}

fn state(max_exponent: i32, sum: f32, output: f32) -> State {
    State { max_exponent, sum, output: vec![output] }
}

fn merged(first: &State, later: &State) -> State {
    let mut merged = first.clone();
    merged.merge(later);
    merged
}

#[test]
fn merge_factors_end_at_2_minus_32() {
    for (gap, g) in [(0, 1.0), (1, 0.5), (32, pow2(-32)), (33, 0.0), (1000, 0.0)] {
        // The state that is scaled holds everything; the other one is empty.
        let (full, empty) = (state(5, 1.5, -3.0), state(5 + gap, 0.0, 0.0));
        let expected = state(5 + gap, 1.5 * g, 0.0 + -3.0 * g);
        assert_eq!(merged(&full, &empty), expected, "later is larger by {gap}");
        assert_eq!(merged(&empty, &full), expected, "later is smaller by {gap}");
    }
}

/// The products O*g and O'*g are snapped before they are added, and the sum after.
#[test]
fn merges_snap_each_product() {
    // Each is 0.75 * 2^-60 after scaling: dropped, though together with the other it would be above 2^-60.
    let (scaled, other) = (state(0, 1.0, 1.5 * pow2(-60)), state(1, 1.0, 0.75 * pow2(-60)));
    assert_eq!(merged(&scaled, &other).output, [0.0]);
    assert_eq!(merged(&other, &scaled).output, [0.0]);
    let other = state(1, 1.0, pow2(-59));
    assert_eq!(merged(&scaled, &other).output, [pow2(-59)]);
    assert_eq!(merged(&other, &scaled).output, [pow2(-59)]);
}

/// A group of one chunk is snapped at its end, and an output of 2^-61 that a chunk may have does not reach level 2.
#[test]
fn groups_end_with_a_snap() {
    for (output, expected) in [(pow2(-61), 0.0), (-pow2(-60), -pow2(-60))] {
        let mut merger = Merger::new();
        merger.push(0, state(0, 1.0, output));
        assert_eq!(merger.finish().unwrap().output, [expected]);
    }
    assert!(Merger::new().finish().is_none());
}

/// Chunks 0..15 are one group and 16 starts another: merging all in one chain gives another result.
#[test]
fn groups_have_16_chunks() {
    // Small addends are lost one by one against a large sum, but not when they are added up first.
    let run = |chunks: [usize; 4]| {
        let mut merger = Merger::new();
        for (chunk, sum) in chunks.into_iter().zip([1.0, pow2(-24), pow2(-24), pow2(-24)]) {
            merger.push(chunk, state(0, sum, 0.0));
        }
        merger.finish().unwrap().sum
    };
    assert_eq!(run([12, 13, 14, 15]).to_bits(), 1.0_f32.to_bits());
    assert_eq!(run([15, 16, 17, 18]).to_bits(), (1.0 + 3.0 * pow2(-24)).to_bits());
    assert_ne!(run([15, 16, 17, 18]).to_bits(), 1.0_f32.to_bits());
}

/// W16 snaps T*(D*128) of every superblock: two halves of 2^-60 stay 0.
#[test]
fn w16_snaps_every_superblock() {
    let mut low = [0_i8; 512];
    let high = [0_i8; 512];
    (low[0], low[256]) = (1, 1);
    let mut weights = [0_i8; 512];
    (weights[0], weights[256]) = (1, 1);
    for (exponent, expected) in [(-61, 0.0), (-60, pow2(-59))] {
        let scales = [pow2(exponent - 7); 2];
        let x = A16Row { high: &high, low: &low, scales: &scales };
        let row = W16Row { high: &weights, low: &high, scales: &[1.0; 16] };
        assert_eq!(w16_superblock_total(&row, &x, 0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(w16_dot_row(&row, &x).to_bits(), expected.to_bits());
    }
}

/// Expert weights below 2^-32 are +0 before the denominator is taken, and products are snapped one by one.
#[test]
fn small_experts_are_dropped() {
    // exp2(-22.2 * log2(e)) = 2^-32.03, exp2(-22.1 * log2(e)) = 2^-31.9
    let routing = route(&[0.0, -22.2, -22.1], 3, Denominator::Chosen, None);
    assert_eq!(routing.weights[1].to_bits(), 0);
    assert!(routing.weights[2] > pow2(-32));
    let mut y = [0.0];
    for _ in 0..2 {
        add_expert(&mut y, pow2(-1), &[pow2(-60)]);
    }
    assert_eq!(y[0].to_bits(), 0);
    add_expert(&mut y, pow2(-1), &[pow2(-59)]);
    assert_eq!(y[0].to_bits(), pow2(-60).to_bits());
}

/// The sum with the bias is snapped, and nothing before it.
#[test]
fn linear_outputs_are_snapped_once() {
    let half = pow2(-61);
    assert_eq!(finish(half, None).to_bits(), 0);
    assert_eq!(finish(half, Some(half)).to_bits(), pow2(-60).to_bits());
    assert_eq!(finish(pow2(-60), Some(-half)).to_bits(), 0);
}

#[test]
fn snap_starts_at_2_minus_60() {
    for sign in [1.0, -1.0] {
        assert_eq!(snap(sign * below(pow2(-60))).to_bits(), 0);
        assert_eq!(snap(sign * pow2(-60)).to_bits(), (sign * pow2(-60)).to_bits());
    }
    assert_eq!(snap(-0.0).to_bits(), 0);
}

/// Known answers by hand, and the same bits as with weights of 1, up to the first sum of squares that is out of range.
#[test]
fn a_norm_without_weights_has_weights_of_1() {
    for (row, in_range) in [
        ([3.0, -4.0, 0.0, pow2(-59)], true),
        ([pow2(-30), -0.0, 1.5, below(pow2(50))], true),
        ([0.0; 4], true),
        ([pow2(50), 0.0, 0.0, 0.0], false),
        ([f32::NAN, 1.0, 1.0, 1.0], false),
    ] {
        let (mut plain, mut ones) = ([f32::NAN; 4], [f32::NAN; 4]);
        assert_eq!(rms_norm_plain(&row, pow2(-20), &mut plain), in_range, "{row:?}");
        assert_eq!(rms_norm(&row, &[1.0; 4], pow2(-20), &mut ones), in_range, "{row:?}");
        assert_eq!(plain.map(f32::to_bits), ones.map(f32::to_bits), "{row:?}");
    }
    // A mean square of 1, whose inverse root is within 2.2 ulp of 1; what comes out below 2^-60 is +0.
    let mut out = [f32::NAN; 4];
    assert!(rms_norm_plain(&[2.0, below(pow2(-60)), 0.0, 0.0], pow2(-60), &mut out));
    assert!((1.999_999..2.000_001).contains(&out[0]), "{}", out[0]);
    assert_eq!(out[1].to_bits(), 0);
}

#[test]
fn scaled_values_are_snapped() {
    assert_eq!(scaled(pow2(-59), 0.5).to_bits(), pow2(-60).to_bits());
    assert_eq!(scaled(-below(pow2(-59)), 0.5).to_bits(), 0);
    assert_eq!(scaled(1.5, -2.0), -3.0);
    assert_eq!(scaled(-3.0, 0.0).to_bits(), 0);
}
