//! Everything before the tensor data.

use std::collections::HashSet;
use std::io::Read;

use super::super::{GgmlType, Metadata, TensorInfo, Value};
use super::input::Input;
use super::layout::{self, ShapeError, TableRow};
use super::subject::Subject;
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT_BYTES, HeaderError, KEY_LIMIT_BYTES, MAGIC, MAX_ALIGNMENT_BYTES,
    MAX_DIMS, MAX_ENTRIES, MAX_TENSORS, MIN_ALIGNMENT_BYTES, TENSOR_NAME_LIMIT_BYTES, value,
};

/// Magic, version and the two counts.
const FIXED_BYTES: u64 = 24;
/// The least a metadata entry takes: key length, one byte of key, type, one byte of value.
const ENTRY_MIN_BYTES: u64 = 8 + 1 + 4 + 1;
/// The least a row of the tensor table takes: name length, one byte of name, dimension count, one dimension, type,
/// offset.
const TENSOR_MIN_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// The header of one GGUF file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufHeader {
    /// Version of the container, 2 or 3.
    pub version: u32,
    /// `general.alignment`, or 32.
    pub alignment_bytes: u64,
    /// Metadata in file order.
    pub metadata: Metadata,
    /// Tensors in file order, of shard 0.
    pub tensors: Vec<TensorInfo>,
    /// Where the header ends, before the padding.
    pub len_bytes: u64,
}

impl GgufHeader {
    /// Reads the header of a file of `file_len_bytes` bytes and checks it against that length. The data is not read.
    ///
    /// Memory stays within a small multiple of the header in the file, and nothing is allocated for items that the
    /// file has no bytes for.
    pub fn read(reader: impl Read, file_len_bytes: u64) -> Result<Self, HeaderError> {
        let mut input = Input::new(reader, file_len_bytes);
        let (version, tensor_count, entry_count) = read_fixed(&mut input, file_len_bytes)?;
        let metadata = read_metadata(&mut input, entry_count)?;
        let alignment_bytes = alignment(&metadata)?;
        let rows = read_table(&mut input, tensor_count)?;
        let len_bytes = input.position();
        let data_start = len_bytes.next_multiple_of(alignment_bytes);
        let tensors = layout::place(rows, data_start, alignment_bytes, file_len_bytes)?;
        Ok(GgufHeader { version, alignment_bytes, metadata, tensors, len_bytes })
    }

    /// Where the last tensor ends, or the header if there is none.
    pub fn data_end_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.offset_bytes + t.len_bytes).max().unwrap_or(self.len_bytes)
    }
}

/// Version, tensor count and entry count.
fn read_fixed(input: &mut Input<impl Read>, len_bytes: u64) -> Result<(u32, u64, u64), HeaderError> {
    if len_bytes < FIXED_BYTES {
        return Err(HeaderError::TooShort { len_bytes });
    }
    check_magic(input.array(Subject::Header)?)?;
    let version = input.u32(Subject::Header)?;
    check_version(version)?;
    let tensor_count = input.u64(Subject::Header)?;
    let entry_count = input.u64(Subject::Header)?;
    for (count, limit, item_bytes, subject) in [
        (tensor_count, MAX_TENSORS, TENSOR_MIN_BYTES, Subject::TensorCount),
        (entry_count, MAX_ENTRIES, ENTRY_MIN_BYTES, Subject::MetadataCount),
    ] {
        input.claim_items(count, item_bytes, subject)?;
        if count > limit {
            return Err(HeaderError::Limit { subject: format!("{subject}, count"), found: count, limit });
        }
    }
    Ok((version, tensor_count, entry_count))
}

