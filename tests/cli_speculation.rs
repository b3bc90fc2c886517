//! Guessing tokens ahead, through the whole program: it changes no bit of an answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::Value as Json;
use unisonic_core::format::{Strings, Value};

fn run_json(args: &[&str]) -> Json {
    let model = model();
    let prompt = "let a = f(x); let b = f(y); let c = f(x); let d = ";
    let all = [&["run", "--json", "--logits-digest", "--max-tokens", "60", &model, prompt], args].concat();
    last_line_json(&succeeded(unisonic(&all)))
}

/// The result without what guessing did, and that.
fn split(mut json: Json) -> (Json, Json) {
    let speculation = json.as_object_mut().unwrap().remove("speculation").unwrap_or(Json::Null);
    (json, speculation)
}

#[test]
fn the_answer_is_the_same_whoever_guesses() {
    let (right, none) = split(run_json(&[]));
    assert_eq!(none, Json::Null, "only for those who ask");
    let (off, drafts) = split(run_json(&["--speculate", "off"]));
    assert_eq!((&off, &drafts["drafted"], &drafts["steps"]), (&right, &0.into(), &60.into()));
    let (ngram, _) = split(run_json(&["--speculate", "ngram"]));
    assert_eq!(ngram, right);
    // Itself: every guess is right.
    let (drafted, drafts) = split(run_json(&["--draft-model", &model()]));
    assert_eq!(drafted, right);
    assert_eq!(drafts["drafted"], drafts["accepted"]);
    let q8_0 = common::quant("Q8_0");
    let (drafted, _) = split(run_json(&["--draft-model", q8_0.to_str().unwrap(), "--chunk", "7"]));
    assert_eq!(drafted, right);
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.gguf");
    let tokens: Strings = (0..259).map(|id| format!("<{id}>")).collect();
    let bytes =
        common::with_metadata(&common::quant("Q4_0"), &[("tokenizer.ggml.tokens", Value::Strings(tokens))]);
    std::fs::write(&other, bytes).unwrap();
    let other = other.to_str().unwrap();
    let stderr = failed(unisonic(&["run", "--draft-model", other, &model(), "Hi"]), 1);
    assert_says(&stderr, &["other.gguf", "another vocabulary", "same family"]);
    let both = unisonic(&["run", "--draft-model", other, "--speculate", "off", &model(), "Hi"]);
    assert_eq!(both.status.code(), Some(2), "one of the two");
}
