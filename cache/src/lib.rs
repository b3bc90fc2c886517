//! A folder that keeps what is expensive to make and can be made again: compiled kernels, results of
//! self-tests.
//!
//! # What holds
//!
//! - A [`Key`] is a digest of everything that a value depends on, so that a value is never out of date: what
//!   changes has another key, and what no key leads to any more is the first to go.
//! - What comes out is what was put in: an entry holds its key and a digest of itself. Anything else (cut
//!   off, overwritten, another program's) is removed, and the value made again.
//! - Any number of processes may use a folder at once: an entry is written beside its place and then renamed
//!   to it.
//! - The folder stays below a size: the entries that were used longest ago go.
//! - Nothing here is an error to whoever asks: where nothing can be written there is one warning, and no
//!   cache.
//!
//! Start reading at [`Cache`].

mod cache;
mod entry;
mod folder;
mod key;

pub use cache::{Cache, DEFAULT_LIMIT_BYTES};
pub use folder::{Cleared, Listed};
pub use key::{Key, KeyBuilder, Kind};
