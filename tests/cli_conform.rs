//! `unisonic conform` and `unisonic doctor` as processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;

fn unisonic(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unisonic")).current_dir(folder).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A report, and the exit code.
fn report(folder: &Path, args: &[&str]) -> (Json, Option<i32>) {
    let args = [&["conform", "--json", "report.json"], args].concat();
    let output = unisonic(folder, &args);
    let json = std::fs::read(folder.join("report.json"));
    let json = json.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    (serde_json::from_slice(&json).unwrap(), output.status.code())
}

#[test]
fn a_planted_fault_is_found_written_down_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let fadd = ["--device", "interpreter", "--only", "op/fadd"];
    let (right, code) = report(folder.path(), &fadd);
    assert_eq!((code, &right["counts"]["failed"]), (Some(0), &Json::from(0)));
    std::fs::rename(folder.path().join("report.json"), folder.path().join("right.json")).unwrap();
    let plant = [&fadd[..], &["--plant", "add-by-one-ulp", "--junit", "report.xml"]].concat();
    let (wrong, code) = report(folder.path(), &plant);
    assert_eq!(code, Some(3));
    let row = wrong["rows"].as_array().unwrap().iter().find(|row| row["outcome"] == "failed").unwrap();
    assert!(row["difference"]["expected"].as_str().unwrap().len() == 8, "{row}");
    let file = row["replay"].as_str().unwrap();
    let content = std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert!(content.contains("size: 1 operations, 64 invocations"), "{content}");
    let replay = ["conform", "--device", "interpreter", "--replay", file];
    let output = unisonic(folder.path(), &replay);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with(": passed\n"), "{}", text(&output.stdout));
    let xml = std::fs::read_to_string(folder.path().join("report.xml")).unwrap();
    assert!(xml.contains("<failure message=") && xml.ends_with("</testsuites>\n"), "{xml}");
    let output = unisonic(folder.path(), &["conform", "--compare", "right.json", "report.json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stdout).contains("    A: passed\n    B: failed: other bits"),
        "{}",
        text(&output.stdout)
    );
}

/// The whole quick suite on the first Vulkan device: nothing fails, nothing is left without a reason.
#[test]
fn the_first_vulkan_device_conforms() {
    if !common::runs_in(common::Tier::Ci, "conformance of a Vulkan device") {
        return;
    }
    if unisonic_vulkan::driver::enumerate().is_ok_and(|found| found.iter().all(|d| !d.missing.is_empty())) {
        return common::skipped("conformance of a Vulkan device", "there is none");
    }
    if let Err(error) = unisonic_vulkan::driver::enumerate() {
        return common::skipped("conformance of a Vulkan device", &error.to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let (report, code) = report(folder.path(), &["--device", "vulkan:0"]);
    let failed: Vec<&Json> =
        report["rows"].as_array().unwrap().iter().filter(|row| row["outcome"] == "failed").collect();
    assert!(failed.is_empty() && code == Some(0), "{code:?}: {failed:#?}");
    let counts = &report["counts"];
    common::say(&format!("  {} ({}): {counts}", report["device"]["name"], report["device"]["driver"]));
    assert!(counts["passed"].as_u64() > Some(200), "{counts}");
    let explained = |row: &Json| row["outcome"] == "passed" || row["reason"].is_string();
    assert!(report["rows"].as_array().unwrap().iter().all(explained));
}

#[test]
fn the_doctor_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let output = unisonic(folder.path(), &["doctor", "--cache-dir", "off"]);
    let text = text(&output.stdout);
    assert!(output.status.success(), "{text}");
    for part in ["\nInstalled\n", "\nDevices\n  cpu: ", "\nWhat to do\n  1. "] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn wrong_command_lines_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code, part) in [
        (&["conform"][..], 2, "--device"),
        (&["conform", "--device", "interpreter", "--only", "magic/"], 1, "no group begins with `magic/`"),
        (&["conform", "--device", "interpreter", "--replay", "no.txt"], 1, "cannot read no.txt"),
        (&["conform", "--compare", "a.json", "b.json"], 1, "cannot read a.json"),
        (&["conform", "--device", "cuda:99"], 1, "cannot test `cuda:99`"),
    ] {
        let output = unisonic(folder.path(), args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {error}");
    }
}
