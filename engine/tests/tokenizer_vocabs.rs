//! Token ids against those of llama.cpp, over every vocabulary that it tests its tokenizers with.
//!
//! `make vocabularies` fetches them into `.fixtures/vocab/`. Without it these tests are skipped, with a line that
//! says so.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use unisonic_core::format::GgufFile;
use unisonic_engine::tokenizer::{ControlTokens, Specials, Tokenizer};

/// Vocabularies that come with strings and ids.
const WITH_STRINGS: [&str; 14] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

/// Vocabularies without: the strings are gpt-2's, the ids are in `tests/data/vocab/`.
const WITHOUT_STRINGS: [&str; 3] = ["aquila", "baichuan", "gpt-neox"];

/// Vocabularies of models that only encode, and the kinds that the error must name.
const UNSUPPORTED: [(&str, &str); 2] = [("bert-bge", "`bert`"), ("nomic-bert-moe", "`t5`")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn vocabularies() -> Option<PathBuf> {
    let dir = root().join(".fixtures/vocab");
    if dir.join("complete").exists() {
        return Some(dir);
    }
    // Past libtest's capture.
    let _ = writeln!(
        std::io::stderr().lock(),
        "skipped: tokens of llama.cpp's vocabularies (they are not in .fixtures/vocab/; `make vocabularies` \
         fetches them)"
    );
    None
}

fn file_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("ggml-vocab-{name}.gguf"))
}

fn load(dir: &Path, name: &str) -> Tokenizer {
    let file = GgufFile::open(&file_of(dir, name)).expect("vocabulary opens");
    let start = Instant::now();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("tokenizer loads");
    eprintln!("{name}: {} tokens loaded in {:?}", tokenizer.vocab_len(), start.elapsed());
    tokenizer
}

/// The strings as `tests/test-tokenizer-0.cpp` splits them.
fn strings(dir: &Path, name: &str) -> Vec<String> {
    let path = file_of(dir, name).with_extension("gguf.inp");
    let text = std::fs::read_to_string(path).expect("strings");
    let mut strings: Vec<String> = text.split("\n__ggml_vocab_test__\n").map(str::to_owned).collect();
    if strings.last().is_some_and(String::is_empty) {
        strings.pop();
    }
    strings
}

fn check_lines(tokenizer: &Tokenizer, name: &str, strings: &[String], expected: &Path) {
    let expected = std::fs::read_to_string(expected).expect("ids");
    let lines: Vec<&str> = expected.lines().collect();
    assert_eq!(lines.len(), strings.len(), "{name}");
    for (text, line) in strings.iter().zip(lines) {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().expect("an id")).collect();
        let ids = tokenizer.encode(text, Specials::Literal).expect("encodes");
        assert_eq!(ids, expected, "{name}: {text:?}");
    }
}

#[test]
fn ids_of_every_string_of_every_vocabulary() {
    let Some(dir) = vocabularies() else { return };
    for name in WITH_STRINGS {
        let expected = file_of(&dir, name).with_extension("gguf.out");
        check_lines(&load(&dir, name), name, &strings(&dir, name), &expected);
    }
    for name in WITHOUT_STRINGS {
        let expected = root().join(format!("tests/data/vocab/{name}.out"));
        check_lines(&load(&dir, name), name, &strings(&dir, "gpt-2"), &expected);
    }
}

#[test]
fn ids_of_special_tokens() {
    let Some(dir) = vocabularies() else { return };
    let cases = std::fs::read_to_string(root().join("tests/data/vocab/special-tokens.json")).expect("cases");
    let cases: Vec<Value> = serde_json::from_str(&cases).expect("cases are JSON");
    assert!(!cases.is_empty());
    for case in cases {
        let name = case["vocabulary"].as_str().expect("a name");
        let text = case["text"].as_str().expect("a text");
        let tokenizer = load(&dir, name);
        for (key, specials) in [("ids", Specials::Parse), ("literal_ids", Specials::Literal)] {
            let ids = tokenizer.encode(text, specials).expect("encodes");
            assert_eq!(Value::from(ids), case[key], "{name}: {text:?}, {key}");
        }
    }
}

#[test]
fn vocabularies_of_models_that_only_encode_are_errors_by_name() {
    let Some(dir) = vocabularies() else { return };
    for (name, kind) in UNSUPPORTED {
        let file = GgufFile::open(&file_of(&dir, name)).expect("vocabulary opens");
        let error = Tokenizer::from_metadata(file.metadata()).err().expect("an error").to_string();
        assert!(error.contains(kind), "{name}: {error}");
    }
}

/// The list above is the list of files: a vocabulary that a newer package adds must be given a place.
#[test]
fn every_vocabulary_is_listed() {
    let Some(dir) = vocabularies() else { return };
    let mut listed: Vec<PathBuf> = WITH_STRINGS
        .into_iter()
        .chain(WITHOUT_STRINGS)
        .chain(UNSUPPORTED.map(|(name, _)| name))
        .map(|name| file_of(&dir, name))
        .collect();
    listed.sort();
    let entries = std::fs::read_dir(&dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "gguf")).collect();
    found.sort();
    assert_eq!(found, listed);
}

/// One run of a character must cost time in proportion to its length; a quadratic tokenizer takes minutes.
#[test]
fn long_runs_with_every_vocabulary() {
    let Some(dir) = vocabularies() else { return };
    for name in WITH_STRINGS.into_iter().chain(WITHOUT_STRINGS) {
        let tokenizer = load(&dir, name);
        let mut slowest = (Duration::ZERO, "");
        for unit in ["Z", "é", " ", "\n", ".", "你", "🙂", "1", " \n", "'s"] {
            let text = unit.repeat(131_072);
            let start = Instant::now();
            let ids = tokenizer.encode(&text, Specials::Parse).expect("encodes");
            let taken = start.elapsed();
            slowest = slowest.max((taken, unit));
            assert!(taken.as_secs() < 20, "{name}: 131072 × {unit:?} took {taken:?}");
            let decoded = tokenizer.decode(&ids, ControlTokens::Show);
            // SPM vocabularies put a space in front; refact and starcoder write every byte.
            assert_eq!(decoded.trim_start_matches(' '), text.trim_start_matches(' '), "{name}: {unit:?}");
        }
        eprintln!("{name}: the slowest of 131072 is {:?}, {:?}", slowest.1, slowest.0);
    }
}
