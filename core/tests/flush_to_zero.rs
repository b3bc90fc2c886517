//! Why flush-to-zero cannot matter (docs/numerics.md, section of that name): adversarial rows give the same bits with
//! subnormals kept and flushed.

#[path = "support/adversary.rs"]
mod adversary;
#[path = "support/float_state.rs"]
mod float_state;
#[path = "support/generator.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod generator;

use float_state::with_flush_to_zero;
use unisonic_core::numerics::float::{pow2, tree256};
use unisonic_core::numerics::norm::layer_norm;

const ROWS: u64 = 200_000;

/// Digests of every row, computed in both states, have to be equal.
#[track_caller]
fn assert_same(rows: u64, digest: fn(u64) -> u64) {
    let kept: Vec<u64> = (0..rows).map(digest).collect();
    let flushed: Vec<u64> = with_flush_to_zero(|| (0..rows).map(digest).collect());
    for (row, (kept, flushed)) in kept.iter().zip(&flushed).enumerate() {
        assert_eq!(kept, flushed, "row {row}");
    }
    let mut distinct = kept;
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() as u64 > rows / 2, "rows are alike: {} digests", distinct.len());
}

#[test]
fn a16_rows() {
    assert_same(ROWS, adversary::a16);
}

#[test]
fn norm_rows() {
    assert_same(ROWS, adversary::norms);
}

#[test]
fn linear_rows() {
    assert_same(ROWS, adversary::linear);
}

#[test]
fn w16_rows() {
    assert_same(ROWS, adversary::w16);
}

#[test]
fn elementwise_rows() {
    assert_same(ROWS, adversary::elementwise);
}

#[test]
fn attention_rows() {
    assert_same(ROWS, adversary::attention);
}

/// The adversary is one: sums without snaps do differ between the two states.
#[test]
fn unsnapped_squares_do_differ() {
    let unsnapped = |row: u64| {
        let x = adversary::residual(row, 64);
        tree256(x.iter().map(|&x| x * x)).to_bits()
    };
    let kept: Vec<u32> = (0..2000).map(unsnapped).collect();
    let flushed: Vec<u32> = with_flush_to_zero(|| (0..2000).map(unsnapped).collect());
    assert!(kept.iter().zip(&flushed).filter(|(kept, flushed)| kept != flushed).count() > 100);
}

/// LayerNorm of 2^48, -2^48 beside the smallest steps of the residual stream, with the largest weight, smallest bias
/// and smallest epsilon. Known answers from an independent implementation.
#[test]
fn layer_norm_trap() {
    let check = |x: &[f32], expected: [u32; 5]| {
        let mut row = [0.0; 64];
        row[..x.len()].copy_from_slice(x);
        let (weight, bias) = ([pow2(60); 64], [pow2(-60); 64]);
        let run = || {
            let mut out = [f32::NAN; 64];
            assert!(layer_norm(&row, &weight, &bias, pow2(-60), &mut out));
            out.map(f32::to_bits)
        };
        let kept = run();
        assert_eq!(kept[..5], expected);
        assert_eq!(with_flush_to_zero(run), kept);
    };
    let step = pow2(-83);
    let beside = [0x5EB5_04F3, 0xDEB5_04F3, 0x2180_0000, 0x2180_0000, 0x2180_0000];
    check(&[pow2(48), -pow2(48), step, -5.0 * step], beside);
    let alone = [0x40FF_FFFF, 0x40FF_FFFF, 0x4307_FFFF, 0xC41D_FFFF, 0x40FF_FFFF];
    check(&[0.0, 0.0, step, -5.0 * step], alone);
}
