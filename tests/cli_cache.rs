//! The cache of compiled kernels, as people see it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};
use serde_json::Value as Json;

fn ls(folder: &str) -> Json {
    last_line_json(&succeeded(unisonic(&["cache", "ls", "--json", "--cache-dir", folder])))
}

#[test]
fn an_empty_cache_is_listed_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let path = path.to_str().unwrap();
    assert_eq!(ls(path), serde_json::json!({ "folder": path, "entries": [] }));
    assert_says(
        &succeeded(unisonic(&["cache", "ls", "--cache-dir", path])),
        &[path, "0 entries", "no such folder"],
    );
    assert_says(&succeeded(unisonic(&["cache", "clear", "--cache-dir", path])), &["removed 0 entries"]);
    assert!(!Path::new(path).exists());
    assert_says(&failed(unisonic(&["cache", "ls", "--cache-dir", "off"]), 1), &["--cache-dir"]);
    // A file, not a folder.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let in_file = file.join("cache");
    let text = failed(unisonic(&["cache", "ls", "--cache-dir", in_file.to_str().unwrap()]), 1);
    assert_says(&text, &["cannot read the cache", in_file.to_str().unwrap()]);
}

#[cfg(all(unix, not(target_os = "macos")))]
#[test]
fn it_is_in_the_users_folder_for_caches() {
    let folder_with = |xdg: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        command.args(["cache", "ls", "--json"]).env("XDG_CACHE_HOME", xdg).env("HOME", "/home/nobody");
        last_line_json(&succeeded(command.output().unwrap()))["folder"].clone()
    };
    assert_eq!(folder_with("/some/where"), "/some/where/unisonic");
    for not_absolute in ["", "some/where"] {
        assert_eq!(folder_with(not_absolute), "/home/nobody/.cache/unisonic");
    }
}

/// The first Vulkan device that can be used; none and a line that says so where there is none.
fn vulkan() -> Option<String> {
    let listed = last_line_json(&succeeded(unisonic(&["devices", "--json", "--cache-dir", "off"])));
    let backends = listed["backends"].as_array().unwrap();
    let devices = backends.iter().filter(|backend| backend["backend"] == "Vulkan").flat_map(|backend| {
        backend["devices"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|device| device["missing"] == Json::Array(vec![]))
    });
    let devices = devices.inspect(|device| {
        let probes = device["self_test"]["probes"].as_array().unwrap();
        assert!(probes.contains(&"rounding".into()) && probes.contains(&"reassociation".into()), "{device}");
    });
    let found = devices.map(|device| device["device"].as_str().unwrap().to_owned()).next();
    if found.is_none() {
        let _ = writeln!(std::io::stderr().lock(), "skipped: the cache of a GPU (no Vulkan device)");
    }
    found
}

#[test]
fn a_gpus_kernels_are_kept_and_a_cache_that_cannot_be_is_no_failure() {
    let Some(device) = vulkan() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let path = path.to_str().unwrap();
    let model = model();
    let run = |cache: &str| {
        unisonic(&[
            "run",
            "--json",
            "--logits-digest",
            "-n",
            "4",
            "--speculate",
            "off",
            "--device",
            &device,
            "--cache-dir",
            cache,
            &model,
            "Hello",
        ])
    };
    let first = last_line_json(&succeeded(run(path)));
    let entries = ls(path)["entries"].as_array().unwrap().len();
    assert!(entries > 0);
    assert_eq!(last_line_json(&succeeded(run(path)))["logits_sha256"], first["logits_sha256"]);
    assert_eq!(ls(path)["entries"].as_array().unwrap().len(), entries, "nothing is compiled again");
    let cleared = succeeded(unisonic(&["cache", "clear", "--cache-dir", path]));
    assert_says(&cleared, &[&format!("removed {entries} entries")]);
    // The cache would be in a file.
    let in_file = folder.path().join("file/cache");
    std::fs::write(folder.path().join("file"), "").unwrap();
    let output = run(in_file.to_str().unwrap());
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("cannot keep").count(), 1, "{output:?}");
    assert_eq!(last_line_json(&succeeded(output))["logits_sha256"], first["logits_sha256"]);
}
