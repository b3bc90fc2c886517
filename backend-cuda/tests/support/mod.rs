//! What the tests of this crate share.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod operations;
pub mod ptxas;

use std::path::{Path, PathBuf};

use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::random::random_kernel;
use unisonic_core::kir::{Kernel, parse, verify};
use unisonic_cuda::ptx::{Target, emit};

/// A path of this crate.
pub fn path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files of `tests/ptx`, in the order of their names.
pub fn filetests() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path("tests/ptx")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} files", files.len());
    files
}

/// A kernel of the text form that verifies.
pub fn read(source: &str) -> Kernel {
    let kernel = parse(source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    assert_eq!(verify(&kernel), [], "{kernel}");
    kernel
}

/// The kernels of templates.
pub fn templates() -> Vec<(String, Kernel)> {
    use unisonic_planner::kernels;
    vec![
        ("rms_norm 896".to_owned(), kernels::rms_norm(896, 1e-5)),
        ("quantize_a16 896".to_owned(), kernels::quantize_a16(896)),
    ]
}

/// All kernels that tests emit beside the filetests: each operation, random ones, templates.
pub fn kernels() -> Vec<Kernel> {
    let random = (0..60).map(|seed| Kernel { name: format!("random_{seed}"), ..random_kernel(seed, 60).0 });
    let templates =
        templates().into_iter().map(|(name, kernel)| Kernel { name: name.replace(' ', "_"), ..kernel });
    operations::kernels().into_iter().chain(random).chain(templates).collect()
}

/// What a target is given of a kernel.
pub fn emit_legal(kernel: &Kernel, target: Target) -> String {
    let kernel = legalize(kernel, &target.caps());
    assert_eq!(verify(&kernel), [], "{kernel}");
    emit(&kernel, target)
}

/// The target of `;! test ptx TARGET`.
pub fn target(source: &str) -> Target {
    let name = source.lines().find_map(|line| line.strip_prefix(";! test ptx "));
    name.and_then(|name| Target::from_name(name.trim())).expect("a line `;! test ptx sm_86`")
}
