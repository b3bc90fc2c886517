//! Sizes and places of tensor data.

use super::super::{GgmlType, TensorInfo};
use super::{HeaderError, MAX_DIMS};

/// Dimensions that no tensor can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// None, or more than 4.
    #[error("it has {found} dimensions; a tensor has 1 to {MAX_DIMS}")]
    DimCount {
        /// How many.
        found: u32,
    },
    /// An empty direction.
    #[error("dimension {dim} of {dims:?} is 0; a dimension is at least 1")]
    ZeroDim {
        /// Which, counted from 0.
        dim: usize,
        /// All dimensions.
        dims: Vec<u64>,
    },
    /// More elements or bytes than 64 bits count.
    #[error("dimensions {dims:?} of type {ty} make more than 2^63 - 1 elements or bytes")]
    TooLarge {
        /// All dimensions.
        dims: Vec<u64>,
        /// Element type.
        ty: GgmlType,
    },
    /// A row that ends inside a block.
    #[error("a row of {row_len} elements is not a whole number of {ty} blocks of {} elements", ty.block_elems())]
    PartialBlock {
        /// Elements of a row.
        row_len: u64,
        /// Element type.
        ty: GgmlType,
    },
}

/// Length in bytes of the data of a tensor: `product(dims) / block_elems * block_len_bytes`.
pub(super) fn len_bytes(ty: GgmlType, dims: &[u64]) -> Result<u64, ShapeError> {
    let &[row_len, ..] = dims else { return Err(ShapeError::DimCount { found: 0 }) };
    if dims.len() > MAX_DIMS as usize {
        return Err(ShapeError::DimCount { found: u32::try_from(dims.len()).unwrap_or(u32::MAX) });
    }
    if let Some(dim) = dims.iter().position(|&d| d == 0) {
        return Err(ShapeError::ZeroDim { dim, dims: dims.to_vec() });
    }
    if !row_len.is_multiple_of(ty.block_elems()) {
        return Err(ShapeError::PartialBlock { row_len, ty });
    }
    let signed = |n: &u64| i64::try_from(*n).is_ok();
    let elems = dims.iter().try_fold(1u64, |product, &d| product.checked_mul(d)).filter(signed);
    elems
        .and_then(|n| (n / ty.block_elems()).checked_mul(ty.block_len_bytes()).filter(signed))
        .ok_or_else(|| ShapeError::TooLarge { dims: dims.to_vec(), ty })
}

/// A row of the tensor table before its place is checked.
pub(super) struct TableRow {
    pub name: String,
    pub ty: GgmlType,
    pub dims: Vec<u64>,
    pub len_bytes: u64,
    /// Offset in the data, as the file says.
    pub offset_bytes: u64,
}

/// Checks where tensors lie: aligned, inside the file, no two on the same bytes. Gaps are allowed.
pub(super) fn place(
    rows: Vec<TableRow>,
    data_start_bytes: u64,
    alignment_bytes: u64,
    file_len_bytes: u64,
) -> Result<Vec<TensorInfo>, HeaderError> {
    let place_one = |row: TableRow| {
        if !row.offset_bytes.is_multiple_of(alignment_bytes) {
            return Err(HeaderError::Misaligned {
                tensor: row.name,
                offset_bytes: row.offset_bytes,
                alignment_bytes,
            });
        }
        let start = data_start_bytes.checked_add(row.offset_bytes);
        let end = start.and_then(|start| start.checked_add(row.len_bytes));
        let (Some(offset_bytes), true) = (start, end.is_some_and(|end| end <= file_len_bytes)) else {
            return Err(HeaderError::OutsideFile {
                tensor: row.name,
                start_bytes: start.unwrap_or(u64::MAX),
                needed_bytes: row.len_bytes,
                len_bytes: file_len_bytes,
            });
        };
        let TableRow { name, ty, dims, len_bytes, .. } = row;
        Ok(TensorInfo { name, ty, dims, shard: 0, offset_bytes, len_bytes })
    };
    let tensors: Vec<_> = rows.into_iter().map(place_one).collect::<Result<_, _>>()?;
    check_overlap(&tensors)?;
    Ok(tensors)
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<(), HeaderError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset_bytes);
    let overlapping =
        by_offset.windows(2).find(|pair| pair[0].offset_bytes + pair[0].len_bytes > pair[1].offset_bytes);
    match overlapping {
        None => Ok(()),
        Some(pair) => Err(HeaderError::Overlap {
            first: pair[0].name.clone(),
            second: pair[1].name.clone(),
            position_bytes: pair[1].offset_bytes,
        }),
    }
}
