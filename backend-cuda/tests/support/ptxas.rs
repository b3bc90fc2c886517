//! NVIDIA's assembler, where `scripts/fetch-ptxas.sh` put it. It needs no GPU.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use unisonic_cuda::ptx::Target;

/// The assembler, or none and a line that says so. In the tiers above quick it has to be there on machines
/// that it is made for.
pub fn find() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.fixtures/tools/ptxas");
    if path.exists() {
        return Some(path);
    }
    let tier = std::env::var("UNISONIC_TIER").unwrap_or_default();
    let has_to_be = matches!(&*tier, "ci" | "full") && cfg!(all(target_os = "linux", target_arch = "x86_64"));
    assert!(!has_to_be, "{} is missing: run `make ptxas`", path.display());
    // Past libtest's capture.
    let _ = writeln!(std::io::stderr().lock(), "skipped: assembling PTX (make ptxas)");
    None
}

/// Whether this run leaves nothing out; else it says what, on stderr, past libtest's capture.
pub fn leaves_out_nothing(else_what: &str) -> bool {
    let full = std::env::var("UNISONIC_TIER").as_deref() == Ok("full");
    if !full {
        let _ = writeln!(std::io::stderr().lock(), "skipped: {else_what} (UNISONIC_TIER=full)");
    }
    full
}

/// Assembles a module.
///
/// # Errors
/// What the assembler says.
pub fn assemble(ptxas: &Path, ptx: &str, target: Target) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (source, out) = (folder.path().join("kernel.ptx"), folder.path().join("kernel.cubin"));
    std::fs::write(&source, ptx).map_err(|error| error.to_string())?;
    let arch = format!("-arch={}", target.name());
    let output = Command::new(ptxas).args(["-v", &arch]).arg(&source).arg("-o").arg(&out).output();
    let output = output.map_err(|error| format!("{}: {error}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}
