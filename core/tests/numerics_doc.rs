//! docs/numerics.md names functions and tests; all of them exist, and no function of the specification is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// Every `prefix::…` path of the page.
fn names(page: &str, prefix: &str) -> BTreeSet<String> {
    let in_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let start_of_name = |at: usize| !page[..at].ends_with(in_path);
    page.match_indices(prefix)
        .filter(|&(at, _)| start_of_name(at))
        .map(|(at, _)| {
            let rest = &page[at..];
            let len = rest.find(|c| !in_path(c)).unwrap_or(rest.len());
            rest[..len].trim_end_matches(':').to_owned()
        })
        .filter(|name| name.len() > prefix.len())
        .collect()
}

/// Whether a source declares this function or constant.
fn declares(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    ["fn ", "const "].iter().any(|keyword| {
        let declaration = format!("{keyword}{name}");
        source.match_indices(&declaration).any(|(at, found)| ends(&source[at + found.len()..]))
    })
}

fn rust_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder of sources exists");
    let paths = entries.map(|entry| entry.expect("the folder can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Whether the target `core/tests/TARGET` has a test of this name, written out or as a line of its table.
fn has_test(target: &str, name: &str) -> bool {
    let source = read(format!("core/tests/{target}.rs"))
        .or_else(|| read(format!("core/tests/{target}/main.rs")))
        .unwrap_or_default();
    source.contains(&format!("\nfn {name}() {{")) || source.contains(&format!("\n    {name}: crate::"))
}

#[test]
fn every_name_exists() {
    let page = read("docs/numerics.md").expect("the page is there");
    let functions = names(&page, "numerics::");
    assert!(functions.len() > 80, "{} functions are named", functions.len());
    for path in &functions {
        let parts: Vec<&str> = path.split("::").collect();
        let [_, file, name] = parts[..] else { panic!("`{path}` is not numerics::file::name") };
        let source = read(format!("core/src/numerics/{file}.rs")).unwrap_or_default();
        assert!(declares(&source, name) || file == "file", "no `{path}`");
    }
    let blocks: Vec<String> = rust_files("core/src/format/blocks")
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("the source can be read"))
        .collect();
    let named = names(&page, "format::blocks::");
    assert!(named.len() > 3, "{} block functions are named", named.len());
    for path in named {
        let name = path.trim_start_matches("format::blocks::");
        assert!(name == "name" || blocks.iter().any(|source| declares(source, name)), "no `{path}`");
    }
    let tests = names(&page, "tests::");
    assert!(tests.len() > 50, "{} tests are named", tests.len());
    for path in tests {
        let parts: Vec<&str> = path.split("::").collect();
        match parts[..] {
            [_, "target", "name"] | [_, "vectors"] => {}
            [_, target, name] => assert!(has_test(target, name), "no `{path}`"),
            _ => panic!("`{path}` is not tests::target::name"),
        }
    }
}

/// A formula without a place on the page is not normative, so every free public function has one.
#[test]
fn every_function_is_on_the_page() {
    let page = read("docs/numerics.md").expect("the page is there");
    let functions = names(&page, "numerics::");
    for path in rust_files("core/src/numerics") {
        let source = std::fs::read_to_string(&path).expect("the source can be read");
        let file = path.file_stem().expect("sources have names").to_string_lossy().into_owned();
        for line in
            source.lines().filter(|line| line.starts_with("pub fn ") || line.starts_with("pub const fn "))
        {
            let name = line.split("fn ").nth(1).unwrap_or_default();
            let name = &name[..name.find(['(', '<']).unwrap_or(name.len())];
            let named = format!("numerics::{file}::{name}");
            assert!(functions.contains(&named), "docs/numerics.md does not name `{named}`");
        }
    }
}

/// Constants of the page are those of the sources, as bit patterns.
#[test]
fn constants_are_those_of_the_sources() {
    let page = read("docs/numerics.md").expect("the page is there").replace('_', "");
    let all: String = rust_files("core/src/numerics")
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("the source can be read"))
        .collect();
    let mut checked = 0;
    for (at, call) in all.match_indices("f32::from_bits(0x") {
        let digits = &all[at + call.len()..];
        let digits: String =
            digits.chars().take_while(|&c| c != ')' && c != '.').filter(|&c| c != '_').collect();
        if digits.len() == 8 {
            assert!(page.contains(&digits), "docs/numerics.md does not list 0x{digits}");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} constants");
}
