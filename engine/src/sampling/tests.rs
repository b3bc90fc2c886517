//! The chain against its specification, bit for bit, over random and adversarial logits.

use proptest::prelude::*;
use proptest::sample::select;
use unisonic_core::numerics::elementary::log;
use unisonic_core::numerics::filters::{distance, integer_weight, sigma_grid};
use unisonic_core::numerics::float::ord;
use unisonic_core::numerics::sampling::Temperature;
use unisonic_core::numerics::sampling_chain::SamplingChain;

use super::{Sampler, SamplerError, SamplerOptions, Window, passes};

/// Logits as models make them, and as nobody would.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let len = prop_oneof![1_usize..10, 60_usize..200, 1000_usize..3000];
    let kind =
        select(vec!["bell", "ties", "equal", "huge", "flat", "zeros", "steep", "far", "masked", "model"]);
    (len, kind, any::<u64>()).prop_map(|(len, kind, seed)| logits_of(len, kind, seed))
}

fn logits_of(len: usize, kind: &str, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut bell = || (random() + random() + random() + random() - 2.0) * 3.0;
    let mut z: Vec<f32> = (0..len).map(|_| bell()).collect();
    match kind {
        "ties" => z.iter_mut().for_each(|z| *z = (*z * 2.0).trunc()),
        "equal" => z.fill(bell()),
        "huge" => z[seed as usize % len] = 1e18,
        "flat" => z.iter_mut().for_each(|z| *z *= 1e-6),
        "zeros" => z.iter_mut().for_each(|z| *z = if *z > 0.0 { 0.0 } else { -0.0 }),
        "steep" => z.iter_mut().for_each(|z| *z *= 12.0),
        "far" => z.iter_mut().for_each(|z| *z = *z * *z * *z * 1e15),
        // A few far above the others, with odds that fall like 1/rank.
        "model" => {
            let few = z.iter_mut().skip(seed as usize % 7).step_by(len.div_ceil(400));
            few.zip(1_u32..).for_each(|(z, rank)| *z += 17.0 - f64::from(rank).log2() as f32);
        }
        "masked" => z.iter_mut().skip(1).step_by(2).for_each(|z| *z = f32::NEG_INFINITY),
        _ => {}
    }
    z
}

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![select(vec![0.0, 1e-9, 0.05, 0.5, 0.9, 0.999_999, 1.0]), 0.0..1.0]
}

/// Each option alone half of the time, all together the other half.
fn options() -> impl Strategy<Value = SamplerOptions> {
    let filters = (
        prop::option::of(1_u32..400),
        prop::option::of(share()),
        prop::option::of(share()),
        prop::option::of(share()),
        prop::option::of(prop_oneof![select(vec![0.0, 1e-4, 1.0, 3.0, 64.0]), 0.0..4.0]),
    );
    let penalties = (
        select(vec![1.0, 1.1, 0.5, 30.0]),
        select(vec![Window::Last(0), Window::Last(5), Window::Last(64), Window::All]),
        select(vec![0.0, 0.4, -2.0]),
        select(vec![0.0, 0.7, -0.1]),
        prop::collection::btree_map(
            0_u32..3000,
            prop_oneof![Just(f64::NEG_INFINITY), -100.0..100.0, Just(1e6)],
            0..6,
        ),
    );
    let temperature = prop_oneof![Just(0.0), Just(1.0), Just(1e-4), Just(1e4), 0.3..2.0];
    (filters, penalties, temperature, any::<u64>(), 0..22).prop_map(
        |(filters, penalties, temperature, seed, only)| {
            let (top_k, top_p, min_p, typical, top_n_sigma) = filters;
            let (repeat_penalty, repeat_window, presence_penalty, frequency_penalty, biases) = penalties;
            // Above 10: all of them.
            let here = |which: i32| only > 10 || only == which;
            SamplerOptions {
                temperature,
                top_k: top_k.filter(|_| here(0)),
                top_p: top_p.filter(|_| here(1)),
                min_p: min_p.filter(|_| here(2)),
                typical: typical.filter(|_| here(3)),
                top_n_sigma: top_n_sigma.filter(|_| here(4)),
                repeat_penalty: if here(5) { repeat_penalty } else { 1.0 },
                repeat_window,
                presence_penalty: if here(6) { presence_penalty } else { 0.0 },
                frequency_penalty: if here(7) { frequency_penalty } else { 0.0 },
                logit_bias: if here(8) { biases.into_iter().collect() } else { Vec::new() },
                seed,
            }
        },
    )
}

