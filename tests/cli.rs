//! The program as people and scripts use it: what it prints where, and what it says when something is wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::program::{assert_says, failed, last_line_json, model, names, succeeded, unisonic, with_stdin};
use serde_json::Value as Json;

/// `-` is stdin for every command that takes a text.
#[test]
fn a_dash_is_stdin() {
    let model = model();
    let text = "Hi, you!";
    let ids = |output| last_line_json(&succeeded(output))["ids"].clone();
    let piped = ids(with_stdin(&["tokenize", "--json", &model, "-"], text));
    assert_eq!(piped, ids(unisonic(&["tokenize", "--json", &model, text])));
    assert_ne!(piped, ids(unisonic(&["tokenize", "--json", &model, "x"])));
    let scored = succeeded(with_stdin(&["perplexity", "--json", &model, "--text", "-"], text));
    assert_eq!(last_line_json(&scored)["count"], piped.as_array().unwrap().len() - 1);
}

fn run_json(args: &[&str]) -> Json {
    let model = model();
    let all = [&["run", "--json", "--max-tokens", "8", &model], args].concat();
    last_line_json(&succeeded(unisonic(&all)))
}

#[test]
fn json_is_one_last_line_with_the_generated_ids() {
    let first = run_json(&["Hello"]);
    assert_eq!(first["token_ids"], serde_json::json!([41, 182, 244, 237, 93, 96, 225, 86]));
    assert_eq!(first["stop"], "length");
    assert_eq!(first["prompt_tokens"], 6, "BOS and five bytes");
    assert_eq!(first["device"], "cpu");
    assert_eq!(first["profile"], "u1");
    assert!(first["text"].is_string());
    assert_eq!(run_json(&["Hello"]), first, "the same again");
    assert_eq!(run_json(&["--chunk", "1", "--context", "64", "Hello"]), first, "whatever the chunks");
}

#[test]
fn ids_in_give_what_their_text_gives() {
    let text = run_json(&["--logits-digest", "Hi"]);
    let ids = run_json(&["--logits-digest", "--ids", "1,75,108"]);
    assert_eq!(text, ids);
    let digest = "c74ea755c8d746af8b63e7d9456589c6e01a2ef017e488bf4cde09d7d8e8e6aa";
    assert_eq!(text["logits_sha256"], digest, "the same on every machine, for as long as the profile is u1");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids");
    std::fs::write(&path, "1 75\n108\n").unwrap();
    assert_eq!(run_json(&["--logits-digest", "--ids-file", path.to_str().unwrap()]), text);
    assert_ne!(run_json(&["--logits-digest", "Ho"])["logits_sha256"], text["logits_sha256"]);
}

#[test]
fn a_prompt_comes_from_stdin_or_a_file_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    std::fs::write(&path, "Hello\n").unwrap();
    let right = run_json(&["Hello\n"]);
    assert_eq!(right["prompt_tokens"], 7);
    assert_eq!(run_json(&["--prompt-file", path.to_str().unwrap()]), right);
    let stdout = succeeded(with_stdin(&["run", "--json", "--max-tokens", "8", &model(), "-"], "Hello\n"));
    assert_eq!(last_line_json(&stdout), right);
}

#[test]
fn special_tokens_are_parsed_unless_literal() {
    assert_eq!(run_json(&["</s>"])["prompt_tokens"], 2);
    assert_eq!(run_json(&["--literal", "</s>"])["prompt_tokens"], 5);
}

#[test]
fn text_is_streamed_to_stdout_and_figures_to_stderr() {
    let output = unisonic(&["run", "--max-tokens", "8", &model(), "Hello"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_says(&stderr, &["prompt: 6 tokens", "generated: 8 tokens", "stop: length"]);
    let text = run_json(&["Hello"])["text"].as_str().unwrap().to_owned();
    assert_eq!(succeeded(output).trim_end_matches('\n'), text.trim_end_matches('\n'));
}

#[test]
fn a_chat_message_is_never_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}")
        .unwrap();
    let chat = |message: &str| {
        run_json(&["--chat", "--chat-template", template.to_str().unwrap(), message])["prompt_tokens"].clone()
    };
    // Each template's marker is one token, "user:" five; the message's own "</s>" is four bytes.
    assert_eq!(chat("Hi"), 1 + 5 + 2 + 1);
    assert_eq!(chat("</s>"), 1 + 5 + 4 + 1);
}

#[test]
fn a_chat_without_a_template_says_what_to_do() {
    let stderr = failed(unisonic(&["run", "--chat", &model(), "Hi"]), 1);
    assert_says(&stderr, &["chat template", "--chat-template"]);
}

