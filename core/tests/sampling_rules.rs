//! Sampling beyond the known answers: options and their limits, ties, penalties, bias, typical sampling.

#[path = "support/generator.rs"]
mod generator;

use generator::{gauss_row, splitmix64};
use unisonic_core::numerics::filters::{Fraction, Sigmas, min_p, top_k, top_n_sigma, top_p, typical};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::penalties::{Bias, Penalties, apply_bias};
use unisonic_core::numerics::sampling::{DrawKey, Temperature, draw, greedy, reciprocal_of_f64, uniform};

fn ids(n: u32) -> Vec<u32> {
    (0..n).collect()
}

/// Greedy, temperature 0 and top-k 1 agree where logits tie: the lowest id.
#[test]
fn ties_go_to_the_lowest_id() {
    let z = [1.0, 5.0, 5.0, -0.0];
    assert_eq!(greedy(&z, &ids(4)), Some(1));
    assert_eq!(greedy(&[-0.0, 0.0, 0.0], &ids(3)), Some(1));
    for seed in 0..100 {
        let mut kept = ids(4);
        top_k(&z, &mut kept, 1);
        let key = DrawKey { seed, position: 3, purpose: 0 };
        assert_eq!(draw(&z, &kept, Temperature::new(1.0).unwrap(), key), Some(1));
        assert_eq!(draw(&z, &ids(4), Temperature::new(0.0).unwrap(), key), Some(1));
    }
    assert_eq!(greedy(&z, &[]), None);
}

/// A draw does not depend on the other kept ids, nor on their number, only on who wins.
#[test]
fn draws_are_keyed_by_token() {
    let z = gauss_row(3, 500);
    let key = DrawKey { seed: 9, position: 7, purpose: 0 };
    let temperature = Temperature::new(0.8).unwrap();
    let winner = draw(&z, &ids(500), temperature, key).unwrap();
    for (first, end) in [(0, winner + 1), (winner, 500), (winner / 2, winner + 7)] {
        let some: Vec<u32> = (first..end.min(500)).collect();
        assert_eq!(draw(&z, &some, temperature, key), Some(winner));
    }
    let others: Vec<Option<u32>> =
        (0..20).map(|seed| draw(&z, &ids(500), temperature, DrawKey { seed, ..key })).collect();
    assert!(others.iter().any(|&other| other != Some(winner)), "seeds differ");
}

#[test]
fn uniform_stays_inside_0_and_1() {
    for word in [0, 1, 2, u32::MAX, u32::MAX - 1, 0x8000_0000, 0x7FFF_FFFF] {
        let w = uniform(word);
        assert!(w > 0.0 && w <= 1.0 - pow2(-24), "{w}");
    }
    assert_eq!(uniform(0).to_bits(), pow2(-32).to_bits());
}

#[test]
fn options_have_limits() {
    for good in [0.0, 1e-4, 0.7, 1e4] {
        assert!(Temperature::new(good).is_ok());
    }
    for bad in [-0.1, 9.9e-5, 1.1e4, f64::NAN, f64::INFINITY] {
        let error = Temperature::new(bad).unwrap_err();
        assert!(error.to_string().starts_with(&format!("temperature is {bad}")), "{error}");
    }
    for bad in [-1e-9, 1.000_000_1, f64::NAN] {
        assert!(Fraction::new("top-p", bad).is_err());
    }
    for bad in [-1e-9, 64.1, f64::NAN] {
        assert!(Sigmas::new(bad).is_err());
    }
    for good in [0.0, 1e-300, 0.5, 64.0] {
        assert!(Sigmas::new(good).is_ok() && Fraction::new("min-p", good / 64.0).is_ok());
    }
    for (repeat, frequency, presence) in [
        (0.0, 0.0, 0.0),
        (-1.0, 0.0, 0.0),
        (f32::NAN, 0.0, 0.0),
        (1.0, f32::INFINITY, 0.0),
        (1.0, 0.0, 2000.0),
    ] {
        assert!(Penalties::new(repeat, frequency, presence).is_err());
    }
    assert!(Bias::new(f32::INFINITY).is_err() && Bias::new(f32::NAN).is_err());
}

