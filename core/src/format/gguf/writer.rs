//! Writes GGUF files: for tests, and for tools that make or change models.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::super::{GgmlType, Metadata, Value};
use super::header_writer::{self, TensorShape};
use super::layout::ShapeError;
use super::subject::shown;
use super::{MAX_NESTING, shards};

/// Collects metadata and tensors and writes them as one file or as shards.
///
/// The same calls give the same bytes: entries and tensors stay in the order of the calls, data is packed in that
/// order, each tensor padded with zeros to the alignment (metadata `general.alignment`, an `U32`; 32 if absent).
///
/// ```
/// use unisonic_core::format::{GgmlType, GgufHeader, GgufWriter, Value};
///
/// let bytes = GgufWriter::new("llama")
///     .kv("llama.block_count", Value::U32(1))
///     .tensor("output_norm.weight", GgmlType::F32, &[2], [0.5f32, 1.0].map(f32::to_le_bytes).concat())
///     .to_bytes()?;
/// let header = GgufHeader::read(bytes.as_slice(), bytes.len() as u64)?;
/// assert_eq!(header.metadata.u32("llama.block_count")?, Some(1));
/// assert_eq!(header.tensors[0].dims, [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    entries: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    shape: TensorShape,
    bytes: Vec<u8>,
}

/// What was collected cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Only versions 2 and 3 are written.
    #[error("GGUF version {0} cannot be written; choose 2 or 3")]
    Version(u32),
    /// A key or tensor name that the format does not allow.
    #[error("the name `{}` has {} bytes; it should have 1 to {limit_bytes}", shown(name), name.len())]
    NameLength {
        /// The name.
        name: String,
        /// The longest that is allowed.
        limit_bytes: u64,
    },
    /// A key or tensor twice.
    #[error("`{}` was added twice", shown(name))]
    Duplicate {
        /// Key or name of the tensor.
        name: String,
    },
    /// [`Value::Arrays`] of something else, or nested too deep.
    #[error(
        "metadata key `{}`: arrays of arrays may hold arrays only, at most {MAX_NESTING} deep",
        shown(key)
    )]
    Nesting {
        /// The key.
        key: String,
    },
    /// Not an alignment.
    #[error("`general.alignment` should be an unsigned 32-bit integer, a power of two of at least 8")]
    Alignment,
    /// Dimensions that no tensor can have.
    #[error("tensor `{}`: {problem}", shown(tensor))]
    Shape {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        problem: ShapeError,
    },
    /// Offsets beyond 64 bits.
    #[error("the data up to tensor `{}` is longer than 2^64 - 1 bytes; write fewer tensors", shown(tensor))]
    TooLong {
        /// The first tensor that has no room.
        tensor: String,
    },
    /// More or fewer bytes than the dimensions need.
    #[error(
        "tensor `{}` has {found_bytes} bytes, but its type and dimensions need {expected_bytes}",
        shown(tensor)
    )]
    Length {
        /// The tensor.
        tensor: String,
        /// Bytes that were given.
        found_bytes: u64,
        /// Bytes that are needed.
        expected_bytes: u64,
    },
    /// Data after the last tensor.
    #[error("{0} bytes were given after the data of the last tensor")]
    Surplus(u64),
    /// More shards than file names can count, or none.
    #[error("{0} shards cannot be written; choose a number of tensors a shard that gives 1 to 99999")]
    ShardCount(usize),
    /// The operating system does not take the data.
    #[error("cannot write {}: {problem}", path.as_deref().map_or("the data".into(), Path::to_string_lossy))]
    Io {
        /// The file, where the output has a name.
        path: Option<PathBuf>,
        /// Why.
        problem: std::io::Error,
    },
}

impl WriteError {
    /// Of an output that has no name here.
    pub(super) fn unnamed(problem: std::io::Error) -> Self {
        Self::Io { path: None, problem }
    }

    /// The same of a file, where it is about the output.
    #[must_use]
    pub fn at(self, path: &Path) -> Self {
        match self {
            Self::Io { problem, .. } => Self::Io { path: Some(path.to_owned()), problem },
            other => other,
        }
    }
}

impl GgufWriter {
    /// A version 3 file whose first entry is `general.architecture`.
    pub fn new(architecture: &str) -> Self {
        GgufWriter { version: 3, entries: Vec::new(), tensors: Vec::new() }
            .kv("general.architecture", Value::String(architecture.to_owned()))
    }

