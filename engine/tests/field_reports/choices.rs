//! Tokens that should not have been chosen.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use unisonic_cpu::native::CpuDevice;
use unisonic_engine::draft::{Drafter, NgramDrafter};
use unisonic_engine::sampling::{Sampler, SamplerOptions, Window, logprobs};
use unisonic_engine::{Engine, GenerateOptions, Sample, generate};

use super::common::{Answer, Scripted, VOCAB, answer_in, cpu, ids, load_long, options};

/// The choice after these tokens.
fn choice(options: &SamplerOptions, logits: &[f32], before: &[u32]) -> u32 {
    Sampler::new(options, logits.len() as u32).unwrap().choose(logits, before, None).unwrap()
}

/// All that 200 seeds choose.
fn choices(options: &SamplerOptions, logits: &[f32]) -> BTreeSet<u32> {
    (0..200).map(|seed| choice(&SamplerOptions { seed, ..options.clone() }, logits, &[])).collect()
}

fn drawn() -> SamplerOptions {
    SamplerOptions { temperature: 1.0, ..SamplerOptions::default() }
}

/// Continues a prompt by these options.
fn continued(
    engine: &mut Engine,
    prompt: &[u32],
    max_tokens: u32,
    sampling: &SamplerOptions,
    drafter: Option<&mut dyn Drafter>,
) -> Answer {
    let mut sampler = Sampler::new(sampling, VOCAB).unwrap();
    let options = GenerateOptions {
        max_tokens: Some(max_tokens),
        sampler: Some(&mut sampler),
        drafter: drafter.map(|drafter| drafter as &mut dyn Drafter),
        ..GenerateOptions::default()
    };
    answer_in(engine, &mut engine.session(), prompt, None, options).unwrap().0
}

/// Temperature 0 and top-k 1 chose unlike tokens of equal logits, also of those that a short format makes equal.
#[test]
fn ties_go_to_the_lowest_id() {
    let rounded = [5.001_f32, 5.002, 1.0].map(|z| f32::from_bits(z.to_bits() & 0xFFFF_0000));
    assert_eq!(rounded[0].to_bits(), rounded[1].to_bits());
    for logits in [[5.0, 5.0, 1.0], rounded] {
        assert_eq!(choices(&SamplerOptions::default(), &logits), [0].into());
        assert_eq!(choices(&SamplerOptions { top_k: Some(1), ..drawn() }, &logits), [0].into());
    }
}

/// The order of temperature and truncation decides who is a candidate: shares are those of the logits, so that top-p 0.8
/// of 0.67, 0.24, 0.09 keeps two tokens at any temperature.
#[test]
fn temperature_comes_after_truncation() {
    for temperature in [0.5, 1.0, 2.0] {
        let options = SamplerOptions { top_p: Some(0.8), temperature, ..SamplerOptions::default() };
        assert_eq!(choices(&options, &[3.0, 2.0, 1.0]), [0, 1].into(), "temperature {temperature}");
    }
}

/// Tokens that were banned before made mean and deviation infinite, so that the filter kept all or nothing.
#[test]
fn banned_tokens_are_no_part_of_a_deviation() {
    // The deviation of 2, 1, 0 is 0.82: 1 is outside of one, 0 outside of two.
    let bare = [2.0, 1.0, 0.0];
    let masked = [&bare[..], &[f32::NEG_INFINITY; 1000]].concat();
    let banned = [&bare[..], &[1e3; 20]].concat();
    let logit_bias: Vec<(u32, f64)> = (3..23).map(|id| (id, f64::NEG_INFINITY)).collect();
    for (n, right) in [(1.0, BTreeSet::from([0])), (2.0, [0, 1].into()), (3.0, [0, 1, 2].into())] {
        let sigma = SamplerOptions { top_n_sigma: Some(n), temperature: 2.0, ..SamplerOptions::default() };
        assert_eq!(choices(&sigma, &bare), right);
        assert_eq!(choices(&sigma, &masked), right);
        assert_eq!(choices(&SamplerOptions { logit_bias: logit_bias.clone(), ..sigma }, &banned), right);
    }
}

/// Probabilities were no numbers in the second run of 512 tokens in one context.
#[test]
fn a_context_used_twice_has_finite_logits() {
    let mut engine = load_long(&CpuDevice::new().with_threads(1), "Q4_0", 600, &options());
    let mut session = engine.session();
    let prompt = ids(1, 20, VOCAB);
    let mut runs = Vec::new();
    for _ in 0..2 {
        session.truncate(0);
        let mut sampler = Sampler::new(&drawn(), VOCAB).unwrap();
        let options = GenerateOptions {
            max_tokens: Some(512),
            sampler: Some(&mut sampler),
            ..GenerateOptions::default()
        };
        let mut check = |_, logits: &[f32]| {
            assert!(logits.iter().all(|z| z.is_finite()));
            ControlFlow::Continue(())
        };
        let run = generate(&mut engine, &mut session, &prompt, options, &|_| false, &mut check).unwrap();
        assert_eq!(run.token_ids.len(), 512);
        runs.push(run.token_ids);
    }
    assert_eq!(runs[0], runs[1]);
}