/// f32(1/T) rounds the exact reciprocal once: no float is nearer to 1/T. `T*f - 1` compares exactly in
/// integers.
#[test]
fn reciprocals_are_rounded_once() {
    // |1 - T*f| as an integer in units far below any rounding.
    let miss = |t: f64, f: f32| -> i128 {
        let significand = i128::from((t.to_bits() & ((1 << 52) - 1)) | (1 << 52));
        let f_significand = i128::from((f.to_bits() & 0x7F_FFFF) | 0x80_0000);
        let exponent = (t.to_bits() >> 52) as i32 - 1075 + (f.to_bits() >> 23) as i32 - 150;
        ((1_i128 << -exponent) - significand * f_significand).abs()
    };
    let mut temperatures = vec![1.0, 0.5, 0.7, 2.0 / 3.0, 1.5, 1e-4, 1e4, 3.0, 1.0 + f64::EPSILON];
    temperatures.extend(
        (0..20_000).map(|i| 1e-4 + splitmix64(1, i) as f64 / u64::MAX as f64 * (1.0 + i as f64 / 10.0)),
    );
    // Reciprocals next to the middle between two floats, where rounding twice goes wrong.
    temperatures.extend((0..20_000).map(|i| {
        let middle = f64::from(f32::from_bits(0x3F80_0000 + i * 401)) + f64::from(pow2(-24));
        1.0 / middle
    }));
    for t in temperatures {
        let f = reciprocal_of_f64(t);
        let [lower, upper] = [f.to_bits() - 1, f.to_bits() + 1].map(f32::from_bits);
        // Neighbours in another binade have another unit, so compare only those in this one.
        for other in [lower, upper].into_iter().filter(|other| other.to_bits() >> 23 == f.to_bits() >> 23) {
            assert!(miss(t, f) <= miss(t, other), "1/{t}: {f} or {other}");
        }
    }
}

/// Odds 8 : 4 : 2 : 1 : 1 have an entropy of 1.875 bits; the surprisals are 1, 2, 3, 4 and 4 bits.
#[test]
fn typical_keeps_what_is_nearest_to_the_entropy() {
    let bit = std::f32::consts::LN_2;
    let z = [0.0, -bit, -2.0 * bit, -3.0 * bit, -3.0 * bit, -100.0];
    // Nearest first: 1 (a quarter), 0 (a half), 2 (an eighth), then 3 and 4 together.
    for (p, expected) in [
        (0.0, vec![1]),
        (0.2, vec![1]),
        (0.3, vec![0, 1]),
        (0.8, vec![0, 1, 2]),
        (0.9, vec![0, 1, 2, 3, 4]),
        (1.0, vec![0, 1, 2, 3, 4]),
    ] {
        let mut kept = ids(6);
        typical(&z, &mut kept, Fraction::new("typical", p).unwrap());
        assert_eq!(kept, expected, "p {p}");
    }
}

/// Filters never empty a list, whatever the option, and leave an empty list empty.
#[test]
fn filters_keep_at_least_one_id() {
    let z = [3.0, -7.0, 3.0, 100.0, -4e9];
    for start in [ids(5), vec![1], vec![1, 4], vec![]] {
        let mut lists = vec![start.clone(); 5];
        top_k(&z, &mut lists[0], 0);
        top_p(&z, &mut lists[1], Fraction::new("top-p", 0.0).unwrap());
        min_p(&z, &mut lists[2], Fraction::new("min-p", 1.0).unwrap());
        top_n_sigma(&z, &mut lists[3], Sigmas::new(0.0).unwrap());
        typical(&z, &mut lists[4], Fraction::new("typical", 0.0).unwrap());
        for kept in lists {
            assert_eq!(kept.is_empty(), start.is_empty());
        }
    }
}

/// The repeat penalty acts once, however often a token occurs; the others count.
#[test]
fn penalties_follow_their_formula() {
    let penalties = Penalties::new(1.1, 0.25, 0.5).unwrap();
    let inverse = 1.0 / 1.1_f32;
    assert_eq!(penalties.apply(2.0, 20).to_bits(), (2.0 * inverse - 5.0 - 0.5).to_bits());
    assert_eq!(penalties.apply(-1.0, 1).to_bits(), (-1.1_f32 - 0.25 - 0.5).to_bits());
    let repeat = Penalties::new(1.1, 0.0, 0.0).unwrap();
    assert_eq!(repeat.apply(2.0, 1).to_bits(), repeat.apply(2.0, 20).to_bits());
    let none = Penalties::new(1.0, 0.0, 0.0).unwrap();
    assert_eq!(none.apply(-3.5, 7).to_bits(), (-3.5_f32).to_bits());
}

#[test]
fn bias_adds_or_masks() {
    let (mut z, mut kept) = (vec![1.0, 2.0, 3.0], ids(3));
    apply_bias(&mut z, &mut kept, 1, Bias::new(0.5).unwrap());
    apply_bias(&mut z, &mut kept, 2, Bias::new(f32::NEG_INFINITY).unwrap());
    apply_bias(&mut z, &mut kept, 99, Bias::new(1.0).unwrap());
    assert_eq!((z, kept), (vec![1.0, 2.5, 3.0], vec![0, 1]));
}
