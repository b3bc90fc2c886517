//! Kernels over one row: quantisers, norms, gates, soft caps.

use unisonic_core::numerics::a16::{quantize_16, quantize_a16};
use unisonic_core::numerics::activation::{gelu, gelu_gate, soft_cap, swiglu};
use unisonic_core::numerics::moe::{add_expert, router_dot};
use unisonic_core::numerics::norm::{layer_norm, rms_norm};
use unisonic_core::numerics::range::{ACTIVATION_LIMIT, HEAD_LIMIT};
use unisonic_core::plan::Activation;

use super::json::{
    WordHash, assert_bits, bits, flag, float, floats, integer, integers, list, load, plane, text, word,
};
use super::{Quantized, Random, assert_same, each_isa};

#[test]
fn a16_known_answers() {
    each_isa(|isa, kernels| {
        for case in list(&load("a16")["cases"]) {
            let (name, x) = (format!("{isa}, {}", text(&case["name"])), floats(&case["x"]));
            let row = Quantized::of_rows(kernels, [&x[..]].into_iter(), x.len());
            assert_eq!(row.planes[0], plane(&case["h"]), "{name}: high plane");
            assert_eq!(row.planes[1], plane(&case["l"]), "{name}: low plane");
            assert_bits(&row.scales, &case["D"], &name);
            assert_eq!(!row.in_range[0], flag(&case["range"]), "{name}: range");
            let sum = |plane: usize, b: usize| row.sums[plane][2 * b] + row.sums[plane][2 * b + 1];
            let sums: Vec<i64> = (0..x.len() / 32).map(|b| i64::from(128 * sum(0, b) + sum(1, b))).collect();
            assert_eq!(sums, integers(&case["bs32"]), "{name}: sums");
        }
    });
}

/// Any pattern, infinities and NaN among them.
fn any_patterns(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| f32::from_bits(random.word() as u32)).collect()
}

/// Also rows of which the last block of 32 is half empty, and rows out of range.
#[test]
fn a16_equals_the_reference() {
    let mut random = Random::new(200);
    for round in 0..300 {
        let len = 16 * (1 + random.below(40));
        let x = if round % 4 == 0 { any_patterns(&mut random, len) } else { random.row(len) };
        let planes = len.next_multiple_of(32);
        let (mut high, mut low) = (vec![0; planes], vec![0; planes]);
        let mut scales = vec![0.0; len.div_ceil(256)];
        let in_range = quantize_a16(&x, &mut high, &mut low, &mut scales);
        each_isa(|isa, kernels| {
            let row = Quantized::of_rows(kernels, [&x[..]].into_iter(), len);
            assert_eq!(row.in_range, [in_range], "{isa}, round {round}");
            assert_eq!(row.planes, [&high[..], &low[..]], "{isa}, round {round}");
            assert_same(&row.scales, &scales, || format!("{isa}, round {round}"));
            for (sums, plane) in row.sums.iter().zip([&high, &low]) {
                let expected: Vec<i32> =
                    plane.chunks(16).map(|chunk| chunk.iter().map(|&q| i32::from(q)).sum()).collect();
                assert_eq!(*sums, expected, "{isa}, round {round}");
            }
        });
    }
}

#[test]
fn heads_equal_the_reference() {
    let mut random = Random::new(201);
    for round in 0..300 {
        let len = random.pick(&[16, 64, 80, 96, 112, 128, 256, 512]);
        let x = if round % 4 == 0 { any_patterns(&mut random, len) } else { random.row(len) };
        let (mut high, mut low, mut scale) = (vec![0; len], vec![0; len], f32::NAN);
        let in_range = quantize_16(&x, HEAD_LIMIT, &mut high, &mut low, &mut scale);
        each_isa(|isa, kernels| {
            let (mut h, mut l, mut s) = (vec![-128; len], vec![-128; len], f32::NAN);
            // SAFETY: `Isa::kernels` has asked for the instructions; the planes have room for a multiple of 16 values.
            let found =
                unsafe { (kernels.quantize_16)(&x, HEAD_LIMIT, h.as_mut_ptr(), l.as_mut_ptr(), &mut s) };
            assert_eq!((found, &h, &l), (in_range, &high, &low), "{isa}, round {round}");
            assert_same(&[s], &[scale], || format!("{isa}, round {round}"));
        });
    }
}

