//! `run --receipt` and `verify` as people use them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::program::{assert_says, failed, last_line_json, model, names, succeeded, unisonic};

/// A receipt of some tokens in `folder`, and what the run printed.
fn receipt(folder: &Path, options: &[&str]) -> (String, serde_json::Value) {
    let path = folder.join("receipt.json").to_str().unwrap().to_owned();
    let model = model();
    let run = ["run", "--json", "--max-tokens", "20", "--receipt", &path, &model, "Hello"];
    let line = last_line_json(&succeeded(unisonic(&[&run, options].concat())));
    assert_eq!(names(folder), ["receipt.json"]);
    (path, line)
}

#[test]
fn a_receipt_is_recomputed_whatever_the_chunks_and_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let (path, line) = receipt(folder.path(), &["--temperature", "0.8", "--seed", "3", "--top-p", "0.9"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["output_ids"], line["token_ids"]);
    assert_eq!((&json["profile"], &json["stop"]), (&line["profile"], &line["stop"]));
    assert_eq!(json["sampler"]["seed"], 3);
    for options in [&["--chunk", "1"][..], &["--device", "cpu-scalar"], &["--chunk", "7", "--threads", "1"]] {
        let line = last_line_json(&succeeded(unisonic(&[&["verify", "--json", &path], options].concat())));
        assert_eq!((&line["equal"], &line["steps"]), (&true.into(), &20.into()), "{options:?}");
        assert!(line.get("difference").is_none());
    }
    let guessed = receipt(folder.path(), &["--temperature", "0.8", "--seed", "3", "--top-p", "0.9"]);
    let (_, plain) = receipt(
        folder.path(),
        &["--temperature", "0.8", "--seed", "3", "--top-p", "0.9", "--speculate", "off"],
    );
    assert_eq!(guessed.1["token_ids"], plain["token_ids"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "the same receipt in the place of the first");
}

#[test]
fn a_copy_of_the_model_is_the_model_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = receipt(folder.path(), &[]);
    let copy = folder.path().join("copy.gguf");
    std::fs::copy(model(), &copy).unwrap();
    let text = succeeded(unisonic(&["verify", &path, "--model", copy.to_str().unwrap()]));
    assert_says(&text, &["equal: 20 tokens", "cpu"]);

    let other = common::quant("Q8_0");
    let stderr = failed(unisonic(&["verify", &path, "--model", other.to_str().unwrap()]), 1);
    let bar = [&model(), other.to_str().unwrap()].map(|path| {
        let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    });
    assert_says(&stderr, &["another model", &bar[0], &bar[1]]);

    let output = unisonic(&["verify", &path, "--diagnostic", "exact-v"]);
    assert_eq!(output.status.code(), Some(1));
    assert_says(&String::from_utf8_lossy(&output.stderr), &["error: the receipt is of arithmetic", "`u1`"]);
}

#[test]
fn a_result_that_differs_ends_with_3_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = receipt(folder.path(), &[]);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut receipt = unisonic_engine::receipt::Receipt::from_json(&text).unwrap();
    let right = receipt.output_ids[11];
    receipt.output_ids[11] = 5;
    std::fs::write(&path, receipt.seal().to_json()).unwrap();
    let output = unisonic(&["verify", &path]);
    assert_eq!(output.status.code(), Some(3));
    let instead = format!("token {right} is chosen instead of 5");
    assert_says(
        &String::from_utf8(output.stdout).unwrap(),
        &["different: at token 11", "position 17", &instead],
    );
    let output = unisonic(&["verify", "--json", &path]);
    assert_eq!(output.status.code(), Some(3));
    let line = last_line_json(&String::from_utf8(output.stdout).unwrap());
    let difference = serde_json::json!(
        { "step": 11, "position": 17, "expected": 5, "found": right, "logits_differ": false }
    );
    assert_eq!((&line["equal"], &line["difference"]), (&false.into(), &difference));
}

#[test]
fn what_is_damaged_or_foreign_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = receipt(folder.path(), &[]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"eog\""));
    std::fs::write(&path, text.replace("\"eog\"", "\"length\"")).unwrap();
    assert_says(&failed(unisonic(&["verify", &path]), 1), &[&path, "damaged"]);
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert_says(&failed(unisonic(&["verify", &path]), 1), &[&path, "no receipt"]);
    assert_says(&failed(unisonic(&["verify", &model()]), 1), &["no receipt", "--receipt"]);
    assert_says(&failed(unisonic(&["verify", "no-such.json"]), 1), &["no-such.json"]);
}

#[test]
fn a_receipt_that_cannot_be_written_is_said_before_anything_runs() {
    let stderr = failed(unisonic(&["run", "--receipt", "no/such/folder/r.json", &model(), "Hi"]), 1);
    assert_says(&stderr, &["no/such/folder/r.json"]);
}
