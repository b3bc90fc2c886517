//! Files that are there as a whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
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
pub fn unnamed(path: &Path) -> anyhow::Result<NamedTempFile> {
    // As a new file has it; the process's mask takes off what users do not want.
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unisonic-").permissions(Permissions::from_mode(0o666));
    let folder = folder(path);
    builder.tempfile_in(folder).map_err(|error| {
        let (path, folder) = (path.display(), folder.display());
        match error.kind() {
            io::ErrorKind::NotFound => {
                anyhow!("cannot write {path}: there is no folder {folder}; make the folder first, or give another path")
            }
            _ => anyhow!(
                "cannot write {path}: {}; make {folder} a folder that you may write to, or give another path",
                without_path(&error)
            ),
        }
    })
}

/// The system's error in one of `tempfile`, which adds a name that nobody knows.
fn without_path(error: &io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|error| error.source()?.downcast_ref::<io::Error>());
    match inner.and_then(io::Error::raw_os_error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
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
            assert!(!error.contains(".unisonic-"), "{error}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("it is written");
        for (path, says) in
            [(folder.path().join("no/file"), "make the folder first"), (file.join("x"), "another path")]
        {
            let error = check(&path).expect_err("it cannot be written").to_string();
            assert!(error.contains(says) && !error.contains(".unisonic-"), "{error}");
        }
    }
}
