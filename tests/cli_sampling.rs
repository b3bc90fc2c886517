//! Sampling through the whole program: what options do, and that who guesses and how much at a time is invisible.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::Value as Json;

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

#[test]
fn options_that_cannot_be_are_named() {
    for (args, says) in [
        (["--temperature", "-1"], "temperature is -1, but it has to be 0, or from 0.0001 to 10000"),
        (["--logit-bias", "259=1"], "logit bias names token 259, but the model's tokens are 0 to 258"),
        (["--repeat-penalty", "0"], "repeat penalty is 0, but it has to be from 1/1024 to 1024"),
    ] {
        assert_says(&failed(run(&args), 1), &[says]);
    }
    for useless in [["--seed", "1"], ["--top-k", "5"], ["--min-p", "0.1"], ["--logit-bias", "65"]] {
        assert_eq!(run(&useless).status.code(), Some(2), "{useless:?}");
    }
}
