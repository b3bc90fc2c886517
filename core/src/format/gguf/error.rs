//! What can be wrong with a file, in words a person can act on.
//!
//! [`FormatError`] says which file; [`HeaderError`] says what is wrong inside it and does not need a file, so that a
//! header can be read from anything.

use std::fmt;
use std::path::PathBuf;

use super::super::{GgmlType, MetadataError};
use super::layout::ShapeError;
use super::subject::shown;
use super::{MAX_ALIGNMENT_BYTES, MIN_ALIGNMENT_BYTES};

/// A GGUF file, or a set of them, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The operating system does not give us the file.
    #[error("cannot open {}: {problem}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: std::io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a regular file; give the path of a .gguf file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The contents are not a GGUF file that can be read.
    #[error("{}: {problem}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: HeaderError,
    },
    /// The file is one of several, and together they are not one model.
    #[error("{}: {problem}", path.display())]
    Shards {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: ShardError,
    },
    /// The file is shorter than when it was opened.
    #[error(
        "{}: tensor `{}` should end at byte {end_bytes}, but the file now has only {len_bytes} bytes; it was \
         changed while in use, so open it again when it is complete", path.display(), shown(tensor)
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Where its data should end.
        end_bytes: u64,
        /// Length of the file now.
        len_bytes: u64,
    },
    /// The data of a tensor cannot be read, or does not fit into memory.
    #[error("{}: tensor `{}` ({len_bytes} bytes) cannot be read: {problem}", path.display(), shown(tensor))]
    ReadTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Length of its data.
        len_bytes: u64,
        /// Why.
        problem: std::io::Error,
    },
    /// A description that belongs to another file.
    #[error("tensor `{}` does not belong to {}", shown(tensor), path.display())]
    ForeignTensor {
        /// The file that was asked.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
}

/// What is wrong inside one file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// Not even a header.
    #[error(
        "the file has only {len_bytes} bytes, fewer than the 24 of a GGUF header; it is empty or its download was \
         cut short, so download it again"
    )]
    TooShort {
        /// Length of the file.
        len_bytes: u64,
    },
    /// Another kind of file.
    #[error("the file starts with {found} where a GGUF file has `GGUF`; {hint}")]
    NotGguf {
        /// The first four bytes.
        found: String,
        /// What it probably is.
        hint: &'static str,
    },
    /// Made for another byte order.
    #[error(
        "this is a big-endian GGUF file and only little-endian ones are read; convert it with `gguf-convert-endian` \
         of the gguf Python package"
    )]
    BigEndian,
    /// A version of the container that is not read.
    #[error("the file is GGUF version {found}, but only versions 2 and 3 are read; {hint}")]
    Version {
        /// The version.
        found: u32,
        /// What to do.
        hint: &'static str,
    },
    /// The file ends inside something.
    #[error(
        "{subject} needs {needed_bytes} bytes at byte {position_bytes}, but the file has only {left_bytes} left; it is \
         cut short or damaged, so download it again"
    )]
    Cut {
        /// What was being read.
        subject: String,
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
        /// Where it starts.
        position_bytes: u64,
    },
    /// More items than the rest of the file can hold.
    #[error(
        "{subject} declares {count} items of at least {item_bytes} bytes at byte {position_bytes}, but the file has \
         only {left_bytes} bytes left; it is cut short or damaged, so download it again"
    )]
    Count {
        /// What was being read.
        subject: String,
        /// Items declared.
        count: u64,
        /// The least that an item takes.
        item_bytes: u64,
        /// Bytes left.
        left_bytes: u64,
        /// Where the items start.
        position_bytes: u64,
    },
    /// Larger than any real file needs.
    #[error(
        "{subject}: {found} is above the limit of {limit}; no real model is like this, the file is damaged"
    )]
    Limit {
        /// What was being read.
        subject: String,
        /// The number.
        found: u64,
        /// The largest that is accepted.
        limit: u64,
    },
    /// The device failed, or the file became shorter while it was read.
    #[error("{subject} cannot be read: {problem}")]
    Io {
        /// What was being read.
        subject: String,
        /// Why.
        problem: std::io::Error,
    },
    /// Text that is not UTF-8.
    #[error("{subject} is not valid UTF-8 text; the file is damaged")]
    NotUtf8 {
        /// What was being read.
        subject: String,
    },
    /// A name without a character, or a longer one than the format allows.
    #[error("{subject} has a name of {found_bytes} bytes; it should have 1 to {limit_bytes}")]
    NameLength {
        /// Whose name.
        subject: String,
        /// Length of the name.
        found_bytes: u64,
        /// The longest that is allowed.
        limit_bytes: u64,
    },
    /// A key twice.
    #[error(
        "metadata key `{}` appears twice; the file is damaged or was made by a faulty program",
        shown(key)
    )]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Not one of the 13 types.
    #[error("{subject} has value type {id}; GGUF has types 0 to 12, so the file is damaged")]
    UnknownValueType {
        /// What was being read.
        subject: String,
        /// The number in the file.
        id: u32,
    },
    /// A boolean that is neither.
    #[error("{subject} is a boolean of value {found}; it should be 0 or 1")]
    NotABool {
        /// What was being read.
        subject: String,
        /// The number in the file.
        found: u8,
    },
    /// Arrays in arrays without end.
    #[error("{subject} is an array nested more than {limit} deep")]
    NestedTooDeep {
        /// What was being read.
        subject: String,
        /// The deepest that is accepted.
        limit: u32,
    },
    /// An alignment that cannot be used.
    #[error(
        "metadata key `general.alignment` should be an unsigned 32-bit integer, a power of two from \
         {MIN_ALIGNMENT_BYTES} to {MAX_ALIGNMENT_BYTES}, but the file holds {found}"
    )]
    Alignment {
        /// What it holds.
        found: String,
    },
    /// A tensor name twice.
    #[error("tensor `{}` appears twice in the file", shown(tensor))]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },
    /// Dimensions that no tensor has.
    #[error("tensor `{}`: {problem}", shown(tensor))]
    Shape {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        problem: ShapeError,
    },
    /// A type this program has no block size for.
    #[error(
        "tensor `{}` has element type {id}, which is not known; known are {}; the file was made for a newer or \
         another program, or is damaged",
        shown(tensor),
        KnownTypes
    )]
    UnknownTensorType {
        /// The tensor.
        tensor: String,
        /// The number in the file.
        id: u32,
    },
    /// Data that does not start where the format says.
    #[error(
        "tensor `{}` starts at offset {offset_bytes} of the data, which is not a multiple of the alignment \
         {alignment_bytes}",
        shown(tensor)
    )]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Offset in the data.
        offset_bytes: u64,
        /// Alignment of the file.
        alignment_bytes: u64,
    },
    /// Data past the end.
    #[error(
        "tensor `{}` needs {needed_bytes} bytes from byte {start_bytes} of the file, but the file has {len_bytes}; it is \
         cut short or damaged, so download it again",
        shown(tensor)
    )]
    OutsideFile {
        /// The tensor.
        tensor: String,
        /// Where the data starts (too large ones as 2^64 - 1).
        start_bytes: u64,
        /// Length of the data.
        needed_bytes: u64,
        /// Length of the file.
        len_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "tensors `{}` and `{}` overlap at byte {position_bytes}; the file is damaged",
        shown(first),
        shown(second)
    )]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The other.
        second: String,
        /// Where the other starts.
        position_bytes: u64,
    },
    /// Several files glued together.
    #[error(
        "another GGUF file starts at byte {position_bytes}: shards were glued together, which does not make one model; \
         use the separate shards, or join them with `llama-gguf-split --merge`"
    )]
    Concatenated {
        /// Where.
        position_bytes: u64,
    },
}

