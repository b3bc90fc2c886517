//! A model on disk: one file, or all shards of a set.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::{Metadata, TensorInfo};
use super::{FormatError, GgufHeader, HeaderError, MAGIC, shards};
use crate::plan::{ReadError, WeightSource, zeroed_bytes};

/// An open GGUF file or sharded set. Its header is in memory and checked; tensor data is read when asked for.
///
/// Data is read by position and never mapped, so a file that becomes shorter while it is open is an error and not a
/// signal.
#[derive(Debug)]
pub struct GgufFile {
    shards: Vec<Shard>,
    version: u32,
    alignment_bytes: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl GgufFile {
    /// Opens a file. If it is a shard, whichever, all others are opened too; they lie beside it under the names that
    /// `llama-gguf-split` gives (`NAME-00001-of-00003.gguf`).
    ///
    /// Reads headers only. Errors name the file and, where one is at fault, the key or tensor.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let (shards, headers): (Vec<_>, Vec<_>) = shards::open_set(Shard::open(path)?)?
            .into_iter()
            .map(|opened| (opened.shard, opened.header))
            .unzip();
        let mut tensors = Vec::new();
        let mut of_first = None;
        for (shard, header) in headers.into_iter().enumerate() {
            tensors.extend(header.tensors.into_iter().map(|tensor| TensorInfo { shard, ..tensor }));
            of_first.get_or_insert((header.version, header.alignment_bytes, header.metadata));
        }
        let (version, alignment_bytes, metadata) = of_first.expect("a set has at least one shard");
        let index = tensors.iter().enumerate().map(|(i, t): (_, &TensorInfo)| (t.name.clone(), i)).collect();
        Ok(GgufFile { shards, version, alignment_bytes, metadata, tensors, index })
    }

    /// Metadata in file order; of a set, that of the first shard (the others only repeat `split.*`).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors in file order, shard by shard.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// Version of the container, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensor data is aligned to in the (first) file.
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Length of all files together when they were opened.
    pub fn len_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.len_bytes).sum()
    }

    /// The files, in the order of [`TensorInfo::shard`].
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path.as_path())
    }

    /// The open files with their paths, in the order of [`TensorInfo::shard`].
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Path, &File)> {
        self.shards.iter().map(|shard| (shard.path.as_path(), &shard.file))
    }

    /// The bytes of a tensor of this file, as it stores them.
    ///
    /// Errors: the tensor is of another file, the file has become shorter, the device fails, memory does not suffice.
    pub fn read_tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>, FormatError> {
        let shard = self.shard_of(tensor)?;
        // Before memory is taken for bytes that are gone.
        shard.check_len(tensor)?;
        let no_memory = || shard.failed(tensor, Error::new(ErrorKind::OutOfMemory, "not enough memory"));
        let mut bytes = zeroed_bytes(tensor.len_bytes).ok_or_else(no_memory)?;
        shard.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The shard that a tensor of this file lies in.
    fn shard_of(&self, tensor: &TensorInfo) -> Result<&Shard, FormatError> {
        match (self.shards.get(tensor.shard), self.tensor(&tensor.name)) {
            (Some(shard), Some(own)) if own == tensor => Ok(shard),
            _ => Err(FormatError::ForeignTensor {
                path: self.shards.first().map(|shard| shard.path.clone()).unwrap_or_default(),
                tensor: tensor.name.clone(),
            }),
        }
    }

    fn named(&self, tensor: &str) -> Result<&TensorInfo, ReadError> {
        self.tensor(tensor).ok_or_else(|| ReadError {
            tensor: tensor.to_owned(),
            reason: "the file has no tensor of this name".to_owned(),
        })
    }
}

impl WeightSource for GgufFile {
    fn len_bytes(&self, tensor: &str) -> Result<u64, ReadError> {
        Ok(self.named(tensor)?.len_bytes)
    }

    fn read_at(&self, tensor: &str, offset_bytes: u64, to: &mut [u8]) -> Result<(), ReadError> {
        let info = self.named(tensor)?;
        let read = self.shard_of(info).and_then(|shard| shard.read(info, offset_bytes, to));
        read.map_err(|error| ReadError { tensor: tensor.to_owned(), reason: error.to_string() })
    }

    fn read(&self, tensor: &str) -> Result<Vec<u8>, ReadError> {
        let read = self.read_tensor(self.named(tensor)?);
        read.map_err(|error| ReadError { tensor: tensor.to_owned(), reason: error.to_string() })
    }
}

/// A file of which the header was read.
pub(super) struct Opened {
    pub shard: Shard,
    pub header: GgufHeader,
}

/// One open file.
#[derive(Debug)]
pub(super) struct Shard {
    pub path: PathBuf,
    file: File,
    len_bytes: u64,
}

impl Shard {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Opened, FormatError> {
        let cannot_open = |problem| FormatError::Open { path: path.to_owned(), problem };
        // Before it is opened: to open a pipe waits for whoever writes to it.
        if !std::fs::metadata(path).map_err(cannot_open)?.is_file() {
            return Err(FormatError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(cannot_open)?;
        let len_bytes = file.metadata().map_err(cannot_open)?.len();
        let shard = Shard { path: path.to_owned(), file, len_bytes };
        let header = GgufHeader::read(&shard.file, len_bytes)
            .and_then(|header| shard.check_tail(&header).map(|()| header))
            .map_err(|problem| FormatError::Header { path: path.to_owned(), problem })?;
        Ok(Opened { shard, header })
    }

    /// Finds files that were glued together with `cat`: the second starts where the first ends.
    fn check_tail(&self, header: &GgufHeader) -> Result<(), HeaderError> {
        let end = header.data_end_bytes();
        for position_bytes in [end, end.next_multiple_of(header.alignment_bytes)] {
            let mut magic = [0; MAGIC.len()];
            // Where so many bytes do not follow, no file does.
            if self.file.read_exact_at(&mut magic, position_bytes).is_ok() && magic == MAGIC {
                return Err(HeaderError::Concatenated { position_bytes });
            }
        }
        Ok(())
    }

    fn failed(&self, tensor: &TensorInfo, problem: Error) -> FormatError {
        FormatError::ReadTensor {
            path: self.path.clone(),
            tensor: tensor.name.clone(),
            len_bytes: tensor.len_bytes,
            problem,
        }
    }

    /// Whether the file still reaches to the end of a tensor.
    fn check_len(&self, tensor: &TensorInfo) -> Result<(), FormatError> {
        let len_bytes = self.file.metadata().map_err(|e| self.failed(tensor, e))?.len();
        let end_bytes = tensor.offset_bytes + tensor.len_bytes;
        if len_bytes < end_bytes {
            return Err(FormatError::Shrunk {
                path: self.path.clone(),
                tensor: tensor.name.clone(),
                end_bytes,
                len_bytes,
            });
        }
        Ok(())
    }

    /// Fills `to` with the bytes of a tensor from `offset_bytes` of it on.
    fn read(&self, tensor: &TensorInfo, offset_bytes: u64, to: &mut [u8]) -> Result<(), FormatError> {
        let outside = || Error::new(ErrorKind::InvalidInput, "more bytes were asked for than it has");
        let end = offset_bytes.checked_add(to.len() as u64).filter(|&end| end <= tensor.len_bytes);
        end.ok_or_else(|| self.failed(tensor, outside()))?;
        match self.file.read_exact_at(to, tensor.offset_bytes + offset_bytes) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                self.check_len(tensor)?;
                Err(self.failed(tensor, e))
            }
            Err(e) => Err(self.failed(tensor, e)),
        }
    }
}
