//! The header of a file that is written: checks, and the bytes.

use std::collections::HashSet;
use std::io::{self, Read, Write};

use super::super::{GgmlType, Value};
use super::writer::WriteError;
use super::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT_BYTES, KEY_LIMIT_BYTES, MAGIC, MAX_NESTING, TENSOR_NAME_LIMIT_BYTES,
    header, layout, value,
};

/// A tensor that is to be written: name, type and dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorShape {
    /// Name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How elements are stored.
    pub ty: GgmlType,
    /// Sizes in file order: `dims[0]` is the length of a row.
    pub dims: Vec<u64>,
}

impl TensorShape {
    /// Length of the data. Errors: dimensions that no tensor can have.
    pub fn len_bytes(&self) -> Result<u64, WriteError> {
        layout::len_bytes(self.ty, &self.dims)
            .map_err(|problem| WriteError::Shape { tensor: self.name.clone(), problem })
    }
}

/// Checks everything before the first byte is written; gives the alignment in bytes.
pub(super) fn check<'a>(
    version: u32,
    entries: &[(String, Value)],
    shapes: impl Iterator<Item = &'a TensorShape> + Clone,
) -> Result<u64, WriteError> {
    if !(2..=3).contains(&version) {
        return Err(WriteError::Version(version));
    }
    check_names(entries.iter().map(|(key, _)| key), KEY_LIMIT_BYTES)?;
    check_names(shapes.clone().map(|shape| &shape.name), TENSOR_NAME_LIMIT_BYTES)?;
    for (key, value) in entries {
        if !is_nested_well(value, 1) {
            return Err(WriteError::Nesting { key: key.clone() });
        }
    }
    for shape in shapes {
        shape.len_bytes()?;
    }
    match entries.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT_BYTES.into()),
        Some(&(_, Value::U32(n))) if header::is_alignment(n) => Ok(n.into()),
        Some(_) => Err(WriteError::Alignment),
    }
}

/// The bytes before the data, without padding.
pub(super) fn header<'a>(
    version: u32,
    entries: &[(String, Value)],
    shapes: impl ExactSizeIterator<Item = &'a TensorShape>,
    alignment_bytes: u64,
) -> Result<Vec<u8>, WriteError> {
    let mut header = Vec::new();
    header.extend(MAGIC);
    header.extend(version.to_le_bytes());
    header.extend((shapes.len() as u64).to_le_bytes());
    header.extend((entries.len() as u64).to_le_bytes());
    for (key, entry) in entries {
        value::put_string(&mut header, key);
        value::put(&mut header, entry);
    }
    let mut offset = 0u64;
    for shape in shapes {
        value::put_string(&mut header, &shape.name);
        header.extend((shape.dims.len() as u32).to_le_bytes());
        shape.dims.iter().for_each(|d| header.extend(d.to_le_bytes()));
        header.extend(shape.ty.id().to_le_bytes());
        header.extend(offset.to_le_bytes());
        offset = shape
            .len_bytes()?
            .checked_next_multiple_of(alignment_bytes)
            .and_then(|len_bytes| offset.checked_add(len_bytes))
            .ok_or_else(|| WriteError::TooLong { tensor: shape.name.clone() })?;
    }
    Ok(header)
}

/// Zeros that follow `len_bytes` bytes up to a multiple of the alignment, a power of two.
pub(super) fn put_padding(out: &mut impl Write, len_bytes: u64, alignment_bytes: u64) -> io::Result<()> {
    let padding_len_bytes = len_bytes.wrapping_neg() % alignment_bytes;
    io::copy(&mut io::repeat(0).take(padding_len_bytes), out).map(|_| ())
}

fn check_names<'a>(names: impl Iterator<Item = &'a String>, limit_bytes: u64) -> Result<(), WriteError> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name.len() as u64 > limit_bytes {
            return Err(WriteError::NameLength { name: name.clone(), limit_bytes });
        }
        if !seen.insert(name) {
            return Err(WriteError::Duplicate { name: name.clone() });
        }
    }
    Ok(())
}

/// Whether a value nests arrays, and only arrays, no deeper than readers go.
fn is_nested_well(value: &Value, depth: u32) -> bool {
    let Value::Arrays(arrays) = value else { return depth <= MAX_NESTING };
    depth <= MAX_NESTING && arrays.iter().all(|a| value::is_array(a) && is_nested_well(a, depth + 1))
}
