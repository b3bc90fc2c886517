use serde_json::Value;
use unisonic_core::numerics::filters::{Fraction, Sigmas, min_p, top_k, top_n_sigma, top_p};
use unisonic_core::numerics::penalties::Bias;
use unisonic_core::numerics::philox::{philox4x32_10, random_word};
use unisonic_core::numerics::sampling::{
    DrawKey, Temperature, draw, exponential, gumbel, perturbed, uniform,
};
use unisonic_core::numerics::sampling_chain::{SamplingChain, Window};

use crate::json::{assert_bits, floats, integer, integers, list, load, text, word};

pub fn philox() {
    for case in list(&load("sampling")["philox"]) {
        let words = |value: &Value| -> Vec<u32> { list(value).iter().map(word).collect() };
        let counter = words(&case["ctr"]).try_into().unwrap();
        let key = words(&case["key"]).try_into().unwrap();
        assert_eq!(philox4x32_10(counter, key).to_vec(), words(&case["out"]));
    }
}

pub fn gumbels() {
    for sample in list(&load("sampling")["gumbel"]) {
        let random = word(&sample[0]);
        assert_bits(&[uniform(random)], &sample[1], "w");
        assert_bits(&[exponential(random)], &sample[2], "E");
        assert_bits(&[gumbel(random)], &sample[3], "g");
    }
}

pub fn draws() {
    for case in list(&load("sampling")["draws"]) {
        let name = text(&case["name"]);
        let z = floats(&case["z"]);
        let masked = integers(&case["masked"]);
        let mut kept: Vec<u32> = (0..z.len() as u32).filter(|&id| !masked.contains(&i64::from(id))).collect();
        filter(case, &z, &mut kept);
        let temperature = Temperature::new(case["T"].as_f64().unwrap()).unwrap();
        let key = DrawKey {
            seed: u64::from_str_radix(text(&case["seed"]), 16).unwrap(),
            position: integer(&case["pos"]) as u32,
            purpose: integer(&case["purpose"]) as u32,
        };
        if let Temperature::Inverse(inverse) = temperature {
            assert_bits(&[inverse], &case["inv_T"], name);
            let noise = |id| gumbel(random_word(key.seed, key.position, id, key.purpose));
            let noise: Vec<f32> = (0..z.len() as u32).map(noise).collect();
            assert_bits(&noise, &case["gumbel"], name);
            let scores: Vec<f32> = z.iter().zip(noise).map(|(&z, g)| perturbed(z, inverse, g)).collect();
            assert_bits(&scores, &case["score"], name);
        } else {
            assert!(case.get("inv_T").is_none(), "{name}: greedy");
        }
        let token = draw(&z, &kept, temperature, key).unwrap();
        assert_eq!(i64::from(token), integer(&case["token"]), "{name}");
        let before = vec![0; key.position as usize];
        let chain = chain(case, temperature, key.seed);
        assert!(key.purpose != 0 || chain.choose(&z, &before, &|_| true) == Some(token), "{name}: chain");
    }
}

/// The options of a case; what it masks by a bias of -inf.
fn chain(case: &Value, temperature: Temperature, seed: u64) -> SamplingChain {
    let fraction = |name| case[name].as_f64().map(|p| Fraction::new(name, p).unwrap());
    SamplingChain {
        penalties: None,
        window: Window::All,
        biases: integers(&case["masked"]).into_iter().map(|id| (id as u32, Bias::Mask)).collect(),
        top_n_sigma: case["top_n_sigma"].as_f64().map(|n| Sigmas::new(n).unwrap()),
        top_k: case["top_k"].as_u64().map(|k| k as u32),
        typical: None,
        top_p: fraction("top_p"),
        min_p: fraction("min_p"),
        temperature,
        seed,
    }
}

/// The filters of a case in their order, each checked.
fn filter(case: &Value, z: &[f32], kept: &mut Vec<u32>) {
    let name = text(&case["name"]);
    let expected = case["kept_after"].as_object().unwrap();
    let mut checked = 0;
    let mut check = |filter: &str, kept: &[u32]| {
        let kept: Vec<i64> = kept.iter().map(|&id| i64::from(id)).collect();
        assert_eq!(kept, integers(&expected[filter]), "{name}: {filter}");
        checked += 1;
    };
    if let Some(n) = case["top_n_sigma"].as_f64() {
        top_n_sigma(z, kept, Sigmas::new(n).unwrap());
        check("top_n_sigma", kept);
    }
    if let Some(k) = case["top_k"].as_u64() {
        top_k(z, kept, k as usize);
        check("top_k", kept);
    }
    if let Some(p) = case["top_p"].as_f64() {
        top_p(z, kept, Fraction::new("top_p", p).unwrap());
        check("top_p", kept);
    }
    if let Some(m) = case["min_p"].as_f64() {
        min_p(z, kept, Fraction::new("min_p", m).unwrap());
        check("min_p", kept);
    }
    assert_eq!(checked, expected.len(), "{name}: filters");
}
