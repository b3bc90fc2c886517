//! Token ids against those of llama.cpp, over the vocabularies of real models.
//!
//! The models are looked for in `models/` at the repository root. One that is not there is skipped, with a line that
//! says so, unless the test tier (DEVELOPERS.md) needs it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;
use unisonic_core::format::GgufFile;
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Specials, Tokenizer};

const SMOLLM2: &str = "smollm2-135m-instruct-q4_1.gguf";
const GEMMA3: &str = "gemma3-270m-q4_k_m.gguf";
const QWEN2: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn model(file: &str) -> Option<PathBuf> {
    let path = root().join("models").join(file);
    if path.exists() {
        return Some(path);
    }
    let tier = std::env::var("UNISONIC_TIER").unwrap_or_default();
    let needed = match file {
        SMOLLM2 => tier == "ci" || tier == "full",
        GEMMA3 => tier == "full",
        // Its packages may vanish.
        _ => false,
    };
    assert!(!needed, "{} is missing: `make test` or `make test-full` fetches it", path.display());
    // Past libtest's capture.
    let _ = writeln!(std::io::stderr().lock(), "skipped: tokens of {file} (it is not in models/)");
    None
}

fn load(path: &Path) -> Tokenizer {
    load_file(&GgufFile::open(path).expect("model opens"), path)
}

fn load_file(file: &GgufFile, path: &Path) -> Tokenizer {
    let start = Instant::now();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("tokenizer loads");
    eprintln!("{}: {} tokens loaded in {:?}", path.display(), tokenizer.vocab_len(), start.elapsed());
    tokenizer
}

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().expect("an array of ids");
    ids.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn check(model_path: &Path, golden_path: &Path) {
    let file = GgufFile::open(model_path).expect("model opens");
    let tokenizer = load_file(&file, model_path);
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(golden_path).expect("golden")).expect("golden is JSON");
    let prompt = |text: &str| tokenizer.encode_prompt(text, Specials::Parse).expect("encodes");

    let cases = golden["tokenize"].as_array().expect("cases");
    assert!(!cases.is_empty());
    for case in cases {
        let text = case["text"].as_str().expect("text");
        let encode = |specials| tokenizer.encode(text, specials).expect("encodes");
        assert_eq!(
            encode(Specials::Parse),
            ids(&case["ids_special_parsed"]),
            "special tokens parsed: {text:?}"
        );
        assert_eq!(encode(Specials::Literal), ids(&case["ids_plain"]), "plain: {text:?}");
        assert_eq!(prompt(text), ids(&case["ids_add_special"]), "prompt: {text:?}");
        assert_eq!(tokenizer.decode(&encode(Specials::Parse), ControlTokens::Show), text);
    }
    for run in golden["runs"].as_array().expect("runs") {
        let text = run["prompt"].as_str().expect("prompt");
        assert_eq!(prompt(text), ids(&run["prompt_ids"]), "prompt of run {}", run["name"]);
        if run["name"] == "chat" {
            assert_eq!(chat_ids(&file, &tokenizer, text), ids(&run["prompt_ids"]));
        }
        let output = ids(&run["output_ids"]);
        let expected = run["output_text"].as_str().expect("output_text");
        assert_eq!(tokenizer.decode(&output, ControlTokens::Show), expected);
        let mut stream = Detokenizer::new(&tokenizer, ControlTokens::Show);
        let pieces: String = output.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(pieces + &stream.finish(), expected);
        let stops: Vec<bool> = output.iter().map(|&id| tokenizer.is_stop(id)).collect();
        let (last, before) = stops.split_last().expect("output");
        assert!(!before.contains(&true));
        assert_eq!(*last, run["stop"] == "eog");
    }
    let text = std::fs::read_to_string(golden_path.with_file_name("golden_eval.txt")).expect("text");
    let expected = ids(&golden["nll"]["ids"]);
    assert_eq!(prompt(&text).get(..expected.len()), Some(expected.as_slice()));
}

/// The conversation in a ChatML prompt, rendered again with the file's own template.
fn chat_ids(file: &GgufFile, tokenizer: &Tokenizer, prompt: &str) -> Vec<u32> {
    let turns =
        prompt.split("<|im_start|>").filter_map(|turn| turn.strip_suffix("<|im_end|>\n")?.split_once('\n'));
    let messages: Vec<Message> = turns.map(|(role, content)| Message::new(role, content)).collect();
    assert!(!messages.is_empty());
    let template = ChatTemplate::from_metadata(file.metadata(), None).expect("a template");
    let rendered = template.render(tokenizer, &messages, &ChatOptions::default()).expect("renders");
    assert_eq!(rendered.text(), prompt);
    encode_chat(tokenizer, &rendered).expect("encodes")
}

fn check_named(model_file: &str, goldens: [&str; 2]) {
    let Some(path) = model(model_file) else { return };
    for golden in goldens {
        check(&path, &root().join("tests/data/goldens").join(golden));
    }
}

#[test]
fn smollm2() {
    let goldens = ["smollm2-135m-f32deq.json", "smollm2-135m-instruct-q4_1.json"];
    check_named(SMOLLM2, goldens);
}

#[test]
fn gemma3() {
    check_named(GEMMA3, ["gemma3-270m-f32deq.json", "gemma3-270m-q4_k_m.json"]);
}

#[test]
fn qwen2() {
    let goldens = ["qwen2.5-coder-0.5b-f32deq.json", "qwen2.5-coder-0.5b-instruct-q4_k_m.json"];
    check_named(QWEN2, goldens);
}

/// One run of a character must cost time in proportion to its length; a quadratic tokenizer takes minutes.
fn check_long_runs(model_file: &str) {
    let Some(path) = model(model_file) else { return };
    let tokenizer = load(&path);
    for unit in ["Z", " ", "\n", ".", "\t", "你", "1", " \n", "<", "🙂", "<|im_end|>"] {
        let text = unit.repeat(131_072);
        let start = Instant::now();
        let ids = tokenizer.encode(&text, Specials::Parse).expect("encodes");
        let taken = start.elapsed();
        eprintln!("131072 × {unit:?}: {} tokens in {taken:?}", ids.len());
        assert!(taken.as_secs() < 20, "131072 × {unit:?} took {taken:?}");
        assert_eq!(tokenizer.decode(&ids, ControlTokens::Show), text);
    }
}

#[test]
fn long_runs_smollm2() {
    check_long_runs(SMOLLM2);
}

#[test]
fn long_runs_gemma3() {
    check_long_runs(GEMMA3);
}

#[test]
fn long_runs_qwen2() {
    check_long_runs(QWEN2);
}
