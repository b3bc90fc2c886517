//! Holds what docs/architecture.md promises about the shape of the code, by reading the sources.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const LIBRARY_CRATES: &[&str] = &[
    "core",
    "planner",
    "cache",
    "shaders",
    "gpu",
    "backend-cpu",
    "backend-cuda",
    "backend-vulkan",
    "devices",
    "conform",
    "engine",
    "server",
    "capi",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rust sources below a folder of the repository, with their text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

/// The part of a file that is compiled into the library: everything before the test module at its end.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Names of modules that are declared for tests only, as in `#[cfg(test)] mod samples;`.
fn test_modules(sources: &[(PathBuf, String)]) -> BTreeSet<String> {
    let declarations = sources.iter().flat_map(|(_, text)| text.split("#[cfg(test)]\n").skip(1));
    let names = declarations.filter_map(|after| {
        let line = after.lines().next()?.trim();
        Some(line.split("mod ").nth(1)?.strip_suffix(';')?.to_owned())
    });
    names.collect()
}

/// Lines of library code that hold one of the patterns outside comments.
fn offending_lines(folders: &[&str], patterns: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for folder in folders {
        let sources = sources(&format!("{folder}/src"));
        let test_modules = test_modules(&sources);
        for (path, text) in &sources {
            // The module's own file, or a file in its folder.
            let of_test_module =
                |part: &OsStr| test_modules.contains(part.to_string_lossy().trim_end_matches(".rs"));
            if path.strip_prefix(root()).unwrap_or(path).iter().any(of_test_module) {
                continue;
            }
            for (number, line) in without_tests(text).lines().enumerate() {
                let code = line.split("//").next().unwrap_or(line);
                if patterns.iter().any(|pattern| code.contains(pattern)) {
                    lines.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    lines
}

/// Our own crates that a crate's library depends on.
fn own_dependencies(folder: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("");
    let dependencies = dependencies.split("\n[").next().unwrap_or("");
    dependencies
        .lines()
        .filter_map(|line| line.strip_prefix("unisonic-")?.split(['.', ' ', '=']).next())
        .map(Into::into)
        .collect()
}

#[test]
fn crates_depend_only_on_what_the_table_allows() {
    let allowed: &[(&str, &[&str])] = &[
        ("core", &[]),
        ("planner", &["core"]),
        ("backend-cpu", &["core"]),
        ("cache", &[]),
        ("shaders", &[]),
        ("gpu", &["core"]),
        ("backend-cuda", &["core", "cache", "gpu"]),
        ("backend-vulkan", &["core", "cache", "shaders", "gpu"]),
        ("devices", &["core", "planner", "cache", "gpu", "cpu", "cuda", "vulkan"]),
        ("conform", &["core", "planner", "shaders", "gpu", "cpu", "cuda", "vulkan", "devices"]),
        ("engine", &["core", "planner", "cache"]),
        ("server", &["engine"]),
        ("capi", &["core", "planner", "cache", "devices", "engine"]),
    ];
    for (folder, allowed) in allowed {
        let found = own_dependencies(folder);
        let allowed: BTreeSet<String> = allowed.iter().map(|s| s.to_string()).collect();
        assert!(found.is_subset(&allowed), "{folder} depends on {found:?}, but may use {allowed:?}");
    }
    assert!(own_dependencies("engine").contains("planner"), "the manifest reader finds dependencies");
}

#[test]
fn library_crates_read_no_environment() {
    let found = offending_lines(LIBRARY_CRATES, &["std::env", "env::var", "env::args"]);
    assert!(found.is_empty(), "switches are typed fields parsed in src/:\n{}", found.join("\n"));
}

/// The two commands that call others, the one crate that is called, and the two files that look at more of the
/// environment than clap does.
#[test]
fn the_network_is_two_commands_affair() {
    const NETWORK: &[&str] = &["std::net", "tokio::net", "ureq", "hf_hub", "reqwest"];
    let without_network: Vec<&str> =
        LIBRARY_CRATES.iter().copied().filter(|folder| *folder != "server").collect();
    let found = offending_lines(&without_network, NETWORK);
    assert!(found.is_empty(), "library crates have no network:\n{}", found.join("\n"));
    let found = offending_lines(&["server"], &["TcpStream::connect", "ureq", "hf_hub", "reqwest"]);
    assert!(found.is_empty(), "the server calls nobody:\n{}", found.join("\n"));
    for folder in without_network {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let named = |name: &&&str| manifest.contains(&name.replace('_', "-"));
        assert_eq!(NETWORK.iter().find(named), None, "{folder} has a dependency that uses the network");
    }
    let outside = |patterns, places: &[&str]| {
        let is_outside = |line: &String| !places.iter().any(|place| line.contains(place));
        offending_lines(&["."], patterns).into_iter().filter(is_outside).collect::<Vec<_>>()
    };
    let found = outside(NETWORK, &["/src/commands/pull/", "/src/commands/top/"]);
    assert!(found.is_empty(), "only `unisonic pull` and `top` use the network:\n{}", found.join("\n"));
    let found =
        outside(&["env::var", "env::home_dir"], &["/src/commands/pull/settings.rs", "/src/cache_dir.rs"]);
    assert!(found.is_empty(), "settings of the environment are read in two places:\n{}", found.join("\n"));
}

#[test]
fn core_and_planner_start_no_threads_and_use_no_clock() {
    let found = offending_lines(&["core", "planner"], &["std::thread", "Instant", "SystemTime", "rayon"]);
    assert!(found.is_empty(), "core and planner are functions of their input:\n{}", found.join("\n"));
}

#[test]
fn library_crates_never_end_the_process() {
    let found = offending_lines(
        LIBRARY_CRATES,
        &["process::exit", "process::abort", ".unwrap()", "todo!(", "unimplemented!("],
    );
    assert!(found.is_empty(), "errors are values:\n{}", found.join("\n"));
}

#[test]
fn unsafe_code_stays_in_backends_and_tests() {
    let found = offending_lines(
        &["core", "planner", "cache", "devices", "conform", "engine", "server"],
        &["unsafe {", "unsafe fn", "unsafe impl"],
    );
    assert!(found.is_empty(), "unsafe belongs to backends and the C ABI:\n{}", found.join("\n"));
}

#[test]
fn files_are_small_rooms() {
    for folder in LIBRARY_CRATES {
        for (path, text) in sources(folder) {
            let lines = text.lines().count();
            assert!(
                lines <= 600,
                "{} has {lines} lines; split it or give a reason in docs/decisions/",
                path.display()
            );
        }
    }
}
