//! Where a file is kept: in the hub's cache, which other tools share, or in a folder of the user's.
//!
//! In the cache a file's bytes are `blobs/SHA256`, and `snapshots/COMMIT/PATH` links to them. The unfinished file and
//! the lock have the names that hf-hub gives them, so that its users and this program wait for each other.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, Repo, RepoType};

use super::error::PullError;
use super::hub::Repository;
use crate::output::say;

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
                    part: folder.join(format!("{name}.part")),
                    lock: folder.join(format!("{name}.lock")),
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
                cache.repo(repo).create_ref(&repository.commit).map_err(disk(cache.path()))
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
        let file = File::create(&self.lock).map_err(disk(&self.lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say(format_args!("waiting for another process that fetches {}", self.target.display()));
                file.lock().map_err(disk(&self.lock))?;
            }
            Err(TryLockError::Error(cause)) => return Err(disk(&self.lock)(cause)),
        }
        Ok(Lock { _file: file })
    }

    /// Gives the finished file its name, and what waited for it the sign to look.
    pub fn publish(&self) -> Result<(), PullError> {
        fs::rename(&self.part, &self.target).map_err(disk(&self.target))
    }

    /// Makes the file visible in the cache, or clears up in a folder; the path to give to the user.
    pub fn finish(&self, _lock: Lock) -> Result<PathBuf, PullError> {
        match &self.link {
            Some(link) => {
                self.link_to_target(link).map_err(disk(link))?;
                Ok(link.clone())
            }
            None => {
                // Whoever waited for it finds the finished file. Systems that keep open files keep the lock too.
                let _ = fs::remove_file(&self.lock);
                Ok(self.target.clone())
            }
        }
    }

    fn link_to_target(&self, link: &Path) -> io::Result<()> {
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        match make_link(&self.target, link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::canonicalize(link).ok() == fs::canonicalize(&self.target).ok() {
                    return Ok(());
                }
                fs::remove_file(link)?;
                make_link(&self.target, link)
            }
            made => made,
        }
    }
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
