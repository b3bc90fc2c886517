//! Pages on disk, for processes to come: `--kv-dir`.
//!
//! An entry of a [`Cache`] is one full page: its 64 tokens (u32, little-endian), and the page in the layout
//! of [`KvLayer`](unisonic_core::plan::KvLayer). Its key is a digest of all that keys and values depend on:
//!
//! ```text
//! root    = SHA-256(fields: "unisonic kv page 1", weights, profile, adapter, salt)     (`Digest::of_fields`)
//! page[i] = SHA-256(fields: "unisonic kv page 1", page[i-1] or root, 64 tokens)
//! ```
//!
//! so that the whole chain of tokens is in it. The cache compares digests, the store the tokens. What does
//! not fit, or cannot be read or written, counts as not there: the store makes things faster or does nothing.
//!
//! A thread writes behind the work, which never waits for the disk. Any number of processes share a folder.
//! When it has grown above its bound, the pages that were used longest ago go, those before what builds on
//! them last.

mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use unisonic_cache::{Cache, Key, Kind};

use super::CacheKey;
use super::tree::SLOTS;
use crate::digest::{Digest, ids_bytes};
use writer::{Put, Writer};

const LABEL: &[u8] = b"unisonic kv page 1";

/// Where pages are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvDir {
    /// The folder; made if it is not there.
    pub path: PathBuf,
    /// Bytes of all files, about; each process looks from time to time.
    pub max_bytes: u64,
}

/// The pages of one folder.
#[derive(Debug)]
pub(crate) struct KvStore {
    cache: Arc<Cache>,
    writer: Writer,
    /// Pages that need not be written: they are there, or will be.
    known: HashSet<Digest>,
}

/// The digest that the first page of a key builds on.
pub(crate) fn root(key: &CacheKey) -> Digest {
    Digest::of_fields(&[LABEL, &key.weights, key.profile.as_bytes(), &key.adapter, &key.salt])
}

/// Of the page with this run after the one with the digest `before`, or of the first after the root.
pub(crate) fn page_digest(before: Digest, run: &[u32]) -> Digest {
    Digest::of_fields(&[LABEL, &before.0, &ids_bytes(run)])
}

fn cache_key(digest: Digest) -> Key {
    Key::builder(Kind::KvPage).field("page", digest.0).finish()
}

impl KvStore {
    /// Opens a folder. The error is of starting a thread.
    pub(crate) fn open(dir: &KvDir) -> std::io::Result<Self> {
        let cache = Arc::new(Cache::new(&dir.path, dir.max_bytes));
        let writer = Writer::start(Arc::clone(&cache))?;
        Ok(Self { cache, writer, known: HashSet::new() })
    }

    /// The content of a page, if it is there.
    pub(crate) fn get(&mut self, digest: Digest, run: &[u32]) -> Option<Vec<u8>> {
        let mut page = self.cache.get(&cache_key(digest))?;
        let head = ids_bytes(run);
        if !page.starts_with(&head) {
            self.remove(digest);
            return None;
        }
        self.known.insert(digest);
        page.drain(..head.len());
        Some(page)
    }

    /// Says that the pages of a chain were used.
    pub(crate) fn touch(&self, chain: &[Digest]) {
        self.writer.touch(chain.to_vec());
    }

    /// Whether a page should be written; asked once a page. What is there is read, so that a damaged page
    /// behind another that was damaged is not taken for whole.
    pub(crate) fn wants(&mut self, digest: Digest, run: &[u32]) -> bool {
        if self.known.contains(&digest) {
            return false;
        }
        let is_there = self.get(digest, run).is_some();
        self.known.insert(digest);
        !is_there
    }

    /// Writes the last page of a chain, soon, unless too much is to be written already.
    pub(crate) fn put(&mut self, chain: &[Digest], run: &[u32], page: &[u8]) {
        debug_assert_eq!(run.len(), SLOTS);
        let Some(&digest) = chain.last() else { return };
        let value = [&ids_bytes(run), page].concat();
        if !self.writer.put(Put { chain: chain.to_vec(), value }) {
            self.known.remove(&digest);
        }
    }

    /// Forgets a page that could not be used.
    pub(crate) fn remove(&mut self, digest: Digest) {
        self.known.remove(&digest);
        self.cache.remove(&cache_key(digest));
    }
}
