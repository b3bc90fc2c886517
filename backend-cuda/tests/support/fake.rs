//! Tests in processes of their own, on a stand-in for NVIDIA's driver (`tests/fake_driver/lib.rs`) or beside a real one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What tests that only run in such a process look for.
const CHILD: &str = "UNISONIC_TEST_CHILD";

/// Whether this is such a process.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Says that something is left out, past libtest's capture.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what} ({why})");
}

/// How a process ended, and all that it printed.
pub struct Ended {
    /// Whether all tests passed.
    pub is_success: bool,
    /// Both streams.
    pub text: String,
}

/// Runs tests of this binary whose names begin so, with a folder of libraries before all others and other variables.
pub fn run(filters: &[&str], libraries: Option<&Path>, variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(filters)
        .arg("--nocapture")
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied());
    if let Some(libraries) = libraries {
        let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let paths = [libraries.to_owned()].into_iter().chain(std::env::split_paths(&before));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(paths).unwrap());
    }
    let output = command.output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ended { is_success: output.status.success(), text }
}

/// The folder of the stand-in; none and a line that says so where it cannot be built.
pub fn library(what: &str) -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(build).as_deref();
    if folder.is_none() {
        skip(what, "the stand-in for a CUDA driver needs Linux and rustc");
    }
    folder
}

fn build() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_driver/lib.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    place("fake_driver", |to| {
        let options = ["--edition", "2024", "--crate-type", "cdylib", "-o"];
        let status = Command::new(rustc).args(options).arg(to).arg(source).status().ok()?;
        assert!(status.success(), "the stand-in for a CUDA driver does not build");
        Some(())
    })
}

/// A folder with a library of the driver's name that is something else; none where no library is found to copy.
pub fn other_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps.lines().find_map(|line| {
        let path = line.split_whitespace().last()?;
        path.contains("libgcc_s").then(|| path.to_owned())
    })?;
    place("other_library", |to| std::fs::copy(library, to).ok().map(drop))
}

/// A folder with the library that `make` makes. Another process may do the same, and may have opened the last one.
fn place(name: &str, make: impl FnOnce(&Path) -> Option<()>) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).ok()?;
    let new = tempfile::tempdir_in(&folder).ok()?;
    let made = new.path().join("libcuda.so");
    make(&made)?;
    std::fs::rename(made, folder.join("libcuda.so")).ok()?;
    Some(folder)
}