#[test]
fn norm_known_answers() {
    let file = load("norm");
    let cases = list(&file["cases"]).iter().filter(|case| text(&case["kind"]) == "rmsnorm");
    let mut checked = 0;
    for case in cases {
        let (x, weight, eps) = (floats(&case["x"]), floats(&case["w"]), float(&case["eps"]));
        if !x.len().is_multiple_of(16) {
            continue;
        }
        checked += 1;
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; x.len()];
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
            let in_range = unsafe { (kernels.rms_norm)(&x, &weight, eps, None, &mut y) };
            let name = format!("{isa}, {}", text(&case["name"]));
            assert_eq!(!in_range, flag(&case["range"]), "{name}: range");
            assert_bits(&y, &case["y"], &name);
        });
    }
    assert!(checked > 5, "{checked} norms");
}

#[test]
fn layer_norm_known_answers() {
    let file = load("norm");
    let mut checked = 0;
    for case in list(&file["cases"]).iter().filter(|case| text(&case["kind"]) == "layernorm") {
        let [x, weight, bias] = ["x", "w", "b"].map(|key| floats(&case[key]));
        if !x.len().is_multiple_of(16) {
            continue;
        }
        checked += 1;
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; x.len()];
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
            let in_range = unsafe { (kernels.layer_norm)(&x, &weight, &bias, float(&case["eps"]), &mut y) };
            let name = format!("{isa}, {}", text(&case["name"]));
            assert_eq!(!in_range, flag(&case["range"]), "{name}: range");
            assert_bits(&y, &case["y"], &name);
        });
    }
    assert!(checked > 2, "{checked} norms");
}

#[test]
fn layer_norms_equal_the_reference() {
    let mut random = Random::new(204);
    for round in 0..200 {
        let len = 16 * (1 + random.below(80));
        let (mut x, weight, bias) = (random.row(len), random.row(len), random.row(len));
        if round % 8 == 0 {
            x[len / 2] = random.float(52);
        }
        let mut expected = vec![f32::NAN; len];
        let in_range = layer_norm(&x, &weight, &bias, 1e-5, &mut expected);
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; len];
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
            let found = unsafe { (kernels.layer_norm)(&x, &weight, &bias, 1e-5, &mut y) };
            assert_eq!(found, in_range, "{isa}, round {round}");
            assert_same(&y, &expected, || format!("{isa}, round {round}"));
        });
    }
}

#[test]
fn mixtures_equal_the_reference() {
    let mut random = Random::new(205);
    for round in 0..200 {
        let len = 16 * (1 + random.below(80));
        let (x, weight, output) = (random.row(len), random.row(len), random.row(len));
        let expected = router_dot(&x, &weight);
        let mut sum = x.clone();
        add_expert(&mut sum, 0.37, &output);
        each_isa(|isa, kernels| {
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
            let found = unsafe { (kernels.router_dot)(&x, &weight) };
            assert_same(&[found], &[expected], || format!("{isa}, round {round}, a score"));
            let mut y = x.clone();
            // SAFETY: as above.
            unsafe { (kernels.add_expert)(&mut y, 0.37, &output) };
            assert_same(&y, &sum, || format!("{isa}, round {round}, a sum"));
        });
    }
}

#[test]
fn norms_equal_the_reference() {
    let mut random = Random::new(202);
    for round in 0..200 {
        let len = 16 * (1 + random.below(80));
        let (x, weight, add) = (random.row(len), random.row(len), random.row(len));
        let eps = random.pick(&[1e-5, 1e-6, 1.0]);
        let mut expected = vec![f32::NAN; len];
        let in_range = rms_norm(&x, &weight, eps, &mut expected);
        let sum: Vec<f32> = expected.iter().zip(&add).map(|(y, add)| y + add).collect();
        each_isa(|isa, kernels| {
            for (add, expected) in [(None, &expected), (Some(&add[..]), &sum)] {
                let mut y = vec![f32::NAN; len];
                // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
                let found = unsafe { (kernels.rms_norm)(&x, &weight, eps, add, &mut y) };
                assert_eq!(found, in_range, "{isa}, round {round}");
                assert_same(&y, expected, || format!("{isa}, round {round}, add {}", add.is_some()));
            }
        });
    }
}

#[test]
fn gate_known_answers() {
    for case in list(&load("norm")["elementwise"]) {
        let function = match text(&case["kind"]) {
            "swiglu" => Activation::Silu,
            "gelu_gate" => Activation::Gelu,
            kind => panic!("no kernel for {kind}"),
        };
        let (gate, up) = (floats(&case["g"]), floats(&case["u"]));
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; gate.len()];
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
            unsafe { (kernels.gate)(function, &gate, &up, &mut y) };
            assert_bits(&y, &case["y"], &format!("{isa}, {function:?}"));
        });
    }
}

