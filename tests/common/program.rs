//! Runs the program and reads what it prints.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

/// Runs the program.
pub fn unisonic(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unisonic")).args(args).output().unwrap()
}

/// Runs the program with this on stdin.
pub fn with_stdin(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unisonic"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Stdout of a command that must succeed.
#[track_caller]
pub fn succeeded(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "stderr: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Stderr of a command that must end with `code` and print nothing on stdout.
#[track_caller]
pub fn failed(output: Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "stderr: {stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(stderr.starts_with("error: "), "stderr: {stderr}");
    assert!(!stderr.contains("panicked"), "stderr: {stderr}");
    stderr
}

/// Each part must be in the text.
#[track_caller]
pub fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// The last line of stdout.
pub fn last_line_json(stdout: &str) -> Json {
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

/// The model of most tests: a committed tiny llama.
pub fn model() -> String {
    super::quant("Q4_0").to_str().unwrap().to_owned()
}

/// Names of the files in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