    /// A version 3 file with exactly this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        let entries = metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        GgufWriter { version: 3, entries, tensors: Vec::new() }
    }

    /// Writes another version of the container, 2 or 3. They differ in this number only.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Adds a metadata entry.
    #[must_use]
    pub fn kv(mut self, key: &str, value: Value) -> Self {
        self.entries.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor; `dims[0]` is the length of a row, `bytes` are whole blocks, row after row.
    #[must_use]
    pub fn tensor(mut self, name: &str, ty: GgmlType, dims: &[u64], bytes: impl Into<Vec<u8>>) -> Self {
        let shape = TensorShape { name: name.to_owned(), ty, dims: dims.to_vec() };
        self.tensors.push(Tensor { shape, bytes: bytes.into() });
        self
    }

    /// The whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WriteError> {
        let mut bytes = Vec::new();
        let alignment_bytes = self.check()?;
        self.emit(&mut bytes, alignment_bytes)?;
        Ok(bytes)
    }

    /// Writes the file, replacing one that exists.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        let alignment_bytes = self.check()?;
        let at_path = |problem| WriteError::Io { path: Some(path.to_owned()), problem };
        let mut out = BufWriter::new(File::create(path).map_err(at_path)?);
        self.emit(&mut out, alignment_bytes).map_err(|error| error.at(path))?;
        out.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all()).map_err(at_path)
    }

    /// Writes a set of shards `FOLDER/STEM-00001-of-0000N.gguf`, each with at most `tensors_per_shard` tensors, and
    /// gives their paths. The first has all metadata; all have `split.no`, `split.count` and `split.tensors.count`.
    pub fn write_shards(
        &self,
        folder: &Path,
        stem: &str,
        tensors_per_shard: usize,
    ) -> Result<Vec<PathBuf>, WriteError> {
        self.check()?;
        let groups: Vec<_> = match tensors_per_shard {
            0 => Vec::new(),
            n => self.tensors.chunks(n).collect(),
        };
        let bad_count = || WriteError::ShardCount(groups.len());
        // `split.count` is 16 bits wide.
        let count = u16::try_from(groups.len()).ok().filter(|&n| n > 0).ok_or_else(bad_count)?;
        let tensor_count = i32::try_from(self.tensors.len()).map_err(|_| bad_count())?;
        let mut paths = Vec::new();
        for (no, group) in (0u16..).zip(groups) {
            let shard = GgufWriter {
                version: self.version,
                entries: if no == 0 { self.entries.clone() } else { Vec::new() },
                tensors: group.to_vec(),
            }
            .kv(shards::NO_KEY, Value::U16(no))
            .kv(shards::COUNT_KEY, Value::U16(count))
            .kv(shards::TENSOR_COUNT_KEY, Value::I32(tensor_count));
            let path = folder.join(format!("{stem}{}", shards::suffix(no.into(), count.into())));
            shard.write(&path)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// Checks everything before the first byte is written; gives the alignment in bytes.
    fn check(&self) -> Result<u64, WriteError> {
        let alignment_bytes = header_writer::check(self.version, &self.entries, self.shapes())?;
        for Tensor { shape, bytes } in &self.tensors {
            let (found_bytes, expected_bytes) = (bytes.len() as u64, shape.len_bytes()?);
            if found_bytes != expected_bytes {
                return Err(WriteError::Length { tensor: shape.name.clone(), found_bytes, expected_bytes });
            }
        }
        Ok(alignment_bytes)
    }

    fn shapes(&self) -> impl ExactSizeIterator<Item = &TensorShape> + Clone {
        self.tensors.iter().map(|tensor| &tensor.shape)
    }

    fn emit(&self, out: &mut impl Write, alignment_bytes: u64) -> Result<(), WriteError> {
        let header = header_writer::header(self.version, &self.entries, self.shapes(), alignment_bytes)?;
        let data = self.tensors.iter().map(|tensor| &tensor.bytes);
        let put = |bytes: &Vec<u8>| {
            out.write_all(bytes)?;
            header_writer::put_padding(out, bytes.len() as u64, alignment_bytes)
        };
        [&header].into_iter().chain(data).try_for_each(put).map_err(WriteError::unnamed)
    }
}
