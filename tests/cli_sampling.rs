//! Sampling through the whole program: what options do, and that who guesses and how much at a time is invisible.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::Value as Json;
use unisonic_core::numerics::elementary::exp;

const PROMPT: &str = "let a = f(x); let b = f(y); let c = f(x); let d = ";

fn run(args: &[&str]) -> std::process::Output {
    unisonic(&[&["run", "--json", "--max-tokens", "24", &model(), PROMPT], args].concat())
}

fn run_json(args: &[&str]) -> Json {
    last_line_json(&succeeded(run(args)))
}

fn ids(args: &[&str]) -> Vec<u64> {
    run_json(args)["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// All options at once.
const ALL: &str = "--temperature 0.9 --top-k 200 --top-p 0.98 --min-p 0.001 --typical 0.99 --top-n-sigma 5 \
    --repeat-penalty 1.1 --presence-penalty 0.2 --frequency-penalty -0.1 --repeat-last-n -1 --logit-bias 65=1.5 \
    --logit-bias 41=-inf";

#[test]
fn a_seed_names_an_answer_whoever_guesses() {
    for options in ["--temperature 0.2", ALL] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let answer = |seed: &str, args: &[&str]| {
            let mut json = run_json(&[&options[..], &["--seed", seed, "--logits-digest"], args].concat());
            json.as_object_mut().unwrap().remove("speculation");
            json
        };
        let right = answer("7", &[]);
        let q8_0 = common::quant("Q8_0");
        for args in [
            &["--speculate", "off"][..],
            &["--speculate", "ngram", "--chunk", "5"],
            &["--draft-model", &model()],
            &["--draft-model", q8_0.to_str().unwrap(), "--chunk", "1"],
        ] {
            assert_eq!(answer("7", args), right, "{args:?}");
        }
        assert_ne!(answer("8", &[])["token_ids"], right["token_ids"]);
    }
    assert_eq!(ids(&["--temperature", "1"]), ids(&["--temperature", "1", "--seed", "0"]), "0 unless given");
}

#[test]
fn the_narrowest_choice_is_the_greedy_one() {
    let greedy = ids(&[]);
    for narrow in
        [["--top-k", "1"], ["--top-p", "0"], ["--min-p", "1"], ["--top-n-sigma", "0"], ["--seed", "9"]]
    {
        let temperature = if narrow[0] == "--seed" { "0" } else { "1" };
        assert_eq!(ids(&[&["--temperature", temperature], &narrow[..]].concat()), greedy, "{narrow:?}");
    }
    assert_ne!(ids(&["--temperature", "1"]), greedy);
}

#[test]
fn biases_and_penalties_need_no_temperature() {
    assert_eq!(ids(&["--logit-bias", "65=1000000"]), [65; 24]);
    let greedy = ids(&[]);
    let without = ids(&["--logit-bias", &format!("{}=-inf", greedy[0])]);
    assert!(!without.contains(&greedy[0]));
    // So large that no token comes twice as long as there are others.
    let once = ids(&["--presence-penalty", "1000", "--repeat-last-n", "-1"]);
    assert!(once.iter().enumerate().all(|(at, id)| !once[..at].contains(id)), "{once:?}");
}

/// Log-probabilities are the model's: no option of sampling changes them, nor who guesses.
#[test]
fn logprobs_are_of_the_model_alone() {
    let plain = run_json(&["--logprobs", "3"]);
    let tokens = plain["logprobs"].as_array().unwrap();
    assert_eq!(tokens.len(), 24);
    for (token, id) in tokens.iter().zip(plain["token_ids"].as_array().unwrap()) {
        let top = token["top"].as_array().unwrap();
        assert_eq!((&token["id"], &top[0]["id"], top.len()), (id, id, 3), "greedy is the most probable one");
        assert_eq!(token["logprob"], top[0]["logprob"]);
        let logprobs: Vec<f64> = top.iter().map(|of| of["logprob"].as_f64().unwrap()).collect();
        assert!(logprobs.is_sorted_by(|a, b| a >= b) && logprobs[0] < 0.0, "{logprobs:?}");
    }
    assert_eq!(run_json(&["--logprobs", "3", "--chunk", "1"]), plain);
    // All of them: what is drawn first is among them, and together they are certain.
    let drawn = run_json(&["--logprobs", "1000", "--temperature", "2", "--top-k", "50"]);
    let first = &drawn["logprobs"][0];
    let all = first["top"].as_array().unwrap();
    assert_eq!((all.len(), &all[..3]), (259, &tokens[0]["top"].as_array().unwrap()[..]));
    assert!(all.contains(&serde_json::json!({ "id": first["id"], "logprob": first["logprob"] })));
    let sum: f64 = all.iter().map(|of| f64::from(exp(of["logprob"].as_f64().unwrap() as f32))).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    assert!(run_json(&["--logprobs", "0"])["logprobs"][0]["top"].as_array().unwrap().is_empty());
    assert_eq!(run_json(&[])["logprobs"], Json::Null, "only for those who ask");
}

#[test]
fn options_that_cannot_be_are_named() {
    for (args, says) in [
        (["--temperature", "20000"], "temperature is 20000, but it has to be 0, or from 0.0001 to 10000"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--frequency-penalty", "x"], "expected a number"),
        (["--context", "0"], "expected a whole number from 1"),
        (["--context", "-1"], "expected a whole number from 1"),
        (["--memory-limit", "8G"], "KiB"),
        (["--max-tokens", "few"], "expected a whole number from 0"),
        (["--logit-bias", "259=1"], "logit bias names token 259, but the model's tokens are 0 to 258"),
        (["--repeat-penalty", "0"], "repeat penalty is 0, but it has to be from 1/1024 to 1024"),
    ] {
        // Which tokens there are is the model's to say.
        let code = if args[0] == "--logit-bias" { 1 } else { 2 };
        let model = model();
        let all = [&["run", model.as_str(), PROMPT], &args[..]].concat();
        assert_says(&failed(unisonic(&all), code), &[says]);
    }
    for useless in [["--seed", "1"], ["--top-k", "5"], ["--min-p", "0.1"], ["--logit-bias", "65"]] {
        assert_eq!(run(&useless).status.code(), Some(2), "{useless:?}");
    }
}
