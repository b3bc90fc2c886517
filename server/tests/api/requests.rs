//! What the fuzz target `request` checks, over everything it ever failed on and the seeds by hand beside it (docs/fuzzing.md).

#[path = "../../../fuzz/checks/request.rs"]
mod request;

use std::path::Path;

#[test]
fn bodies_are_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions/request");
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no regressions in {}", folder.display());
    for path in paths {
        println!("{}", path.display());
        let bytes = std::fs::read(&path).unwrap();
        request::check(&bytes);
        // Cut anywhere, and with a byte changed.
        for at in 0..bytes.len() {
            request::check(&bytes[..at]);
        }
    }
}