/// Why files do not form one sharded model.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// A key that describes the set is missing or of another type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The shard says that it is more than the set has.
    #[error("metadata says that this is shard number {no} (counted from 0) of {count}; the file is damaged")]
    Number {
        /// `split.no`.
        no: u32,
        /// `split.count`.
        count: u32,
    },
    /// The other shards cannot be found without the usual name.
    #[error(
        "this is shard {} of {count}, but its name does not end in `{suffix}`, so the other shards cannot be found; \
         give all shards their original names", no + 1
    )]
    Name {
        /// `split.no`.
        no: u32,
        /// `split.count`.
        count: u32,
        /// How the name should end.
        suffix: String,
    },
    /// Files that should be there.
    #[error("this is one of {count} shards, of which {}; put all of them into one folder", Missing(missing))]
    Missing {
        /// `split.count`.
        count: u32,
        /// What is not there.
        missing: Vec<PathBuf>,
    },
    /// A shard renamed or taken from elsewhere.
    #[error(
        "by its name this is shard {by_name} of the set, but metadata says shard {by_metadata}; it was renamed"
    )]
    Renamed {
        /// From the file name, counted from 1.
        by_name: u32,
        /// `split.no` + 1.
        by_metadata: u64,
    },
    /// Shards of different models.
    #[error(
        "metadata key `{}` holds {found}, but {other} in {}; these shards are of different models", shown(key),
        other_path.display()
    )]
    Differs {
        /// The key.
        key: String,
        /// Value here.
        found: String,
        /// Value in the first shard.
        other: String,
        /// The first shard.
        other_path: PathBuf,
    },
    /// Tensors missing or left over.
    #[error(
        "the shards hold {found} tensors together, but `split.tensors.count` says {expected}; a shard was replaced"
    )]
    TensorCount {
        /// Sum over the shards.
        found: u64,
        /// `split.tensors.count`.
        expected: u32,
    },
    /// A tensor in two shards.
    #[error("tensor `{}` is also in {}; these shards are of different models", shown(tensor), other_path.display())]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// The other shard.
        other_path: PathBuf,
    },
}

struct KnownTypes;

impl fmt::Display for KnownTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, ty) in GgmlType::ALL.iter().enumerate() {
            write!(f, "{}{ty}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Missing<'a>(&'a [PathBuf]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        for (i, path) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, path.display())?;
        }
        match self.0.len() {
            0 | 1 => f.write_str(" is missing"),
            n if n <= NAMED => f.write_str(" are missing"),
            n => write!(f, " and {} more are missing", n - NAMED),
        }
    }
}
