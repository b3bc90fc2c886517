//! The GGUF container, versions 2 and 3, little-endian.
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  entry count u64
//! entries: key string, value type u32, value          string: length u64, UTF-8 bytes
//! tensors: name string, number of dimensions u32, dimensions u64 each, element type u32, offset u64
//! zeros up to general.alignment (32 if absent), then the data; offsets count from here
//! ```
//!
//! [`GgufHeader`] reads everything before the data from any reader; [`GgufFile`] opens a file or all shards of a set
//! and reads tensors by position; [`GgufWriter`] writes both, [`GgufStream`] a file that does not fit memory. Start
//! reading at [`GgufHeader::read`].
//!
//! Source: `docs/gguf.md` of the ggml repository.

mod error;
mod file;
mod header;
mod header_writer;
mod input;
mod layout;
mod shards;
mod stream;
mod subject;
mod value;
mod writer;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod shards_tests;

pub use error::{FormatError, HeaderError, ShardError};
pub use file::GgufFile;
pub use header::GgufHeader;
pub use header_writer::TensorShape;
pub use layout::ShapeError;
pub use stream::GgufStream;
pub use writer::{GgufWriter, WriteError};

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT_BYTES: u32 = 32;
/// The specification asks for a multiple of 8 and every reader for a power of two.
const MIN_ALIGNMENT_BYTES: u32 = 8;
const MAX_ALIGNMENT_BYTES: u32 = 1 << 24;
/// Longest key, by the specification.
const KEY_LIMIT_BYTES: u64 = 65_535;
/// Longest tensor name, by the specification.
const TENSOR_NAME_LIMIT_BYTES: u64 = 64;
const MAX_DIMS: u32 = 4;
/// Arrays of arrays of …; no known file goes beyond 2.
const MAX_NESTING: u32 = 8;
/// What follows bounds the memory that a header takes; real ones stay far below.
const HEADER_LIMIT_BYTES: u64 = 256 << 20;
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 20;
