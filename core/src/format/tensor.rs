//! What a file says of one tensor.

use super::GgmlType;

/// One entry of the tensor table, checked: the dimensions are not zero, the row is whole blocks, and
/// `offset_bytes .. offset_bytes + len_bytes` lies inside the file of its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, unique over all shards, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How elements are stored.
    pub ty: GgmlType,
    /// Sizes in file order: `dims[0]` is the length of a row (the contiguous direction). 1 to 4 entries.
    pub dims: Vec<u64>,
    /// Which file of a sharded set holds the data (0 for a single file).
    pub shard: usize,
    /// Absolute position of the data in that file.
    pub offset_bytes: u64,
    /// Length of the data.
    pub len_bytes: u64,
}

impl TensorInfo {
    /// Elements of a row.
    pub fn row_len(&self) -> u64 {
        self.dims[0]
    }

    /// Number of rows: the product of all other dimensions.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }
}