#[test]
fn the_diagnostic_is_named() {
    let model = model();
    let output = unisonic(&["run", "--json", "--max-tokens", "1", "--diagnostic", "exact-v", &model, "Hi"]);
    assert_says(&String::from_utf8_lossy(&output.stderr), &["note: diagnostic arithmetic"]);
    assert_ne!(last_line_json(&succeeded(output))["profile"], "u1");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unisonic"))
        .args(["run", "--max-tokens", "100", &model(), "Hello"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_file_that_is_not_there_says_how_to_get_one() {
    let stderr = failed(unisonic(&["run", "no-such.gguf", "Hi"]), 1);
    assert_says(&stderr, &["no-such.gguf", "make model"]);
    let stderr = failed(unisonic(&["run"]), 2);
    assert_says(&stderr, &["<FILE>", "make model"]);
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let path = common::root("Cargo.toml");
    let stderr = failed(unisonic(&["info", path.to_str().unwrap()]), 1);
    assert_says(&stderr, &["Cargo.toml", "GGUF"]);
}

#[test]
fn usage_errors_end_with_2() {
    let model = model();
    let stderr = failed(unisonic(&["run", "--device", "abacus", &model, "Hi"]), 2);
    assert_says(&stderr, &["abacus", "cpu"]);
    failed(unisonic(&["run", &model]), 2);
    failed(unisonic(&["run", "--ids", "1,x", &model]), 2);
    failed(unisonic(&["run", "--ids", "1", &model, "Hi"]), 2);
    assert_says(&failed(unisonic(&["run", "--ids", "", &model]), 2), &["at least one"]);
    assert_says(&failed(unisonic(&["bench", "-p", "a", &model]), 2), &["expected a whole number"]);
    failed(unisonic(&["run", "--ids", "1", "--ids-file", "ids", &model]), 2);
    failed(unisonic(&["run", "--chunk", "0", &model, "Hi"]), 2);
    failed(unisonic(&["run", "--threads", "1025", &model, "Hi"]), 2);
}

#[test]
fn a_prompt_longer_than_the_context_says_both_numbers() {
    let stderr = failed(unisonic(&["run", "--context", "8", &model(), "Hello,world!"]), 1);
    assert_says(&stderr, &["14 tokens", "holds 8", "512"]);
    let stderr = failed(unisonic(&["run", "--context", "1000", &model(), "Hi"]), 1);
    assert_says(&stderr, &["1000", "512"]);
}

#[test]
fn ids_outside_the_vocabulary_are_refused() {
    let stderr = failed(unisonic(&["run", "--ids", "1,259", &model()]), 1);
    assert_says(&stderr, &["259"]);
}

#[test]
fn passes_that_cannot_be_switched_are_refused_by_name() {
    let model = model();
    let refused = |option: &str, value: &str| failed(unisonic(&["run", option, value, &model, "Hi"]), 2);
    assert_says(&refused("--pass", "no-such=off"), &["no-such", "hoist-select-outputs"]);
    assert_says(&refused("--pass", "quantize-heads=off"), &["quantize-heads", "cannot be switched off"]);
    assert_says(&refused("--pass", "fuse-heads=on"), &["NAME=off"]);
    assert_says(&refused("--feature", "no-such=off"), &["no-such", "dependent-launches"]);
    assert_says(&refused("--feature", "dependent-launches=on"), &["NAME=off"]);
    assert_says(&refused("--stop-after", "no-such"), &["no-such", "hoist-select-outputs"]);
}

#[test]
fn the_planner_can_be_watched_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (all, some, none) =
        (folder.path().join("all"), folder.path().join("some"), folder.path().join("none"));
    let whole = run_json(&["--dump-ir", all.to_str().unwrap(), "Hi"]);
    let files = names(&all);
    assert_eq!(files[..2], ["00-build.txt", "01-hoist-select-outputs.txt"]);
    assert!(files.last().unwrap().ends_with("-plan.txt"), "{files:?}");
    let plan = |folder: &Path, file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(plan(&all, files.last().unwrap()).starts_with("plan "));

    let stop = ["--stop-after", "quantize-heads", "--dump-ir", some.to_str().unwrap(), "Hi"];
    assert_eq!(run_json(&stop), whole, "what follows the required passes changes no result");
    assert_eq!(names(&some)[3..], ["03-quantize-heads.txt", "04-plan.txt"]);

    let (model, dir) = (model(), none.to_str().unwrap());
    let stop = ["run", "--stop-after", "hoist-select-outputs", "--dump-ir", dir, &model, "Hi"];
    assert_says(&failed(unisonic(&stop), 1), &["hoist-select-outputs", "quantize-activations", "no plan"]);
    assert_eq!(names(&none), ["00-build.txt", "01-hoist-select-outputs.txt"]);
}

/// A copy of the tiny model in which some bytes of the header are others.
fn patched(folder: &Path, from: &[u8], to: &[u8]) -> PathBuf {
    let mut bytes = std::fs::read(model()).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    let path = folder.join("patched.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn an_unsupported_type_is_refused_by_name() {
    // Tensor entry: name, number of dimensions, dimensions, type. Type 2 is Q4_0; 20 IQ4_NL has blocks of the
    // same size.
    let entry = |ty: u32| {
        let mut bytes = b"blk.1.ffn_up.weight".to_vec();
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(256u64.to_le_bytes());
        bytes.extend(512u64.to_le_bytes());
        bytes.extend(ty.to_le_bytes());
        bytes
    };
    let folder = tempfile::tempdir().unwrap();
    // Type 16 is IQ2_XXS: known, smaller than Q4_0, not supported.
    let path = patched(folder.path(), &entry(2), &entry(16));
    let stderr = failed(unisonic(&["run", path.to_str().unwrap(), "Hi"]), 1);
    assert_says(&stderr, &["blk.1.ffn_up.weight", "IQ2_XXS", "Q4_K"]);
    let path = patched(folder.path(), &entry(2), &entry(99));
    let stderr = failed(unisonic(&["run", path.to_str().unwrap(), "Hi"]), 1);
    assert_says(&stderr, &["blk.1.ffn_up.weight", "99"]);
}

#[test]
fn an_unsupported_architecture_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = patched(folder.path(), b"llama", b"lmaal");
    let stderr = failed(unisonic(&["run", path.to_str().unwrap(), "Hi"]), 1);
    assert_says(&stderr, &["lmaal", "llama"]);
    let stdout = succeeded(unisonic(&["info", path.to_str().unwrap()]));
    assert_says(&stdout, &["no:", "lmaal"]);
}

#[test]
fn info_tells_what_a_file_holds() {
    let model = model();
    let stdout = succeeded(unisonic(&["info", &model]));
    assert_says(&stdout, &["tiny random llama", "CC0-1.0", "Q4_0", "yes (profile"]);
    let json = last_line_json(&succeeded(unisonic(&["info", "--json", "--tensors", "--metadata", &model])));
    assert_eq!(json["architecture"], "llama");
    assert_eq!(json["context"], 512);
    assert_eq!(json["vocabulary"], 259);
    assert_eq!(json["tensors"].as_array().unwrap().len(), 30);
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["len"], 259);
}

#[test]
fn tokenize_goes_both_ways() {
    let model = model();
    let ids = |args: &[&str]| {
        last_line_json(&succeeded(unisonic(&[&["tokenize", "--json"], args].concat())))["ids"].clone()
    };
    assert_eq!(ids(&[&model, "Hi"]), serde_json::json!([1, 75, 108]));
    assert_eq!(ids(&["--no-bos", &model, "Hi"]), serde_json::json!([75, 108]));
    assert_eq!(ids(&["--no-bos", &model, "</s>"]), serde_json::json!([2]));
    assert_eq!(ids(&["--literal", "--no-bos", &model, "</s>"]).as_array().unwrap().len(), 4);
    assert_eq!(succeeded(unisonic(&["tokenize", "--decode", "1,75,108", &model])), "<s>Hi\n");
}

#[test]
fn perplexity_scores_ids_and_texts() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let score = |args: &[&str]| {
        let all = [&["perplexity", "--json", &model], args].concat();
        let mut json = last_line_json(&succeeded(unisonic(&all)));
        json.as_object_mut().unwrap().remove("windows");
        json
    };
    let (text, ids) = (write("text", "Hi,you!"), write("ids", "1 75 108 47 124 114 120\n36"));
    let right = score(&["--text", &text]);
    assert_eq!(right["count"], 7, "the model adds BOS, so each byte is scored");
    assert_eq!(right["logprobs"].as_array().unwrap().len(), 7);
    assert_eq!(score(&["--ids-file", &ids]), right);
    assert_eq!(score(&["--ids", "1,75,108,47,124,114,120,36"]), right);
    failed(unisonic(&["perplexity", &model, "--text", &text, "--ids", "1"]), 2);
    assert_eq!(score(&["--text", &text, "--max-tokens", "3"])["logprobs"][2], right["logprobs"][2]);
    let empty = write("empty", "");
    failed(unisonic(&["perplexity", &model, "--text", &empty]), 1);
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = succeeded(unisonic(&["completions", shell]));
        assert_says(&script, &["unisonic", "perplexity", "logits-digest"]);
        if shell == "bash" {
            let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
            bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success(), "bash accepts it");
        }
    }
}

#[test]
fn help_teaches_with_examples() {
    for (args, parts) in [
        (
            &["--help"][..],
            &["Examples:", "run", "info", "tokenize", "perplexity", "bench", "synth", "pull", "make model"][..],
        ),
        (&["run", "--help"], &["Examples:", "--chat", "--max-tokens", "--json", "--device", "--literal"]),
        (&["tokenize", "--help"], &["Examples:", "--decode"]),
        (&["perplexity", "--help"], &["Examples:", "windows", "--ids", "--ids-file"]),
        (&["bench", "--help"], &["Examples:", "--depth", "floor", "--report", "quartiles"]),
        (&["synth", "--help"], &["Examples:", "--list", "q4_k_m", "--layers"]),
        (&["completions", "--help"], &["bash", ".zshrc", "fish", "elvish", "$PROFILE"]),
        (
            &["pull", "--help"],
            &["Examples:", "Q4_K_M", "--dir", "HF_ENDPOINT", "HF_TOKEN", "goes on where it ended"],
        ),
    ] {
        assert_says(&succeeded(unisonic(args)), parts);
    }
}
