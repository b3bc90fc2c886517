//! What the tests of this crate share: tiers, the validator.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod cores;
pub mod runner;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use unisonic_vulkan::spirv::{MatrixOrder, Target};

/// What most GPUs offer.
pub const GPU: Target = Target {
    subgroup_size: 32,
    integer_dot: true,
    rounds_to_even: true,
    preserves_signed_zeros: true,
    max_shared_len_bytes: 48 * 1024,
    max_pushed_len_bytes: 0,
    knows_constants: true,
    matrix: None,
};

/// A GPU that multiplies matrices, with the words of A as NVIDIA's have them.
pub fn matrix_gpu() -> Target {
    Target { matrix: MatrixOrder::new([0, 2, 1, 3]), ..GPU }
}

/// Whether the tier of this run (DEVELOPERS.md) fetches what tests need.
fn tier_fetches() -> bool {
    match std::env::var("UNISONIC_TIER").as_deref() {
        Err(_) | Ok("quick") => false,
        Ok("ci" | "full") => true,
        Ok(other) => panic!("UNISONIC_TIER is {other:?}; expected quick, ci or full"),
    }
}

/// Whether this run leaves nothing out.
pub fn is_full() -> bool {
    std::env::var("UNISONIC_TIER").as_deref() == Ok("full")
}

/// Says on stderr, past libtest's capture, that something was left out.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what} ({why})");
}

/// A path below the repository's root.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Fails unless `spirv-val` takes the module. Left out where it is not there, once for a program; a failure
/// where the tier fetches it.
pub fn validate(name: &str, words: &[u32]) {
    static SAY: Once = Once::new();
    let validator = root(".fixtures/tools/spirv-val");
    if !validator.exists() {
        assert!(!tier_fetches(), "{} is missing: scripts/fetch-spirv-tools.sh", validator.display());
        SAY.call_once(|| skipped("validation of SPIR-V", "`scripts/fetch-spirv-tools.sh` fetches spirv-val"));
        return;
    }
    let mut child = Command::new(validator)
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
}
