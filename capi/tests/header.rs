//! The header is what the sources say: `BLESS=1 cargo test -p unisonic-capi --test header` writes it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

/// The sources with something for the header, in its order.
const SOURCES: &[&str] = &[
    "status",
    "error",
    "options",
    "callback",
    "log",
    "library",
    "buffer",
    "device",
    "cancel",
    "loading",
    "tokenizer",
    "detokenizer",
    "chat",
    "model",
    "sampler",
    "asked",
    "completion",
    "session",
    "generate",
    "batch",
    "receipt",
    "embedding",
    "tensor",
    "graph_node",
    "graph",
    "graph_weights",
    "program",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(name: &str) -> PathBuf {
    root().join(format!("src/{name}.rs"))
}

fn header() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES.iter().fold(builder, |builder, name| builder.with_src(source(name)));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_fresh() {
    let (path, made) = (root().join("include/unisonic.h"), header());
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, made, "include/unisonic.h is not what capi/src says; BLESS=1 writes it");
}

/// A file that is not listed would be missing from the header.
#[test]
fn every_exported_function_is_in_the_header() {
    let header = header();
    let mut exported = 0;
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for (_, after) in
            text.match_indices("extern \"C\" fn unisonic_").map(|(at, found)| (at, &text[at + found.len()..]))
        {
            let name = format!("unisonic_{}(", after.split('(').next().unwrap());
            assert!(header.contains(&name), "{name}) is not in the header: list its file in SOURCES");
            exported += 1;
        }
    }
    assert!(exported > 10, "functions are found");
}