/// Rows of any length: whole vectors, and what is left.
#[test]
fn gates_equal_the_reference() {
    let mut random = Random::new(203);
    for round in 0..200 {
        let len = 1 + random.below(300);
        // Half of the rows: gates near -85, where exp2 becomes zero, with factors that keep what is left above 2^-60.
        let (gate, up): (Vec<f32>, Vec<f32>) = if round % 2 == 0 {
            (random.row(len), (0..len).map(|_| random.float(0)).collect())
        } else {
            let near = |random: &mut Random| -80.0 - random.below(1000) as f32 * 0.01;
            ((0..len).map(|_| near(&mut random)).collect(), (0..len).map(|_| random.float(63)).collect())
        };
        for function in [Activation::Silu, Activation::Gelu] {
            let one = match function {
                Activation::Silu => swiglu,
                Activation::Gelu => gelu_gate,
            };
            let expected: Vec<f32> = gate.iter().zip(&up).map(|(&g, &u)| one(g, u)).collect();
            each_isa(|isa, kernels| {
                let mut y = vec![f32::NAN; len];
                // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
                unsafe { (kernels.gate)(function, &gate, &up, &mut y) };
                assert_same(&y, &expected, || format!("{isa}, {function:?}, round {round}"));
            });
        }
        let expected: Vec<f32> = gate.iter().map(|&x| gelu(x)).collect();
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; len];
            // SAFETY: as above.
            unsafe { (kernels.gelus)(&gate, &mut y) };
            assert_same(&y, &expected, || format!("{isa}, gelu, round {round}"));
        });
        let cap = random.pick(&[30.0, 50.0, 0.001, 1_000_000.0]);
        let expected: Vec<f32> = gate.iter().map(|&x| soft_cap(x, cap)).collect();
        each_isa(|isa, kernels| {
            let mut y = vec![f32::NAN; len];
            // SAFETY: as above.
            unsafe { (kernels.soft_caps)(&gate, cap, &mut y) };
            assert_same(&y, &expected, || format!("{isa}, soft cap {cap}, round {round}"));
        });
    }
}

/// The sweeps of the soft cap, by their hash: sigmoid, exp2 and recip on millions of arguments.
#[test]
fn soft_cap_sweeps() {
    let file = load("elementary");
    for entry in list(&file["functions"]) {
        let cap = match text(&entry["function"]) {
            "softcap30" => 30.0,
            "softcap50" => 50.0,
            _ => continue,
        };
        let mut x = Vec::new();
        for range in list(&entry["sweep"]) {
            let (start, end) = (word(&range[0]), u64::from_str_radix(text(&range[1]), 16).unwrap());
            let step = integer(&range[2]) as usize;
            x.extend((u64::from(start)..end).step_by(step).map(|bits| f32::from_bits(bits as u32)));
        }
        assert_eq!(x.len() as i64, integer(&entry["count"]));
        each_isa(|isa, kernels| {
            let mut hash = WordHash::new();
            for x in x.chunks(4096) {
                let mut y = vec![f32::NAN; x.len()];
                // SAFETY: `Isa::kernels` has asked for the instructions; rows are equally long.
                unsafe { (kernels.soft_caps)(x, cap, &mut y) };
                hash.add(&bits(&y));
            }
            assert_eq!(hash.finish(), text(&entry["sha256"]), "{isa}, soft cap {cap}");
        });
    }
}

#[test]
fn limits_are_those_of_the_contract() {
    each_isa(|isa, kernels| {
        for limit in [ACTIVATION_LIMIT, HEAD_LIMIT] {
            for (x, expected) in
                [(f32::from_bits(limit.to_bits() - 1), true), (limit, false), (-limit, false)]
            {
                let mut row = [0.0; 32];
                row[17] = x;
                let (mut high, mut low, mut scale) = ([-128_i8; 32], [-128_i8; 32], f32::NAN);
                // SAFETY: `Isa::kernels` has asked for the instructions; the planes have room for the row.
                let in_range = unsafe {
                    (kernels.quantize_16)(&row, limit, high.as_mut_ptr(), low.as_mut_ptr(), &mut scale)
                };
                assert_eq!(in_range, expected, "{isa}, {x}");
                assert_eq!(scale == 0.0 && high == [0; 32] && low == [0; 32], !expected, "{isa}, {x}");
            }
        }
    });
}
