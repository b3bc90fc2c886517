//! Files that are there as a whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use tempfile::NamedTempFile;

/// Fails where [`write()`] will, for whoever has long work to do before it.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("cannot write {}: it is a folder", path.display());
    }
    unnamed(path).map(|_| ())
}

/// Writes a file, in the place of another if there is one; a process or machine that stops leaves the old or
/// the new one.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = unnamed(path)?;
    let written = file.write_all(bytes).and_then(|()| file.as_file().sync_all());
    let named = written.and_then(|()| file.persist(path).map_err(|error| error.error));
    named.and_then(|_| sync_folder(path)).with_context(|| format!("cannot write {}", path.display()))
}

/// The folder of a file.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts the name of a file on the disk.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// A file beside `path` that vanishes unless it gets that name.
fn unnamed(path: &Path) -> anyhow::Result<NamedTempFile> {
    // As a new file has it; the process's mask takes off what users do not want.
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unisonic-").permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(folder(path)).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        for text in ["one", "two"] {
            check(&path).expect("it can be written");
            write(&path, text.as_bytes()).expect("it is written");
            assert_eq!(std::fs::read_to_string(&path).expect("it is there"), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("no/such/file")] {
            let error = format!("{:#}", check(&path).expect_err("it cannot be written"));
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
}
