//! Every input that a fuzz target ever failed on, and the seeds by hand beside them, through the same checks
//! (docs/fuzzing.md).

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on fails")]

#[path = "../../fuzz/checks/mod.rs"]
mod checks;

use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no regressions in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
    }
}

#[test]
fn gguf() {
    replay("gguf", checks::gguf::check);
}

#[test]
fn tokenizer() {
    replay("tokenizer", checks::tokenizer::check);
}

#[test]
fn chat_template() {
    replay("chat_template", checks::chat_template::check);
}
