//! `unisonic synth` as people and scripts use it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::program::{assert_says, failed, last_line_json, names, succeeded, unisonic};
use serde_json::Value as Json;

#[test]
fn synthetic_models_run_and_are_always_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, args: &[&str]| {
        let path = path(name);
        let output =
            unisonic(&[&["synth", "smollm2-135m", &path, "--layers", "1", "--quant", "q4_0"], args].concat());
        assert_eq!(succeeded(output), "");
        std::fs::read(path).unwrap()
    };
    let first = write("a.gguf", &[]);
    assert!(first == write("b.gguf", &["--context", "8192"]), "the same arguments, the same bytes");
    assert!(first != write("c.gguf", &["--seed", "1"]), "another seed, other bytes");
    let again = ["synth", "smollm2-135m", &path("a.gguf")];
    assert_says(&failed(unisonic(&again), 1), &["a.gguf exists", "--force"]);
    // Devices and links are never replaced.
    std::os::unix::fs::symlink("/dev/null", path("link")).unwrap();
    let onto_link = ["synth", "smollm2-135m", &path("link"), "--force"];
    assert_says(&failed(unisonic(&onto_link), 1), &["is no regular file"]);
    std::fs::remove_file(path("link")).unwrap();
    let info = last_line_json(&succeeded(unisonic(&["info", "--json", &path("a.gguf")])));
    assert_eq!(info["layers"], 1);
    assert_says(info["runs"].as_str().unwrap(), &["yes"]);
    let run = ["run", "--json", "-n", "4", "--context", "64", &path("a.gguf"), "Hello"];
    let run = last_line_json(&succeeded(unisonic(&run)));
    assert_eq!((&run["prompt_tokens"], &run["stop"]), (&Json::from(5), &Json::from("length")));
    let mut left = names(folder.path());
    left.retain(|name| !name.ends_with(".gguf"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_synthetic_qwen_can_be_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qwen.gguf").to_str().unwrap().to_owned();
    succeeded(unisonic(&["synth", "qwen2.5-0.5b", &path, "--layers", "2"]));
    let bench = ["bench", "--json", "--prefill", "8", "--decode", "2", "-r", "1", "--no-bandwidth", &path];
    let json = last_line_json(&succeeded(unisonic(&bench)));
    assert_eq!(json["model"]["architecture"], "qwen2");
    assert_eq!(json["tests"].as_array().unwrap().len(), 2);
}

#[test]
fn synth_lists_shapes_and_names_what_it_does_not_know() {
    let list = succeeded(unisonic(&["synth", "--list"]));
    assert_says(&list, &["qwen2.5-7b", "llama-3.1-8b", "8030 M", "4.91"]);
    let out = "never-written.gguf";
    assert_says(&failed(unisonic(&["synth", "gpt-5", out]), 2), &["gpt-5", "qwen2.5-0.5b"]);
    assert_says(&failed(unisonic(&["synth", "gemma3-1b", out, "--layers", "27"]), 1), &["26 layers", "27"]);
    assert_says(&failed(unisonic(&["synth", "gemma3-1b", "no/such/folder/x.gguf"]), 1), &["no/such/folder"]);
    failed(unisonic(&["synth", "gemma3-1b"]), 2);
}
