//! Kernels that compute every element of a row by itself, and the grid of kernels over rows.

use unisonic_core::kir::build::{Build, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};

use super::ROW_LANES;
use super::elementary::soft_cap as soft_cap_of;

/// A kernel over the rows of a batch. Row r is computed by the workgroups `r*groups_a_row .. (r +
/// 1)*groups_a_row`, so a launch of `rows*groups_a_row` workgroups computes the first rows of its buffers.
#[derive(Clone, Debug)]
pub struct RowKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Workgroups of a row.
    pub groups_a_row: u32,
    /// Words of a row in the buffer `flags`, each 1 where its part of the row is out of range, else 0; 0 if
    /// there is no such buffer.
    pub flags_a_row: u32,
}

impl RowKernel {
    /// With a buffer `flags` of so many words a row.
    pub(super) fn with_flags(self, flags_a_row: u32) -> Self {
        Self { flags_a_row, ..self }
    }
}

/// Elements of the longest vector in which rows of `width` lie next to each other.
pub fn vector_len(width: u32) -> u8 {
    if width.is_multiple_of(4) {
        4
    } else if width.is_multiple_of(2) {
        2
    } else {
        1
    }
}

/// Where an invocation is in a row: its vector begins at `column` of row `row`.
#[derive(Clone, Copy)]
pub struct At<'k> {
    /// Row of the batch.
    pub row: V<'k>,
    /// First element of the vector.
    pub column: V<'k>,
    /// Elements of the vector.
    pub vector: u8,
}

/// A kernel whose invocations have a vector of a row each; `body` runs where the vector lies in the row.
pub fn elementwise(name: &str, width: u32, body: impl for<'k> FnOnce(&'k Build) -> Body<'k>) -> RowKernel {
    let vector = vector_len(width);
    let part_len = ROW_LANES * u32::from(vector);
    let groups_a_row = width.div_ceil(part_len);
    let kernel = kernel(name, ROW_LANES, |k| {
        let body = body(k);
        let (group, lane) = (k.group_id(), k.local_id());
        let column = (group % groups_a_row) * part_len + lane * u32::from(vector);
        let at = At { row: group / groups_a_row, column, vector };
        k.when(column.lt(k.u32(width)), || body(at));
    });
    RowKernel { kernel, groups_a_row, flags_a_row: 0 }
}

/// What an elementwise kernel does with the objects that it has declared.
pub type Body<'k> = Box<dyn FnOnce(At<'k>) + 'k>;

/// `out = a + b`. Buffers: `a`, `b`, `out`, rows of `width` f32. Reads 8 bytes an element and writes 4; one
/// operation.
pub fn add(width: u32) -> RowKernel {
    elementwise("add", width, |k| {
        let (a, b) = (k.read("a", Scalar::F32), k.read("b", Scalar::F32));
        let out = k.write("out", Scalar::F32);
        Box::new(move |at| {
            let i = at.row * width + at.column;
            out.store(i, a.load_vector(i, at.vector) + b.load_vector(i, at.vector));
        })
    })
}

/// `out = cap*tanh(x/cap)` (`core::numerics::activation::soft_cap`). Buffers: `x`, `out`, rows of `width` f32.
/// Reads 4 bytes an element and writes 4; about 40 operations.
pub fn soft_cap(width: u32, cap: f32) -> RowKernel {
    elementwise("soft_cap", width, |k| {
        let (x, out) = (k.read("x", Scalar::F32), k.write("out", Scalar::F32));
        Box::new(move |at| {
            let i = at.row * width + at.column;
            out.store(i, soft_cap_of(k, x.load_vector(i, at.vector), cap));
        })
    })
}

/// `out[r] = x[indices[r]]`. Buffers: `x` and `out`, rows of `width` f32; `indices`, a u32 a row of `out`: the
/// row of `x`. Reads 4 bytes an element and writes 4.
pub fn select_rows(width: u32) -> RowKernel {
    elementwise("select_rows", width, |k| {
        let (x, indices) = (k.read("x", Scalar::F32), k.read("indices", Scalar::U32));
        let out = k.write("out", Scalar::F32);
        Box::new(move |at| {
            let from = indices.load(at.row) * width + at.column;
            out.store(at.row * width + at.column, x.load_vector(from, at.vector));
        })
    })
}