/// A choice by the specification; None where all is masked.
fn right(options: &SamplerOptions, logits: &[f32], before: &[u32], allowed: Option<&[u32]>) -> Option<u32> {
    let is_allowed = |id: u32| {
        let word = |words: &[u32]| words.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
        allowed.is_none_or(word)
    };
    options.check(3000).unwrap().choose(logits, before, &is_allowed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn chooses_what_the_specification_chooses(
        all in prop::collection::vec((logits(), prop::collection::vec(0_u32..3100, 0..100)), 1..4),
        allowed in prop::option::weighted(0.3, prop::collection::vec(any::<u32>(), 0..100)),
        options in options(),
    ) {
        // One sampler for several choices: nothing is carried from one to the next.
        let mut sampler = Sampler::new(&options, 3000).unwrap();
        for (logits, before) in all {
            let allowed = allowed.as_deref();
            let expected = right(&options, &logits, &before, allowed);
            let position = before.len() as u32;
            let expected = expected.ok_or(SamplerError::NothingAllowed { position });
            prop_assert_eq!(sampler.choose(&logits, &before, allowed), expected);
        }
    }

    /// Not only the token: every filter keeps the same ids. Draws of many seeds show each of them.
    #[test]
    fn keeps_what_the_specification_keeps(logits in logits(), options in options()) {
        for seed in 0..8 {
            // Hot enough that any kept id may win.
            let options = SamplerOptions { seed, temperature: 1e4, ..options.clone() };
            let found = Sampler::new(&options, 3000).unwrap().choose(&logits, &[], None);
            prop_assert_eq!(found.ok(), right(&options, &logits, &[], None));
        }
    }

    #[test]
    fn weights_and_distances_are_those_of_the_specification(z_max in -1e6_f32..1e6, below in 0.0_f32..70.0) {
        for z in [z_max, z_max - below, z_max - below * below * below, f32::NEG_INFINITY] {
            prop_assert_eq!(passes::integer_weight(z, z_max), integer_weight(z, z_max));
            prop_assert_eq!(passes::distance(z, z_max), distance(z, z_max));
            prop_assert_eq!(passes::sigma_grid(z), sigma_grid(z));
            prop_assert_eq!(passes::sigma_grid(below), sigma_grid(below));
        }
    }
}

/// Every float distance up to where weights end, in coarse steps of the pattern and densely around the ends.
#[test]
fn weights_are_exact_at_every_distance() {
    let coarse = (0..30.0_f32.to_bits()).step_by(977);
    let ends = [21.4_f32, 21.6, 0.34, 0.35].map(f32::to_bits);
    let dense = (ends[0]..ends[1]).chain(ends[2]..ends[3]);
    for below in coarse.chain(dense).map(f32::from_bits) {
        assert_eq!(passes::integer_weight(-below, 0.0), integer_weight(-below, 0.0), "{below}");
    }
}

/// A vocabulary as large as they come, through every filter on its own.
#[test]
fn large_vocabularies() {
    for kind in ["bell", "ties", "equal", "flat", "steep", "model"] {
        let logits = logits_of(152_064, kind, 5);
        let plain = SamplerOptions { temperature: 1.0, seed: 3, ..SamplerOptions::default() };
        let drawn = [
            plain.clone(),
            SamplerOptions { top_k: Some(40), ..plain.clone() },
            SamplerOptions { top_k: Some(5000), ..plain.clone() },
            SamplerOptions { top_p: Some(0.95), ..plain.clone() },
            SamplerOptions { top_p: Some(0.99), min_p: Some(0.001), ..plain.clone() },
            SamplerOptions { min_p: Some(0.05), ..plain.clone() },
            SamplerOptions { typical: Some(0.9), ..plain.clone() },
            SamplerOptions { top_n_sigma: Some(1.0), ..plain.clone() },
            SamplerOptions { top_n_sigma: Some(2.0), top_k: Some(1000), ..plain.clone() },
        ];
        for options in drawn {
            let chain = options.check(152_064).unwrap();
            // Whatever is kept may win where it is hot.
            for (temperature, seed) in [(0.0, 0), (1.0, 3), (0.6, 6), (1e4, 4), (1e4, 5)] {
                let options = SamplerOptions { temperature, seed, ..options.clone() };
                let chain = SamplingChain {
                    temperature: Temperature::new(temperature).unwrap(),
                    seed,
                    ..chain.clone()
                };
                let found = Sampler::new(&options, 152_064).unwrap().choose(&logits, &[1, 2], None);
                assert_eq!(found.ok(), chain.choose(&logits, &[1, 2], &|_| true), "{kind}, {options:?}");
            }
        }
    }
}

#[test]
fn greedy_top_k_1_and_temperature_0_agree_on_ties() {
    let logits = [5.0, 1.0, 5.0, -0.0];
    for seed in 0..100 {
        for (temperature, top_k) in [(0.0, None), (0.0, Some(3)), (1.0, Some(1))] {
            let options = SamplerOptions { temperature, top_k, seed, ..SamplerOptions::default() };
            assert_eq!(Sampler::new(&options, 4).unwrap().choose(&logits, &[], None), Ok(0));
        }
    }
}

/// A seed changes draws, and does not change the temperature: greedy stays greedy.
#[test]
fn seeds_differ_and_greedy_has_none() {
    let logits = logits_of(500, "bell", 1);
    let choices = |temperature: f64| -> Vec<u32> {
        let choice = |seed| {
            let options = SamplerOptions { temperature, seed, ..SamplerOptions::default() };
            Sampler::new(&options, 500).unwrap().choose(&logits, &[1, 2, 3], None).unwrap()
        };
        (0..20).map(choice).collect()
    };
    let drawn = choices(1.0);
    assert!(drawn.iter().any(|&token| token != drawn[0]));
    assert_eq!(choices(1.0), drawn);
    let greedy = choices(0.0);
    assert!(greedy.iter().all(|&token| token == greedy[0]));
}

/// Draws follow the probabilities: 20,000 positions, each token within five standard deviations.
#[test]
fn draws_follow_the_probabilities() {
    let weights = [0.5_f64, 0.25, 0.15, 0.07, 0.03];
    let logits = weights.map(|weight| log(weight as f32));
    let options = SamplerOptions { temperature: 1.0, seed: 11, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(&options, 5).unwrap();
    let mut counts = [0_u32; 5];
    let n = 20_000;
    let mut before = Vec::new();
    for _ in 0..n {
        counts[sampler.choose(&logits, &before, None).unwrap() as usize] += 1;
        before.push(0);
    }
    for (count, weight) in counts.into_iter().zip(weights) {
        let (mean, deviation) = (weight * f64::from(n), (f64::from(n) * weight * (1.0 - weight)).sqrt());
        assert!((f64::from(count) - mean).abs() < 5.0 * deviation, "{counts:?}");
    }
}

/// Masks leave the others' statistics alone, and a bias decides however the rest looks.
#[test]
fn biases_and_masks_decide() {
    let mut logits = vec![f32::NEG_INFINITY; 1000];
    logits.extend([2.0, 1.0, 0.0]);
    let plain = SamplerOptions { temperature: 1.0, ..SamplerOptions::default() };
    for seed in 0..50 {
        let sigma = SamplerOptions { top_n_sigma: Some(1.0), seed, ..plain.clone() };
        // The deviation of 2, 1, 0 is 0.816: only 2 is within one of the largest.
        assert_eq!(Sampler::new(&sigma, 1003).unwrap().choose(&logits, &[], None), Ok(1000));
        for (bias, expected) in [(f64::NEG_INFINITY, 1001), (-1e6, 1001), (100.0, 1000)] {
            let options =
                SamplerOptions { logit_bias: vec![(1000, bias), (1002, -100.0)], seed, ..plain.clone() };
            assert_eq!(Sampler::new(&options, 1003).unwrap().choose(&logits, &[], None), Ok(expected));
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    let error = |options: SamplerOptions| Sampler::new(&options, 10).unwrap_err().to_string();
    let default = SamplerOptions::default;
    for (options, says) in [
        (
            SamplerOptions { temperature: -1.0, ..default() },
            "temperature is -1, but it has to be 0, or from 0.0001 to 10000",
        ),
        (SamplerOptions { top_k: Some(0), ..default() }, "top-k is 0, but it has to be at least 1"),
        (SamplerOptions { top_p: Some(1.5), ..default() }, "top-p is 1.5, but it has to be from 0 to 1"),
        (SamplerOptions { min_p: Some(f64::NAN), ..default() }, "min-p is NaN, but it has to be from 0 to 1"),
        (
            SamplerOptions { typical: Some(-0.1), ..default() },
            "typical is -0.1, but it has to be from 0 to 1",
        ),
        (
            SamplerOptions { top_n_sigma: Some(65.0), ..default() },
            "top-n-sigma is 65, but it has to be from 0 to 64",
        ),
        (
            SamplerOptions { repeat_penalty: 0.0, ..default() },
            "repeat penalty is 0, but it has to be from 1/1024 to 1024",
        ),
        (SamplerOptions { presence_penalty: 1e4, ..default() }, "presence penalty is 10000, but"),
        (SamplerOptions { frequency_penalty: f64::INFINITY, ..default() }, "frequency penalty is inf, but"),
        (
            SamplerOptions { logit_bias: vec![(10, 1.0)], ..default() },
            "logit bias names token 10, but the model's tokens are 0 to 9",
        ),
        (
            SamplerOptions { logit_bias: vec![(3, 1.0), (3, 2.0)], ..default() },
            "logit bias names token 3 twice",
        ),
        (SamplerOptions { logit_bias: vec![(3, f64::INFINITY)], ..default() }, "logit bias is inf, but"),
    ] {
        let error = error(options);
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn logits_that_cannot_be_are_named() {
    let mut sampler = Sampler::new(&SamplerOptions::default(), 3).unwrap();
    for bad in [f32::INFINITY, f32::NAN] {
        let error = sampler.choose(&[0.0, bad, 1.0], &[7], None).unwrap_err();
        assert!(error.to_string().starts_with("the logit of token 1 at position 1 is"), "{error}");
    }
    assert_eq!(sampler.choose(&[0.0; 3], &[], Some(&[])), Err(SamplerError::NothingAllowed { position: 0 }));
    assert_eq!(sampler.choose(&[], &[], None), Err(SamplerError::NothingAllowed { position: 0 }));
    assert_eq!(ord(-0.0), -1);
    assert_eq!(sampler.choose(&[-0.0, 0.0, 0.0], &[], None), Ok(1));
}
