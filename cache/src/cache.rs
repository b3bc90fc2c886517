//! The cache.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::entry;
use crate::folder::{self, Cleared, Listed, NEW_PREFIX};
use crate::key::{Key, Kind};

/// Enough for the kernels of some hundred models.
pub const DEFAULT_LIMIT_BYTES: u64 = 512 << 20;
/// No entry is longer.
const MAX_ENTRY_LEN_BYTES: u64 = 256 << 20;

/// A cache in a folder, which need not be there. Clones of a handle (`Arc`) and other processes may use the
/// folder at once.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit_bytes: u64,
    /// About how many bytes are in the folder, once that was counted.
    used_bytes: Mutex<Option<u64>>,
    /// Nothing could be written once, and nothing is tried any more.
    gave_up: AtomicBool,
    /// Someone has heard of damage.
    warned: AtomicBool,
    /// So many bytes can be written before the disk is full, for tests.
    #[cfg(test)]
    disk_bytes: Option<u64>,
}

impl Cache {
    /// A cache in a folder that may hold about so many bytes.
    pub fn new(folder: impl Into<PathBuf>, limit_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            limit_bytes,
            used_bytes: Mutex::new(None),
            gave_up: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            #[cfg(test)]
            disk_bytes: None,
        }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The value of a key, if it is there and whole.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::debug!("cannot read {}: {error}", path.display());
                return None;
            }
        };
        let value = entry::read(bytes, key);
        let done = match value {
            Some(_) => mark_used(&path),
            None => {
                self.report_damage(key, &path);
                fs::remove_file(&path)
            }
        };
        if let Err(error) = done {
            tracing::debug!("{}: {error}", path.display());
        }
        value
    }

    /// Pages of keys and values are the user's own folder: the first damage there is a warning.
    fn report_damage(&self, key: &Key, path: &Path) {
        if key.kind == Kind::KvPage && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("--kv-dir: {} is damaged; it and others like it are made anew", path.display());
        } else {
            tracing::info!("{} is damaged and will be made again", path.display());
        }
    }

    /// Says that a value was used now, where there is one.
    pub fn touch(&self, key: &Key) {
        if let Err(error) = mark_used(&self.path(key)) {
            tracing::debug!("{key:?}: {error}");
        }
    }

    /// Keeps a value. `label` says to people what it is. If it cannot be kept, there is a warning, once.
    pub fn put(&self, key: &Key, label: &str, value: &[u8]) {
        if self.gave_up.load(Ordering::Relaxed) {
            return;
        }
        let bytes = entry::write(key, label, value);
        let len_bytes = bytes.len() as u64;
        if len_bytes > MAX_ENTRY_LEN_BYTES.min(self.limit_bytes) {
            tracing::debug!("{key:?} ({label}) is too long to be kept: {len_bytes} bytes");
            return;
        }
        if let Err(error) = self.write(key, &bytes).and_then(|()| self.count(len_bytes)) {
            self.gave_up.store(true, Ordering::Relaxed);
            tracing::warn!(
                "cannot keep anything in the cache {}: {error}; it goes on without, and each start takes longer; \
                 give another folder with --cache-dir, or `--cache-dir off`",
                self.folder.display()
            );
        }
    }

    /// Removes the value of a key, which has turned out to be of no use.
    pub fn remove(&self, key: &Key) {
        if let Err(error) = fs::remove_file(self.path(key)) {
            tracing::debug!("cannot remove {key:?}: {error}");
        }
    }

    /// All entries, those first that were used last.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        folder::list(&self.folder)
    }

    /// Removes all entries.
    pub fn clear(&self) -> io::Result<Cleared> {
        folder::clear(&self.folder)
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder_of(key.kind).join(key.to_string())
    }

    fn folder_of(&self, kind: Kind) -> PathBuf {
        self.folder.join(kind.name())
    }

    /// Writes an entry beside its place and renames it. It need not reach the disk now: what a crash leaves
    /// incomplete is found to be damaged.
    fn write(&self, key: &Key, bytes: &[u8]) -> io::Result<()> {
        let folder = self.folder_of(key.kind);
        make_private(&folder)?;
        let mut new = tempfile::Builder::new().prefix(NEW_PREFIX).tempfile_in(&folder)?;
        #[cfg(test)]
        if self.disk_bytes.is_some_and(|left| (bytes.len() as u64) > left) {
            new.write_all(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        new.write_all(bytes)?;
        new.persist(self.path(key)).map(drop).map_err(|error| error.error)
    }

    /// Counts bytes that were added, and makes room if there are too many.
    fn count(&self, added_bytes: u64) -> io::Result<()> {
        let mut used_bytes = self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = used_bytes.map(|used| used + added_bytes);
        *used_bytes = match counted {
            Some(used) if used <= self.limit_bytes => Some(used),
            // Somewhat more goes, so that not each new entry has all others looked at.
            Some(_) => Some(folder::trim(&self.folder, self.limit_bytes / 8 * 7)?),
            None => Some(folder::trim(&self.folder, self.limit_bytes)?),
        };
        Ok(())
    }
}

/// Says by a file's time that it was used now.
fn mark_used(path: &Path) -> io::Result<()> {
    fs::File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

/// A file, if it can be an entry.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let facts = fs::symlink_metadata(path)?;
    if !facts.is_file() || facts.len() > MAX_ENTRY_LEN_BYTES {
        // Of nothing an entry comes.
        return Ok(vec![]);
    }
    fs::read(path)
}

/// Makes a folder that only its owner sees into, with those above it.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests;
