//! One file, from the first byte or from where an earlier attempt ended, to a verified file under its name.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use indicatif::{DecimalBytes, ProgressBar};
use sha2::{Digest, Sha256};

use super::error::PullError;
use super::hub::{Hub, Repository};
use super::place::{Place, Store, disk, open_finished, open_own};
use super::retry::Retries;
use crate::output::{bytes_bar, say};

const BUFFER_BYTES: usize = 256 << 10;

/// A file that the hub has announced.
pub struct Wanted<'a> {
    pub repository: &'a Repository,
    pub path: &'a str,
    pub len_bytes: u64,
    /// 64 lower-case hexadecimal digits.
    pub sha256: &'a str,
}

/// A verified file.
pub struct Fetched {
    pub path: PathBuf,
    /// What came over the network: 0 where the file was there already.
    pub received_bytes: u64,
}

/// Fetches a file unless it is there. A failure that may pass is tried again `retries` times, and as often again when
/// some more has arrived.
pub fn fetch(hub: &Hub, store: &Store, wanted: &Wanted<'_>, retries: u32) -> Result<Fetched, PullError> {
    let place = store.place(wanted.repository, wanted.path, wanted.sha256);
    // Where nothing can be written, not even a lock, a file can be used all the same.
    if matches!(look(&place, store, wanted)?, Found::Whole) {
        return Ok(Fetched { path: place.finish()?, received_bytes: 0 });
    }
    let _lock = place.lock()?;
    // Whoever had the lock may have fetched it.
    match look(&place, store, wanted)? {
        Found::Whole => return Ok(Fetched { path: place.finish()?, received_bytes: 0 }),
        Found::Damaged => say(format_args!("{} is damaged and is fetched again", place.target.display())),
        Found::Nothing => {}
    }
    let mut part = Part::open(&place.part, wanted)?;
    let resumed = part.len_bytes;
    let at = if resumed > 0 { format!(", from {} on", DecimalBytes(resumed)) } else { String::new() };
    say(format_args!("fetching {} ({}{at})", wanted.path, DecimalBytes(wanted.len_bytes)));
    let received_bytes =
        receive_with_retries(hub, wanted, &mut part, retries).inspect_err(|_| part.forget_if_empty())?;
    part.verify(wanted)?;
    place.publish()?;
    Ok(Fetched { path: place.finish()?, received_bytes })
}

/// What is in a finished file's place.
enum Found {
    Nothing,
    Whole,
    /// Other bytes, which the store replaces.
    Damaged,
}

fn look(place: &Place, store: &Store, wanted: &Wanted<'_>) -> Result<Found, PullError> {
    let path = &place.target;
    let Some(mut file) = open_finished(path)? else {
        return match !store.replaces() && fs::symlink_metadata(path).is_ok() {
            // A link that leads nowhere.
            true => Err(PullError::Irregular { path: path.clone() }),
            false => Ok(Found::Nothing),
        };
    };
    let mut digest = Sha256::new();
    hash(&mut file, &mut digest).map_err(disk(path))?;
    let found = format!("{:x}", digest.finalize());
    match found == wanted.sha256 {
        true => Ok(Found::Whole),
        false if store.replaces() => Ok(Found::Damaged),
        false => Err(PullError::Occupied { path: path.clone(), expected: wanted.sha256.to_owned(), found }),
    }
}

