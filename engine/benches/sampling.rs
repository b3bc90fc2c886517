//! How long a choice takes over a vocabulary of 152,064 tokens, on one core.
//!
//! `cargo bench -p unisonic-engine --bench sampling`. Each row is the least and the median time of 1,001
//! choices. The bar is 150 µs for the chain with all its options. Two kinds of logits: those of a model in
//! the middle of a text (a bulk far below a few hundred candidates), and a flat bell in which a filter keeps
//! thousands.

use std::hint::black_box;
use std::time::Instant;

use unisonic_engine::sampling::{Sampler, SamplerOptions, logprobs};

const VOCAB: u32 = 152_064;
const RUNS: usize = 1001;

fn main() {
    let before: Vec<u32> = (0..2000).map(|i| i * 7919 % VOCAB).collect();
    let (model, flat) = (logits(true), logits(false));
    println!("{:<44}{:>12}{:>10}{:>12}{:>10}", "µs", "model: least", "median", "flat: least", "median");
    row("a plain pass for the largest logit", [&model, &flat], largest);
    for (name, options) in options() {
        let mut sampler = Sampler::new(&options, VOCAB).expect("the options are right");
        row(name, [&model, &flat], |z| sampler.choose(z, &before, None));
    }
    row("log-probabilities of 20 tokens", [&model, &flat], |z| logprobs(z, 17, 20));
}

fn row<T>(name: &str, logits: [&[f32]; 2], mut work: impl FnMut(&[f32]) -> T) {
    print!("{name:<44}");
    for z in logits {
        let times = times(|| work(black_box(z)));
        print!("{:>12.1}{:>10.1}", times[0], times[RUNS / 2]);
    }
    println!();
}

fn options() -> Vec<(&'static str, SamplerOptions)> {
    let drawn = SamplerOptions { temperature: 0.8, seed: 1, ..SamplerOptions::default() };
    let penalised = SamplerOptions {
        repeat_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        logit_bias: (0..20).map(|i| (i * 31, if i % 2 == 0 { f64::NEG_INFINITY } else { 1.0 })).collect(),
        ..drawn.clone()
    };
    vec![
        ("greedy", SamplerOptions::default()),
        ("temperature 0.8", drawn.clone()),
        ("temperature 1", SamplerOptions { temperature: 1.0, ..drawn.clone() }),
        ("top-k 40", SamplerOptions { top_k: Some(40), ..drawn.clone() }),
        ("top-p 0.95", SamplerOptions { top_p: Some(0.95), ..drawn.clone() }),
        ("min-p 0.05", SamplerOptions { min_p: Some(0.05), ..drawn.clone() }),
        ("typical 0.95", SamplerOptions { typical: Some(0.95), ..drawn.clone() }),
        ("top-n-sigma 1", SamplerOptions { top_n_sigma: Some(1.0), ..drawn.clone() }),
        ("penalties and bias", penalised.clone()),
        (
            "top-k 40, top-p 0.95, min-p 0.05, penalties",
            SamplerOptions { top_k: Some(40), top_p: Some(0.95), min_p: Some(0.05), ..penalised.clone() },
        ),
        (
            "all options",
            SamplerOptions {
                top_n_sigma: Some(1.5),
                top_k: Some(1000),
                typical: Some(0.95),
                top_p: Some(0.95),
                min_p: Some(0.02),
                ..penalised
            },
        ),
    ]
}

fn logits(of_model: bool) -> Vec<f32> {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let mut bell = || (random() + random() + random() + random() - 2.0) * 1.7;
    let mut z: Vec<f32> = (0..VOCAB).map(|_| bell() * 2.0).collect();
    if of_model {
        // Candidates whose odds fall like 1/rank, the best 17 above the bulk.
        for rank in 0..400_u32 {
            z[(rank * 7919 + 13) as usize % VOCAB as usize] =
                17.0 - (f64::from(rank + 1)).log2() as f32 + 0.1 * bell();
        }
    }
    z
}

fn largest(z: &[f32]) -> i32 {
    let ord = |z: f32| unisonic_core::numerics::float::ord(z);
    z.iter().fold(i32::MIN, |largest, &z| largest.max(ord(z)))
}

/// Times in microseconds, ascending.
fn times<T>(mut work: impl FnMut() -> T) -> Vec<f64> {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}
