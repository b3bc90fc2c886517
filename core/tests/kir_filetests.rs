//! Filetests of the kernel IR: each `tests/kir/*.kir` is a kernel, what to do with it, and what comes of it.
//!
//! ```text
//! ;! test print                      the text form, read and printed
//! ;! test verify                     the faults, or `verifies`
//! ;! test legalize dot4=off subgroup=4   the kernel for a device that has everything else
//! ;! test run groups 2               what it writes, or the trap; with
//! ;! set n = 5                       a parameter
//! ;! set x = 1 2 3                   a buffer's elements, or `zeros 8`
//! ```
//!
//! Lines that begin with `;=` are the expected output. `BLESS=1 cargo test -p unisonic-core --test
//! kir_filetests` rewrites them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::{Kernel, Object, Space};
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::{Rule, Scalar, parse, verify};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kir");
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} files in {}", files.len(), folder.display());
    files
}

#[test]
fn every_file_gives_what_it_says() {
    let files = files();
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let (source, expected) = split(&text);
        let found = output(&source);
        if found != expected && bless {
            let found: String =
                found.lines().map(|line| format!(";= {line}").trim_end().to_owned() + "\n").collect();
            std::fs::write(file, format!("{}\n\n{found}", source.trim_end())).unwrap();
        } else if found != expected {
            wrong.push(format!("{}:\nexpected:\n{expected}\nfound:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 rewrites what is expected", wrong.join("\n"));
}

/// Every rule of the verifier has a file that breaks it. Where the reader of the text says so first, its
/// words are told.
#[test]
fn every_rule_has_a_file() {
    let outputs: String =
        files().iter().map(|file| split(&std::fs::read_to_string(file).unwrap()).1).collect();
    for rule in Rule::ALL {
        let words = match rule {
            Rule::Depth => "blocks are more than".to_owned(),
            Rule::Scope => "there is no value".to_owned(),
            // The reader numbers values itself.
            Rule::Numbering => continue,
            rule => format!("{rule:?}: `"),
        };
        assert!(outputs.contains(&words), "no file says `{words}`");
    }
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

fn output(source: &str) -> String {
    let mut test = None;
    let mut sets = HashMap::new();
    for line in source.lines().filter_map(|line| line.strip_prefix(";!")) {
        match line.trim().split_once(' ') {
            Some(("test", what)) => test = Some(what.trim().to_owned()),
            Some(("set", set)) => {
                let (name, value) = set.split_once('=').expect("`;! set NAME = VALUE`");
                sets.insert(name.trim().to_owned(), value.trim().to_owned());
            }
            _ => panic!("`{line}` is no directive"),
        }
    }
    let test = test.expect("a line `;! test ...`");
    let kernel = match parse(source) {
        Ok(kernel) => kernel,
        Err(error) => return format!("{error}\n"),
    };
    assert_eq!(parse(&kernel.to_string()), Ok(kernel.clone()), "printed and read again");
    match test.split_once(' ').map_or((&test[..], ""), |(test, rest)| (test, rest)) {
        ("print", _) => format!("{kernel}\n"),
        ("verify", _) => faults(&kernel),
        ("legalize", caps) => {
            let legal = legalize(&kernel, &caps_of(caps));
            assert_eq!(faults(&legal), "verifies\n");
            format!("{legal}\n")
        }
        ("run", rest) => {
            let groups = rest.trim().strip_prefix("groups").expect("`;! test run groups NUMBER`");
            run_text(&kernel, groups.trim().parse().unwrap(), &sets)
        }
        (other, _) => panic!("there is no test `{other}`"),
    }
}

fn faults(kernel: &Kernel) -> String {
    match &verify(kernel)[..] {
        [] => "verifies\n".to_owned(),
        faults => faults.iter().map(|fault| format!("{fault}\n")).collect(),
    }
}

/// What a device has: everything, but for what the words say.
fn caps_of(words: &str) -> Caps {
    let mut caps = Caps::ALL;
    for word in words.split_whitespace() {
        match word.split_once('=').expect("`NAME=VALUE`") {
            ("subgroup", size) => caps.subgroup = size.parse().unwrap(),
            ("vector", width) => caps.vector = width.parse().unwrap(),
            ("dot4", "off") => caps.dot4 = false,
            ("mma16", "off") => caps.mma16 = false,
            ("mma32", "off") => caps.mma32 = false,
            ("load_b", "off") => caps.load_b = false,
            ("half", "off") => caps.half = false,
            ("copy_async", "off") => caps.copy_async = false,
            _ => panic!("there is no `{word}`"),
        }
    }
    caps
}

fn run_text(kernel: &Kernel, groups: u32, sets: &HashMap<String, String>) -> String {
    assert_eq!(faults(kernel), "verifies\n");
    let value = |name: &str| sets.get(name).unwrap_or_else(|| panic!("`;! set {name} = ...` is missing"));
    let params = kernel.params.iter().map(|param| word(value(&param.name), param.scalar)).collect();
    let outside = |object: &&Object| !matches!(object.space, Space::Shared { .. });
    let buffers = kernel.objects.iter().filter(outside).map(|object| bytes(value(&object.name), object.elem));
    let mut launch = Launch { groups, params, buffers: buffers.collect(), fuel: 1 << 24 };
    if let Err(trap) = run(kernel, &mut launch) {
        return format!("{trap}\n");
    }
    let written = kernel.objects.iter().filter(outside).zip(&launch.buffers);
    written
        .filter(|(object, _)| object.space.is_writable())
        .map(|(object, bytes)| format!("{} = {}\n", object.name, elements(bytes, object.elem)))
        .collect()
}

fn word(text: &str, scalar: Scalar) -> u32 {
    if let Some(digits) = text.strip_prefix("0x") {
        return u32::from_str_radix(digits, 16).unwrap();
    }
    match scalar {
        Scalar::F32 => text.parse::<f32>().unwrap().to_bits(),
        Scalar::I32 => text.parse::<i32>().unwrap() as u32,
        _ => text.parse().unwrap(),
    }
}

fn bytes(text: &str, elem: Scalar) -> Vec<u8> {
    match text.strip_prefix("zeros ") {
        Some(count) => vec![0; 4 * count.parse::<usize>().unwrap()],
        None => text.split_whitespace().flat_map(|text| word(text, elem).to_le_bytes()).collect(),
    }
}

fn elements(bytes: &[u8], elem: Scalar) -> String {
    let texts = bytes.as_chunks().0.iter().map(|&bytes| {
        let word = u32::from_le_bytes(bytes);
        match elem {
            Scalar::U32 => word.to_string(),
            Scalar::I32 => (word as i32).to_string(),
            Scalar::F32 => format!("{:?}", f32::from_bits(word)),
            _ => format!("0x{word:x}"),
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}
