//! The files that a model was loaded from, and their digest.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use unisonic_core::format::GgufFile;
use unisonic_engine::Digest;

use crate::error::{Error, Result};
use crate::locks::lock_whole;
use crate::status::unisonic_status;

/// The files of a model. They stay open, so that what is hashed is what was loaded, whatever has the path by then.
pub(crate) struct ModelFiles {
    files: Vec<ModelFile>,
    digest: Mutex<Option<Digest>>,
}

struct ModelFile {
    path: PathBuf,
    file: File,
    /// As it was before anything was loaded.
    state: State,
}

/// What tells a file that was written to from one that was not.
#[derive(PartialEq, Eq)]
struct State {
    len_bytes: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self { len_bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl ModelFiles {
    /// The files of a model that is about to be loaded.
    pub(crate) fn of(model: &GgufFile) -> Result<Self> {
        let keep = |(path, file): (&Path, &File)| {
            let kept = file.try_clone().and_then(|file| Ok((State::of(&file.metadata()?), file)));
            let (state, file) = kept.map_err(|error| cannot_read(path, &error))?;
            Ok(ModelFile { path: path.to_owned(), file, state })
        };
        let files = model.files().map(keep).collect::<Result<Vec<_>>>()?;
        Ok(Self { files, digest: Mutex::new(None) })
    }

    /// Where the first of them was.
    pub(crate) fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |file| file.path.as_path())
    }

    /// SHA-256 of the file, computed once; of a sharded set that of the digests of its files.
    pub(crate) fn digest(&self) -> Result<Digest> {
        let mut known = lock_whole(&self.digest);
        if let Some(digest) = *known {
            return Ok(digest);
        }
        let digests = self.files.iter().map(ModelFile::digest).collect::<Result<Vec<_>>>()?;
        let digest = match digests.as_slice() {
            [digest] => *digest,
            digests => Digest::of(&digests.iter().flat_map(|digest| digest.0).collect::<Vec<u8>>()),
        };
        *known = Some(digest);
        Ok(digest)
    }
}

impl ModelFile {
    fn digest(&self) -> Result<Digest> {
        let (digest, state) = self.read().map_err(|error| cannot_read(&self.path, &error))?;
        if state != self.state {
            let path = self.path.display();
            let message = format!(
                "{path} was written to after the model was loaded, so its digest is not that of the weights; load it again"
            );
            return Err(Error::new(unisonic_status::Io, message));
        }
        Ok(digest)
    }

    /// The digest of the file as it is now, and its state after that.
    fn read(&self) -> io::Result<(Digest, State)> {
        let (mut sha256, mut file) = (Sha256::new(), &self.file);
        file.rewind()?;
        io::copy(&mut file.by_ref(), &mut sha256)?;
        Ok((Digest(sha256.finalize().into()), State::of(&self.file.metadata()?)))
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Error {
    Error::new(unisonic_status::Io, format!("cannot read {} for its digest: {error}", path.display()))
}