/// What is no number is named by token and position. (A device names step and layer before: `EngineError::Range`.)
#[test]
fn a_nan_is_named() {
    let mut sampler = Sampler::new(&drawn(), 3).unwrap();
    let error = sampler.sample(&[1.0, 2.0, f32::NAN], &[7; 40]).unwrap_err().to_string();
    assert!(error.contains("token 2") && error.contains("position 40") && error.contains("NaN"), "{error}");
}

/// A penalty was applied for each occurrence, so that a token of the prompt became impossible.
#[test]
fn a_repeated_token_is_penalised_once() {
    let options = SamplerOptions { repeat_penalty: 1.1, ..SamplerOptions::default() };
    // 2/1.1 is 1.82, 2/1.1^20 is 0.3.
    assert_eq!(choice(&options, &[2.0, 1.83, -1.0], &[0; 20]), 1);
    assert_eq!(choice(&options, &[2.0, 1.81, -1.0], &[0; 20]), 0);
    assert_eq!(choice(&options, &[2.0, 1.83, -1.0], &[1; 20]), 0);
    // -1*1.1 is -1.1, -1*1.1^20 is -6.7.
    assert_eq!(choice(&options, &[-1.0, -1.09, -9.0], &[0; 20]), 1);
    assert_eq!(choice(&options, &[-1.0, -1.11, -9.0], &[0; 20]), 0);
    // Nothing before the window counts.
    let short = SamplerOptions { repeat_window: Window::Last(4), ..options };
    assert_eq!(choice(&short, &[2.0, 1.83, -1.0], &[&[0; 20][..], &[2; 4]].concat()), 0);
}

/// A seed set the temperature to 0, so that all seeds gave one text.
#[test]
fn a_seed_leaves_the_temperature() {
    let mut engine = cpu(&options());
    let mut text =
        |options: SamplerOptions| continued(&mut engine, &ids(2, 9, VOCAB), 40, &options, None).ids;
    let (one, two) = (SamplerOptions { seed: 1, ..drawn() }, SamplerOptions { seed: 2, ..drawn() });
    let greedy = text(SamplerOptions::default());
    assert_eq!(text(one.clone()), text(one.clone()));
    assert_ne!(text(one.clone()), text(two.clone()));
    assert!(text(one) != greedy && text(two) != greedy);
    assert_eq!(text(SamplerOptions { seed: 1, ..SamplerOptions::default() }), greedy);
}

/// A bias had no effect: by id or by text, and together with speculation, whose guesses may say what is banned.
#[test]
fn a_bias_decides_under_speculation() {
    let mut engine = cpu(&options());
    let prompt = ids(3, 30, 8);
    let plain = continued(&mut engine, &prompt, 30, &SamplerOptions::default(), None).ids;
    let token = plain[0];
    let of_json = |bias: &str| -> SamplerOptions {
        serde_json::from_str(&format!(r#"{{"logit_bias": {{"{token}": {bias}}}}}"#)).unwrap()
    };
    let of_id = |bias| SamplerOptions { logit_bias: vec![(token, bias)], ..SamplerOptions::default() };
    let biases = [("-100", -100.0), ("\"-inf\"", f64::NEG_INFINITY), ("100", 100.0)];
    for (json, bias) in biases {
        let options = of_id(bias);
        assert_eq!(of_json(json), options);
        let right = continued(&mut engine, &prompt, 30, &options, None);
        let count = right.ids.iter().filter(|&&id| id == token).count();
        assert_eq!(count, if bias > 0.0 { 30 } else { 0 }, "{bias}");
        let said = [&prompt[..], &plain].concat();
        let mut guesses: [Box<dyn Drafter>; 3] = [
            Box::new(NgramDrafter::new()),
            Box::new(Scripted { right: said.clone(), wrong_every: 0, wrong: token }),
            Box::new(Scripted { right: said, wrong_every: 1, wrong: token }),
        ];
        for drafter in &mut guesses {
            assert_eq!(continued(&mut engine, &prompt, 30, &options, Some(&mut **drafter)), right, "{bias}");
        }
    }
}

/// Log-probabilities of what filters had removed were infinite, which JSON does not have. Here they are of the raw logits, so
/// that the least is finite too, and no floor is needed.
#[test]
fn log_probabilities_are_numbers_of_json() {
    let options = SamplerOptions { top_k: Some(1), ..drawn() };
    for logits in [[5.0, 5.0, 1.0, 0.0, -3.0, -9.0], [1e30, 0.0, -1e30, 3.0, 2.0, 1.0]] {
        let chosen = choice(&options, &logits, &[]);
        let found = logprobs(&logits, chosen, 5).unwrap();
        assert_eq!((chosen, found.chosen.token, found.top.len()), (0, 0, 5));
        for of in found.top.iter().chain([&found.chosen]) {
            let json = serde_json::to_string(&of.logprob).unwrap();
            let back: f32 = serde_json::from_str(&json).unwrap();
            assert_eq!(back.to_bits(), of.logprob.to_bits(), "{json}");
        }
    }
}
