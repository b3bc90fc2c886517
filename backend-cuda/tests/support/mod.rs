//! What the tests of this crate share.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod operations;
pub mod ptxas;

use std::path::{Path, PathBuf};

use unisonic_core::kir::kernel::{Block, Stmt};
use unisonic_core::kir::{Kernel, parse, verify};
use unisonic_cuda::ptx::Target;

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

/// Whether a target has all operations of a kernel, and enough shared memory.
pub fn runs_on(kernel: &Kernel, target: Target) -> bool {
    fn block(of: &Block, target: Target) -> bool {
        of.stmts.iter().all(|stmt| match stmt {
            Stmt::Inst(inst) => target.has(inst.op),
            Stmt::If { then, otherwise, .. } => block(then, target) && block(otherwise, target),
            Stmt::Loop { body, .. } => block(body, target),
        })
    }
    let shared_len_bytes = unisonic_cuda::ptx::dynamic_shared_len_bytes(kernel);
    block(&kernel.body, target) && shared_len_bytes <= target.caps().max_shared_len_bytes
}

/// The target of `;! test ptx TARGET`.
pub fn target(source: &str) -> Target {
    let name = source.lines().find_map(|line| line.strip_prefix(";! test ptx "));
    name.and_then(|name| Target::from_name(name.trim())).expect("a line `;! test ptx sm_86`")
}
