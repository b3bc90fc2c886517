//! Kernels over one head: RoPE and V8 with its transform.

use unisonic_core::numerics::kv::quantize_value_8;
use unisonic_core::numerics::rope::rotate;
use unisonic_core::plan::RopeStyle;

use super::{Random, assert_same, each_isa};

/// Both styles; all of a head, half of it, and pairs that are no whole vectors.
#[test]
fn rope_equals_the_reference() {
    let mut random = Random::new(300);
    for round in 0..400 {
        let len = random.pick(&[16, 32, 64, 80, 96, 112, 128, 256, 512]);
        let pairs = random.pick(&[len / 2, len / 4, 1, 5, 8]).min(len / 2);
        let x: Vec<f32> = (0..len).map(|_| random.float(3)).collect();
        let mut table = || -> Vec<f32> {
            (0..pairs).map(|_| if random.below(5) == 0 { 0.0 } else { random.float(-1) }).collect()
        };
        let (cosines, sines) = (table(), table());
        for style in [RopeStyle::HalfSplit, RopeStyle::Interleaved] {
            let mut expected = x.clone();
            rotate(style, &mut expected, &cosines, &sines);
            each_isa(|isa, kernels| {
                let mut found = x.clone();
                // SAFETY: `Isa::kernels` has asked for the instructions.
                unsafe { (kernels.rotate)(style, &mut found, &cosines, &sines) };
                let what = || format!("{isa}, {style:?}, {pairs} pairs of {len}, round {round}");
                assert_same(&found, &expected, what);
            });
        }
    }
}

/// Heads whose largest power of two is 16 and up, any patterns, heads of zeros, and heads at the limits.
#[test]
fn values_equal_the_reference() {
    let mut random = Random::new(301);
    for round in 0..400 {
        let len = random.pick(&[16, 48, 64, 80, 96, 112, 128, 256, 512]);
        let x = match round % 8 {
            0 => (0..len).map(|_| f32::from_bits(random.word() as u32)).collect(),
            1 => vec![0.0; len],
            2 => (0..len).map(|_| random.float(62)).collect(),
            3 => (0..len).map(|_| random.float(-40)).collect(),
            _ => random.row(len),
        };
        let (mut plane, mut scale) = (vec![0; len], f32::NAN);
        let in_range = quantize_value_8(&mut x.clone(), &mut plane, &mut scale);
        each_isa(|isa, kernels| {
            let (mut q, mut s) = (vec![-128; len], f32::NAN);
            // SAFETY: `Isa::kernels` has asked for the instructions; the head is whole vectors, the plane as long.
            let found = unsafe { (kernels.quantize_value_8)(&mut x.clone(), q.as_mut_ptr(), &mut s) };
            assert_eq!((found, &q), (in_range, &plane), "{isa}, {len} values, round {round}");
            assert_same(&[s], &[scale], || format!("{isa}, {len} values, round {round}"));
        });
    }
}