fn check_magic(magic: [u8; 4]) -> Result<(), HeaderError> {
    let reversed = [magic[3], magic[2], magic[1], magic[0]];
    let hint = match &magic {
        _ if magic == MAGIC => return Ok(()),
        _ if reversed == MAGIC => return Err(HeaderError::BigEndian),
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            "it is a GGML file from before GGUF; get a GGUF file of the model"
        }
        b"vers" => "it may be a Git LFS pointer; fetch the file itself with `git lfs pull`",
        b"<!do" | b"<!DO" | b"<htm" => "it is a web page; download the file itself",
        b"PK\x03\x04" => "it is a zip archive or a PyTorch checkpoint; convert it to GGUF",
        _ => "it is another kind of file or is damaged",
    };
    Err(HeaderError::NotGguf { found: format!("`{}`", magic.escape_ascii()), hint })
}

fn check_version(version: u32) -> Result<(), HeaderError> {
    match version {
        2 | 3 => Ok(()),
        _ if (1..=3).contains(&version.swap_bytes()) => Err(HeaderError::BigEndian),
        1 => {
            let hint = "convert the original model again, or get a newer file of it";
            Err(HeaderError::Version { found: version, hint })
        }
        _ => {
            let hint = "the file is damaged, or this program is too old for it";
            Err(HeaderError::Version { found: version, hint })
        }
    }
}

fn read_metadata(input: &mut Input<impl Read>, count: u64) -> Result<Metadata, HeaderError> {
    let mut metadata = Metadata::default();
    for i in 0..count {
        let key = read_name(input, Subject::Entry(i), KEY_LIMIT_BYTES)?;
        let value = value::read(input, &key)?;
        if !metadata.insert(&key, value) {
            return Err(HeaderError::DuplicateKey { key });
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &Metadata) -> Result<u64, HeaderError> {
    let found = match metadata.get(ALIGNMENT_KEY) {
        None => return Ok(DEFAULT_ALIGNMENT_BYTES.into()),
        Some(&Value::U32(n)) if is_alignment(n) => return Ok(n.into()),
        Some(&Value::U32(n)) => n.to_string(),
        Some(other) => other.type_name().to_owned(),
    };
    Err(HeaderError::Alignment { found })
}

/// Whether a file may be aligned to this.
pub(super) fn is_alignment(n: u32) -> bool {
    n.is_power_of_two() && (MIN_ALIGNMENT_BYTES..=MAX_ALIGNMENT_BYTES).contains(&n)
}

fn read_table(input: &mut Input<impl Read>, count: u64) -> Result<Vec<TableRow>, HeaderError> {
    let mut rows = Vec::new();
    let mut names = HashSet::new();
    for i in 0..count {
        let row = read_row(input, i)?;
        if !names.insert(row.name.clone()) {
            return Err(HeaderError::DuplicateTensor { tensor: row.name });
        }
        rows.push(row);
    }
    Ok(rows)
}

fn read_row(input: &mut Input<impl Read>, i: u64) -> Result<TableRow, HeaderError> {
    let name = read_name(input, Subject::TensorEntry(i), TENSOR_NAME_LIMIT_BYTES)?;
    let subject = Subject::Tensor(&name);
    let shape = |problem| HeaderError::Shape { tensor: name.clone(), problem };
    let dim_count = input.u32(subject)?;
    if !(1..=MAX_DIMS).contains(&dim_count) {
        return Err(shape(ShapeError::DimCount { found: dim_count }));
    }
    let dims = (0..dim_count).map(|_| input.u64(subject)).collect::<Result<Vec<_>, _>>()?;
    let id = input.u32(subject)?;
    let ty =
        GgmlType::from_id(id).ok_or_else(|| HeaderError::UnknownTensorType { tensor: name.clone(), id })?;
    let offset_bytes = input.u64(subject)?;
    let len_bytes = layout::len_bytes(ty, &dims).map_err(shape)?;
    Ok(TableRow { name, ty, dims, len_bytes, offset_bytes })
}

/// A key or tensor name.
fn read_name(
    input: &mut Input<impl Read>,
    subject: Subject<'_>,
    limit_bytes: u64,
) -> Result<String, HeaderError> {
    let len = input.u64(subject)?;
    if len == 0 || len > limit_bytes {
        return Err(HeaderError::NameLength { subject: subject.to_string(), found_bytes: len, limit_bytes });
    }
    input.text(len, subject, str::to_owned)
}
