//! The error bounds that docs/numerics.md states for the elementary functions, measured against f64.
//!
//! References are `libm` functions in f64, whose error is below 2^-52 relative: nothing beside these bounds.

use unisonic_core::numerics::activation::{gelu, soft_cap};
use unisonic_core::numerics::attention::default_kappa;
use unisonic_core::numerics::elementary::{
    exp, exp2, exp2_pair, log, log1m, recip, rsqrt, scale_exponent, sigmoid,
};
use unisonic_core::numerics::embedding::embedding_scale;
use unisonic_core::numerics::float::{i2f, ord, pow2};
use unisonic_core::numerics::norm::{eps_before_scale, inverse_rms};
use unisonic_core::numerics::probability::{log_probability, log_sum_exp};

/// Every `step`-th float from `start` to `end`, positive, inclusive of `start`.
fn floats(start: f32, end: f32, step: usize) -> impl Iterator<Item = f32> {
    (start.to_bits()..=end.to_bits()).step_by(step).map(f32::from_bits)
}

fn both_signs(x: f32) -> [f32; 2] {
    [x, -x]
}

/// Distance in units of the last place that the reference has in f32.
fn ulps(found: f32, reference: f64) -> f64 {
    let exponent = libm::ilogb(reference).max(-126);
    libm::scalbn((f64::from(found) - reference).abs(), 23 - exponent)
}

fn relative(found: f32, reference: f64) -> f64 {
    ((f64::from(found) - reference) / reference).abs()
}

/// The largest error over a sweep has to be below the bound, and not so far below that the bound says nothing.
#[track_caller]
fn assert_worst(errors: impl Iterator<Item = f64>, bound: f64) {
    let worst = errors.fold(0.0, |worst: f64, error| if error > worst { error } else { worst });
    assert!(worst <= bound, "error {worst}, stated as {bound}");
    assert!(worst > 0.8 * bound, "error {worst}, far below the {bound} that is stated");
}

fn exp2_arguments() -> impl Iterator<Item = f32> {
    let positive = floats(pow2(-30), 126.0, 61);
    let negative = floats(pow2(-30), 125.0, 61).map(|t| -t);
    positive.chain(negative)
}

#[test]
fn exp2_is_within_2_3_ulp() {
    assert_worst(exp2_arguments().map(|t| ulps(exp2(t), libm::exp2(f64::from(t)))), 2.3);
}

#[test]
fn exp2_is_within_1_9e_7_relative() {
    assert_worst(exp2_arguments().map(|t| relative(exp2(t), libm::exp2(f64::from(t)))), 1.9e-7);
}

/// P of the pair in [0.7071, 1.4143], the pair exact as a product, n the nearest integer.
#[test]
#[expect(clippy::approx_constant, reason = "a bound, not a constant")]
fn exp2_pair_keeps_its_range() {
    let small = floats(pow2(-149), pow2(20), 97).flat_map(both_signs);
    let dense = floats(0.25, 4.0, 1).flat_map(both_signs);
    for t in small.chain(dense) {
        let (p, n) = exp2_pair(t);
        assert!((0.7071..=1.4143).contains(&p), "P = {p} at t = {t}");
        assert!((f64::from(t) - f64::from(n)).abs() <= 0.5, "n = {n} at t = {t}");
        if (-125.0..=126.0).contains(&t) {
            assert_eq!(scale_exponent(p, n).to_bits(), exp2(t).to_bits());
        }
    }
}

#[test]
fn exp_is_within_6_2e_7_relative() {
    let arguments = floats(pow2(-30), 4.0, 41).chain(floats(4.0, 10.0, 1)).map(|x| -x);
    assert_worst(arguments.map(|x| relative(exp(x), libm::exp(f64::from(x)))), 6.2e-7);
}