fn receive_with_retries(
    hub: &Hub,
    wanted: &Wanted<'_>,
    part: &mut Part,
    retries: u32,
) -> Result<u64, PullError> {
    let bar = bytes_bar(wanted.path, wanted.len_bytes);
    let mut received_bytes = 0;
    let mut furthest = part.len_bytes;
    let mut retries = Retries::new(retries);
    let result = loop {
        let received = receive(hub, wanted, part, &bar, &mut received_bytes);
        if part.len_bytes > furthest {
            furthest = part.len_bytes;
            retries.renew();
        }
        let Err(error) = received else { break Ok(received_bytes) };
        match retries.wait(error, &bar) {
            Ok(()) => {}
            Err(error) if error.is_passing() && part.len_bytes > 0 => {
                break Err(PullError::Unfinished(Box::new(error)));
            }
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    result
}

/// Appends what is missing to the part.
fn receive(
    hub: &Hub,
    wanted: &Wanted<'_>,
    part: &mut Part,
    bar: &ProgressBar,
    received_bytes: &mut u64,
) -> Result<(), PullError> {
    if part.len_bytes == wanted.len_bytes {
        return Ok(());
    }
    let announced = (wanted.len_bytes, wanted.sha256);
    let mut content = hub.open(wanted.repository, wanted.path, announced, part.len_bytes)?;
    if content.first_byte != part.len_bytes {
        bar.suspend(|| say(format_args!("{} does not go on from there; starting over", content.host)));
        part.clear()?;
    }
    bar.set_position(part.len_bytes);
    bar.reset_eta();
    let mut buffer = vec![0; BUFFER_BYTES];
    while part.len_bytes < wanted.len_bytes {
        let lost = |cause| PullError::Lost {
            host: content.host.clone(),
            path: wanted.path.to_owned(),
            have_bytes: part.len_bytes,
            len_bytes: wanted.len_bytes,
            cause,
        };
        let read = match content.reader.read(&mut buffer) {
            Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(lost(error)),
        };
        // Nothing beyond the announced size is written, whatever is sent.
        let missing = usize::try_from(wanted.len_bytes - part.len_bytes).unwrap_or(usize::MAX);
        let new = read.get(..missing).unwrap_or(read);
        part.append(new)?;
        *received_bytes += new.len() as u64;
        bar.inc(new.len() as u64);
    }
    Ok(())
}

/// The unfinished file, with the digest of what it holds.
struct Part {
    file: File,
    path: PathBuf,
    len_bytes: u64,
    digest: Sha256,
}

impl Part {
    /// Opens what an earlier attempt left, or nothing.
    fn open(path: &Path, wanted: &Wanted<'_>) -> Result<Self, PullError> {
        let mut file = open_own(path)?;
        if file.metadata().map_err(disk(path))?.len() > wanted.len_bytes {
            file.set_len(0).map_err(disk(path))?;
        }
        let mut digest = Sha256::new();
        let len_bytes = hash(&mut file, &mut digest).map_err(disk(path))?;
        Ok(Self { file, path: path.to_owned(), len_bytes, digest })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        self.file.write_all(bytes).map_err(disk(&self.path))?;
        self.digest.update(bytes);
        self.len_bytes += bytes.len() as u64;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), PullError> {
        self.file.set_len(0).map_err(disk(&self.path))?;
        self.digest = Sha256::new();
        self.len_bytes = 0;
        Ok(())
    }

    /// Leaves nothing behind where nothing has arrived.
    fn forget_if_empty(&self) {
        if self.len_bytes == 0 {
            // It would do no harm either.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Compares the digest; a wrong file is deleted.
    fn verify(self, wanted: &Wanted<'_>) -> Result<(), PullError> {
        let found = format!("{:x}", self.digest.finalize());
        if found != wanted.sha256 {
            fs::remove_file(&self.path).map_err(disk(&self.path))?;
            let (path, expected) = (wanted.path.to_owned(), wanted.sha256.to_owned());
            return Err(PullError::Digest { path, expected, found });
        }
        // A name must not outlive a crash that the bytes do not.
        self.file.sync_all().map_err(disk(&self.path))
    }
}

/// Hashes a file from where it stands to its end; the bytes that were read.
fn hash(file: &mut File, digest: &mut Sha256) -> io::Result<u64> {
    let bar = bytes_bar("checking", file.metadata()?.len());
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut len_bytes = 0;
    let result = loop {
        match file.read(&mut buffer) {
            Ok(0) => break Ok(len_bytes),
            Ok(read) => {
                digest.update(buffer.get(..read).unwrap_or_default());
                len_bytes += read as u64;
                bar.set_position(len_bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    result
}
