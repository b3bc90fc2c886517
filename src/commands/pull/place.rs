//! Where a file is kept: in the hub's cache, which other tools share, or in a folder of the user's.
//!
//! In the cache a file's bytes are `blobs/SHA256`, and `snapshots/COMMIT/PATH` links to them. The unfinished file and
//! the lock have the names that hf-hub gives them, so that its users and this program wait for each other. In a folder
//! they have hidden names with the digest in them, which are nobody else's; neither stays when the file is there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, Repo, RepoType};
use tempfile::TempPath;

use super::error::PullError;
use super::hub::Repository;
use crate::output::say;

/// The longest name of a file that all usual file systems take.
const MAX_NAME_BYTES: usize = 255;

/// Where files go.
pub enum Store {
    /// The hub's cache.
    Cache(Cache),
    /// A folder; files keep the last part of their path.
    Folder(PathBuf),
}

/// Where one file goes.
pub struct Place {
    /// The finished file.
    pub target: PathBuf,
    /// The unfinished file.
    pub part: PathBuf,
    lock: PathBuf,
    /// The name under which the cache shows the file; none in a folder.
    link: Option<PathBuf>,
}

/// Held while a file is fetched; the system lets go of it when the process ends.
pub struct Lock {
    _file: File,
    /// Where it is, if it goes when it is let go of.
    temporary: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            // It would do no harm either.
            let _ = fs::remove_file(path);
        }
    }
}

/// An error about a path.
pub fn disk(path: &Path) -> impl FnOnce(io::Error) -> PullError + '_ {
    |cause| PullError::Disk { path: path.to_owned(), cause }
}

impl Store {
    /// The place of a file of known digest; its path is plain.
    pub fn place(&self, repository: &Repository, path: &str, sha256: &str) -> Place {
        match self {
            Self::Cache(cache) => {
                let repo = Repo::model(repository.id.clone());
                let blob = cache.path().join(repo.folder_name()).join("blobs").join(sha256);
                Place {
                    part: blob.with_extension("part"),
                    lock: blob.with_extension("lock"),
                    target: blob,
                    link: Some(cache.repo(repo).pointer_path(&repository.commit).join(path)),
                }
            }
            Self::Folder(folder) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                Place {
                    target: folder.join(name),
                    part: folder.join(hidden_name(name, sha256, ".part")),
                    lock: folder.join(hidden_name(name, sha256, ".lock")),
                    link: None,
                }
            }
        }
    }

    /// Notes in the cache which commit a branch was at.
    pub fn note_revision(&self, repository: &Repository, revision: &str) -> Result<(), PullError> {
        match self {
            Self::Cache(cache) if revision != repository.commit => {
                let repo = Repo::with_revision(repository.id.clone(), RepoType::Model, revision.to_owned());
                match cache.repo(repo).create_ref(&repository.commit) {
                    Err(cause) if is_read_only(&cause) => Ok(()),
                    noted => noted.map_err(disk(cache.path())),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a file of that name may be replaced by the right one.
    pub fn replaces(&self) -> bool {
        matches!(self, Self::Cache(_))
    }
}

impl Place {
    /// Waits until no other process fetches the same file.
    pub fn lock(&self) -> Result<Lock, PullError> {
        if let Some(folder) = self.target.parent() {
            fs::create_dir_all(folder).map_err(disk(folder))?;
        }
        loop {
            let file = open_own(&self.lock)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    say(format_args!("waiting for another process that fetches {}", self.target.display()));
                    file.lock().map_err(disk(&self.lock))?;
                }
                Err(TryLockError::Error(cause)) => return Err(disk(&self.lock)(cause)),
            }
            // Whoever held it may have removed it, and another made a new one.
            if is_at(&file, &self.lock) {
                let temporary = self.link.is_none().then(|| self.lock.clone());
                return Ok(Lock { _file: file, temporary });
            }
        }
    }

    /// Gives the finished file its name. In the cache that may be a damaged file's; in a folder it must be free.
    pub fn publish(&self) -> Result<(), PullError> {
        let published = match &self.link {
            Some(_) => fs::rename(&self.part, &self.target),
            None => TempPath::try_from_path(&self.part).and_then(|part| {
                part.persist_noclobber(&self.target).map_err(|failed| {
                    // It goes on from there when the name is free.
                    let _ = failed.path.keep();
                    failed.error
                })
            }),
        };
        published.map_err(disk(&self.target))
    }

    /// Makes the file visible in the cache; the path to give to the user.
    pub fn finish(&self) -> Result<PathBuf, PullError> {
        let Some(link) = &self.link else { return Ok(self.target.clone()) };
        match self.link_to_target(link) {
            Ok(()) => Ok(link.clone()),
            Err(cause) if is_read_only(&cause) => Ok(self.target.clone()),
            Err(cause) => Err(disk(link)(cause)),
        }
    }

    fn link_to_target(&self, link: &Path) -> io::Result<()> {
        let target = fs::canonicalize(&self.target)?;
        if fs::canonicalize(link).is_ok_and(|found| found == target) {
            return Ok(());
        }
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        match make_link(&self.target, link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(link)?;
                make_link(&self.target, link)
            }
            made => made,
        }
    }
}

/// `.NAME.DIGEST` and an ending, of which NAME is shortened where all of it would be too long.
fn hidden_name(name: &str, sha256: &str, ending: &str) -> String {
    let digest = sha256.get(..12).unwrap_or(sha256);
    let mut end = name.len().min(MAX_NAME_BYTES - digest.len() - ending.len() - 2);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}.{digest}{ending}", name.get(..end).unwrap_or_default())
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Opens a file of this program, at its end, or makes it. What else has its name, a link among it, is left alone.
pub fn open_own(path: &Path) -> Result<File, PullError> {
    open_regular(OpenOptions::new().read(true).append(true).create(true), path, false)
}

/// Opens a finished file, or the one that a link leads to; none where nothing is.
pub fn open_finished(path: &Path) -> Result<Option<File>, PullError> {
    match open_regular(OpenOptions::new().read(true), path, true) {
        Ok(file) => Ok(Some(file)),
        Err(PullError::Disk { cause, .. })
            if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Opens a file, and nothing that one could wait for, such as a pipe.
fn open_regular(options: &mut OpenOptions, path: &Path, follows_links: bool) -> Result<File, PullError> {
    let found = if follows_links { fs::metadata(path) } else { fs::symlink_metadata(path) };
    if found.is_ok_and(|found| !found.is_file()) {
        return Err(PullError::Irregular { path: path.to_owned() });
    }
    // Something may have come between.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NONBLOCK | if follows_links { 0 } else { libc::O_NOFOLLOW });
    }
    let file = options.open(path).map_err(disk(path))?;
    match file.metadata().map_err(disk(path))?.is_file() {
        true => Ok(file),
        false => Err(PullError::Irregular { path: path.to_owned() }),
    }
}

/// Whether an open file is the one that is at a path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// Such systems keep the name of a file that is open.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// Relative, so that the cache can be moved.
#[cfg(unix)]
fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    // The folder that holds both is the one with `blobs` in it.
    let root = target.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let depth = link.strip_prefix(root).map_or(0, |below| below.components().count().saturating_sub(1));
    let up: PathBuf = std::iter::repeat_n("..", depth).collect();
    std::os::unix::fs::symlink(up.join(target.strip_prefix(root).unwrap_or(target)), link)
}

/// Symbolic links need rights that users of such systems rarely have.
#[cfg(not(unix))]
fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    fs::hard_link(target, link)
}