/// All mantissas; other binades differ by a power of two, which `recip_scales_exactly` shows.
#[test]
fn recip_is_within_1_99_ulp() {
    assert_worst(floats(1.0, 2.0, 1).map(|x| ulps(recip(x), 1.0 / f64::from(x))), 1.99);
}

#[test]
fn recip_scales_exactly() {
    for x in floats(1.0, 1.999_999_9, 4999) {
        for exponent in [-125, -80, -1, 1, 40, 124] {
            let scaled = recip(x * pow2(exponent)) * pow2(exponent);
            assert_eq!(scaled.to_bits(), recip(x).to_bits(), "{x} * 2^{exponent}");
        }
    }
}

/// All mantissas of both parities of the exponent, and a sweep over the domain.
#[test]
fn rsqrt_is_within_2_2_ulp() {
    let arguments = floats(1.0, 4.0, 1).chain(floats(pow2(-125), pow2(125), 509));
    assert_worst(arguments.map(|x| ulps(rsqrt(x), 1.0 / libm::sqrt(f64::from(x)))), 2.2);
}

#[test]
fn sigmoid_is_within_1_8e_6_relative() {
    let arguments = floats(pow2(-30), 29.999_998, 61).flat_map(both_signs);
    let reference = |x: f32| 1.0 / (1.0 + libm::exp(-f64::from(x)));
    assert_worst(arguments.map(|x| relative(sigmoid(x), reference(x))), 1.8e-6);
}

#[test]
fn log_is_within_0_83_ulp() {
    let arguments = floats(pow2(-126), f32::MAX, 211).chain(floats(0.5, 2.0, 7));
    let arguments = arguments.filter(|&x| x != 1.0);
    assert_worst(arguments.map(|x| ulps(log(x), libm::log(f64::from(x)))), 0.83);
    assert_eq!(log(1.0).to_bits(), 0);
}

#[test]
fn log1m_is_within_2_4_ulp() {
    let arguments = floats(pow2(-32), 1.0 - pow2(-24), 31);
    assert_worst(arguments.map(|w| ulps(log1m(w), libm::log1p(-f64::from(w)))), 2.4);
}

#[test]
fn soft_cap_is_within_1_93e_5_at_50() {
    let arguments = floats(pow2(-20), pow2(12), 61).flat_map(both_signs);
    let reference = |x: f32| 50.0 * libm::tanh(f64::from(x) / 50.0);
    assert_worst(arguments.map(|x| (f64::from(soft_cap(x, 50.0)) - reference(x)).abs()), 1.93e-5);
}

/// Not a bound of the text: that the formula is GELU at all. The tanh form itself is what models use.
#[test]
fn gelu_is_its_tanh_form() {
    for x in floats(pow2(-10), 20.0, 997).flat_map(both_signs) {
        let wide = f64::from(x);
        let inner = libm::sqrt(2.0 / std::f64::consts::PI) * (wide + 0.044_715 * wide * wide * wide);
        let reference = 0.5 * wide * (1.0 + libm::tanh(inner));
        assert!((f64::from(gelu(x)) - reference).abs() < 4e-7 * (1.0 + wide.abs()), "x = {x}");
    }
}

#[test]
fn log_sum_exp_is_close_to_f64() {
    for (n, scale) in [(1, 3.0), (2, 0.0), (1000, 0.01), (49_152, 0.02), (300, 5.0)] {
        let z: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1000) as f32 * scale).collect();
        let largest = f64::from(z.iter().copied().max_by_key(|&z| ord(z)).unwrap());
        let sum: f64 = z.iter().map(|&z| libm::exp(f64::from(z) - largest)).sum();
        let reference = largest + libm::log(sum);
        let found = log_sum_exp(&z).unwrap();
        assert!(
            (f64::from(found) - reference).abs() < 1e-6 * (1.0 + reference.abs()),
            "{found}, {reference}"
        );
        assert_eq!(log_probability(&z, 0).unwrap().to_bits(), (z[0] - found).to_bits());
    }
    assert_eq!(log_sum_exp(&[]), None);
    assert_eq!(log_probability(&[1.0], 1), None);
}

