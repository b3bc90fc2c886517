//! Filetests of the emitter: each `tests/spirv/*.kir` is a kernel, a target, and the module that comes of
//! them, one behaviour a file.
//!
//! ```text
//! ;! test spirv
//! ;! set subgroup_size = 8          fields of the target; without a line those of `support::GPU`
//! ;! set matrix = 0213              the order of the words of A
//! ```
//!
//! Lines that begin with `;=` are the expected output. `BLESS=1 cargo test -p unisonic-vulkan --test
//! spirv_filetests` rewrites them. Each module is validated.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use rspirv::binary::Disassemble;
use unisonic_core::kir::{parse, verify};
use unisonic_vulkan::spirv::{MatrixOrder, emit, matrix_probe};

#[test]
fn every_file_gives_what_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spirv");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} files in {}", files.len(), folder.display());
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let (source, expected) = split(&text);
        let found = output(&file.display().to_string(), &source);
        if found != expected && bless {
            let found: String = found.lines().map(|line| format!(";= {line}\n")).collect();
            std::fs::write(file, format!("{}\n\n{found}", source.trim_end())).unwrap();
        } else if found != expected {
            wrong.push(format!("{}:\nexpected:\n{expected}\nfound:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 rewrites what is expected", wrong.join("\n"));
}

/// The module that asks a device which element is which component: no device that CI has can run it.
#[test]
fn the_probe_of_matrices_is_what_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/matrix_probe.txt");
    let found = rspirv::dr::load_words(matrix_probe::words()).unwrap().disassemble() + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, found).unwrap();
    } else {
        let expected = std::fs::read_to_string(&path).unwrap();
        assert!(found == expected, "{} differs; BLESS=1 rewrites it:\n{found}", path.display());
    }
}

/// A file without its expectation, and the expectation.
fn split(text: &str) -> (String, String) {
    let (mut source, mut expected) = (String::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix(";= ") {
            Some(line) => writeln!(expected, "{line}"),
            None => writeln!(source, "{line}"),
        }
        .unwrap();
    }
    (source, expected)
}

fn output(name: &str, source: &str) -> String {
    let mut target = support::GPU;
    let mut lines = source.lines().filter_map(|line| line.strip_prefix(";!")).map(str::trim);
    assert_eq!(lines.next(), Some("test spirv"), "{name}");
    for line in lines {
        let set = line.strip_prefix("set ").and_then(|set| set.split_once('='));
        match set.map(|(field, value)| (field.trim(), value.trim())) {
            Some(("subgroup_size", value)) => target.subgroup_size = value.parse().unwrap(),
            Some(("rounds_to_even", value)) => target.rounds_to_even = value.parse().unwrap(),
            Some(("preserves_signed_zeros", value)) => target.preserves_signed_zeros = value.parse().unwrap(),
            Some(("max_shared_len_bytes", value)) => target.max_shared_len_bytes = value.parse().unwrap(),
            Some(("knows_constants", value)) => target.knows_constants = value.parse().unwrap(),
            Some(("max_pushed_len_bytes", value)) => target.max_pushed_len_bytes = value.parse().unwrap(),
            Some(("matrix", value)) => {
                let words: Vec<u8> = value.bytes().map(|digit| digit - b'0').collect();
                target.matrix = MatrixOrder::new(words.try_into().unwrap());
            }
            _ => panic!("{name}: `{line}` is no directive"),
        }
    }
    let kernel = parse(source).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(verify(&kernel), [], "{name}");
    let words = emit(&kernel, &target);
    assert_eq!(words, emit(&kernel, &target), "{name}: equal kernels give equal words");
    support::validate(name, &words);
    rspirv::dr::load_words(&words).unwrap_or_else(|error| panic!("{name}: {error}")).disassemble() + "\n"
}
