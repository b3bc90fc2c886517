//! The files of a cache's folder, and which of them go.
//!
//! Only what has the name of an entry, or of one that is being written, in the folder of a kind is touched.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::entry;
use crate::key::Kind;

/// How names of files begin that are being written.
pub const NEW_PREFIX: &str = ".new-";
/// Whoever began to write a file this long ago does not go on.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A file.
pub struct File {
    pub kind: Kind,
    pub path: PathBuf,
    pub len_bytes: u64,
    /// When it was last used or written.
    pub used: SystemTime,
    /// Whether it is being written, or was when its process ended.
    pub is_new: bool,
}

/// An entry, for people.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What it is.
    pub kind: Kind,
    /// Of what.
    pub label: String,
    /// Bytes of the file.
    pub len_bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// So many entries.
    pub entries: u64,
    /// So many bytes.
    pub len_bytes: u64,
}

/// All files. A folder that is not there has none.
pub fn files(folder: &Path) -> io::Result<Vec<File>> {
    let mut files = vec![];
    for kind in Kind::ALL {
        let entries = match fs::read_dir(folder.join(kind.name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_entry = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_new = name.starts_with(NEW_PREFIX);
            // Another process may have removed it since. Links are not followed.
            let Ok(facts) = entry.metadata() else { continue };
            if (is_entry || is_new) && facts.is_file() {
                let used = facts.modified()?;
                files.push(File { kind, path: entry.path(), len_bytes: facts.len(), used, is_new });
            }
        }
    }
    Ok(files)
}

/// Removes what was abandoned while it was written, then what was used longest ago, until at most
/// `most_bytes` are left. How many are.
pub fn trim(folder: &Path, most_bytes: u64) -> io::Result<u64> {
    let mut files = files(folder)?;
    files.sort_by_key(|file| file.used);
    let is_abandoned =
        |file: &File| file.is_new && file.used.elapsed().is_ok_and(|age| age > ABANDONED_AFTER);
    let mut left_bytes: u64 = files.iter().map(|file| file.len_bytes).sum();
    let (abandoned, rest): (Vec<_>, Vec<_>) = files.into_iter().partition(is_abandoned);
    let is_too_much = |left_bytes| left_bytes > most_bytes;
    for file in abandoned.iter().chain(rest.iter().filter(|file| !file.is_new)) {
        if is_abandoned(file) || is_too_much(left_bytes) {
            remove(&file.path)?;
            left_bytes -= file.len_bytes;
        }
    }
    Ok(left_bytes)
}

/// All entries, those first that were used last.
pub fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let mut files = files(folder)?;
    files.retain(|file| !file.is_new);
    files.sort_by_key(|file| std::cmp::Reverse(file.used));
    let listed = files.into_iter().map(|file| {
        let label = label(&file.path).unwrap_or_else(|| "damaged; it will be made again".to_owned());
        Listed { kind: file.kind, label, len_bytes: file.len_bytes, used: file.used }
    });
    Ok(listed.collect())
}

fn label(path: &Path) -> Option<String> {
    let mut start = vec![];
    fs::File::open(path).ok()?.take(entry::LABEL_END as u64).read_to_end(&mut start).ok()?;
    entry::label(&start)
}

/// Removes all entries, and folders that are then empty.
pub fn clear(folder: &Path) -> io::Result<Cleared> {
    let mut cleared = Cleared::default();
    for file in files(folder)? {
        remove(&file.path)?;
        if !file.is_new {
            cleared.entries += 1;
            cleared.len_bytes += file.len_bytes;
        }
    }
    let folders = Kind::ALL.iter().map(|kind| folder.join(kind.name())).chain([folder.to_owned()]);
    for folder in folders {
        // What is not empty, or not there, stays so.
        let _ = fs::remove_dir(folder);
    }
    Ok(cleared)
}

/// Removes a file, which another process may have done before.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