/// No float is nearer to the root: n lies between the squares of the middles to both neighbours.
#[test]
fn embedding_scale_is_rounded_once() {
    for n in (1..20_000).chain([65_536, 1 << 20, (1 << 24) - 1]) {
        let root = embedding_scale(n);
        let middle = |other: u32| (f64::from(root) + f64::from(f32::from_bits(other))) / 2.0;
        let (low, high) = (middle(root.to_bits() - 1), middle(root.to_bits() + 1));
        assert!(low * low <= f64::from(n) && f64::from(n) <= high * high, "sqrt({n}) = {root}");
    }
}

/// For every n: the squares of the middles to both neighbours, times n, lie on both sides of log2(e)^2.
#[test]
fn default_kappa_is_rounded_once() {
    // floor(log2(e)^2 * 2^120)
    const LOG2_E_SQUARED: u128 = 0x214_D498_F853_F343_ED13_FDA0_8F3F_DF79;
    for n in 1..=1_u32 << 20 {
        let bits = default_kappa(n).to_bits();
        // Twice the mantissa, and the exponent of half a unit in the last place: value = twice * 2^-half.
        let twice = u128::from((bits & 0x7F_FFFF) | 0x80_0000) * 2;
        let half = 151 - (bits >> 23);
        // middle^2 * n * 2^120, the middles being (twice ± 1) * 2^-half.
        let shift = 120 - 2 * half;
        let (below, above) = (twice - 1, twice + 1);
        assert!((below * below * u128::from(n)) << shift <= LOG2_E_SQUARED, "{n}");
        assert!((above * above * u128::from(n)) << shift > LOG2_E_SQUARED, "{n}");
    }
}

/// `i2f(I) = f32(I >> 12)*4096 + f32(I & 4095)`, and for |I| < 2^22 `bitcast(I + 0x4B400000) - 12582912.0`.
#[test]
fn i2f_has_equal_forms() {
    let check = |i: i32| {
        let split = (i >> 12) as f32 * 4096.0 + (i & 4095) as f32;
        assert_eq!(split.to_bits(), i2f(i).to_bits(), "{i}");
        if i.abs_diff(0) < 1 << 22 {
            let magic = f32::from_bits(i.wrapping_add(0x4B40_0000) as u32) - 12_582_912.0;
            assert_eq!(magic.to_bits(), i2f(i).to_bits(), "{i}");
        }
    };
    (i32::MIN..=i32::MAX).step_by(499).for_each(check);
    (-(1 << 22)..1 << 22).step_by(3).for_each(check);
    for exponent in 0..31 {
        for near in -3..=3 {
            check(((1_i64 << exponent) + near) as i32);
            check((near - (1_i64 << exponent)) as i32);
        }
    }
    [i32::MIN, i32::MAX, 0].into_iter().for_each(check);
}

/// r of x times s is what r of x is without it, over the whole range of mean squares, those near epsilon above all.
#[test]
fn a_factor_before_a_norm_is_in_its_epsilon() {
    for inverse_square in [2, 256, 1536, 2560] {
        let eps = eps_before_scale(1e-6, inverse_square);
        for exponent in -40..20 {
            let mean_square = pow2(exponent) * 1.37;
            let found = inverse_rms(mean_square, 1, eps);
            let s_squared = 1.0 / f64::from(inverse_square);
            let with_factor = f64::from(mean_square) * s_squared + f64::from(1e-6_f32);
            let right = libm::sqrt(s_squared) / libm::sqrt(with_factor);
            assert!(relative(found, right) < 4e-7, "{inverse_square}, 2^{exponent}: {found}, {right}");
        }
    }
    assert_eq!(eps_before_scale(1e-6, 2).to_bits(), 2e-6_f32.to_bits());
}
