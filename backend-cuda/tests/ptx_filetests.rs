//! Filetests of the emitter: each `tests/ptx/*.kir` is a kernel, and lines that begin with `;=` are its PTX.
//!
//! ```text
//! ;! test ptx sm_86
//! ```
//!
//! `BLESS=1 cargo test -p unisonic-cuda --test ptx_filetests` rewrites what is expected.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fmt::Write;

use unisonic_cuda::ptx::{Target, emit};

#[test]
fn every_file_gives_what_it_says() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in support::filetests() {
        let text = std::fs::read_to_string(&file).unwrap();
        let (source, expected) = split(&text);
        let target = support::target(&source);
        let found = emit(&support::read(&source), target);
        if found != expected && bless {
            let found: String =
                found.lines().map(|line| format!(";= {line}").trim_end().to_owned() + "\n").collect();
            std::fs::write(&file, format!("{}\n\n{found}", source.trim_end())).unwrap();
        } else if found != expected {
            wrong.push(format!("{}:\nexpected:\n{expected}\nfound:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 rewrites what is expected", wrong.join("\n"));
}

/// A file without its expectation, and the expectation.
fn split(text: &str) -> (String, String) {
    let (mut source, mut expected) = (String::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix(";=") {
            Some(line) => writeln!(expected, "{}", line.strip_prefix(' ').unwrap_or(line)),
            None => writeln!(source, "{line}"),
        }
        .unwrap();
    }
    (source, expected)
}

/// The versions of PTX that targets and instructions need, and no newer.
#[test]
fn the_version_is_the_lowest_that_serves() {
    let plain = support::read("kernel plain workgroup 32 {\n  %0 = local_id\n}");
    for (target, version) in Target::ALL.into_iter().zip(["5.0", "6.3", "7.0", "7.1", "7.8", "7.8"]) {
        let text = emit(&plain, target);
        assert!(text.starts_with(&format!(".version {version}\n.target {}\n", target.name())), "{text}");
    }
}
