//! Kernels that compute every element of a row by itself.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V, kernel};

use super::elementary::{snap, soft_cap as soft_cap_of};
use super::{GridKernel, ROW_LANES};

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
pub fn elementwise(name: &str, width: u32, body: impl for<'k> FnOnce(&'k Build) -> Body<'k>) -> GridKernel {
    let vector = vector_len(width);
    let part_len = ROW_LANES * u32::from(vector);
    let workgroups_a_row = width.div_ceil(part_len);
    let kernel = kernel(name, ROW_LANES, |k| {
        let body = body(k);
        let (group, lane) = (k.group_id(), k.local_id());
        let column = (group % workgroups_a_row) * part_len + lane * u32::from(vector);
        let at = At { row: group / workgroups_a_row, column, vector };
        k.when(column.lt(k.u32(width)), || body(at));
    });
    GridKernel::rows(kernel, workgroups_a_row)
}

/// What an elementwise kernel does with the objects that it has declared.
pub type Body<'k> = Box<dyn FnOnce(At<'k>) + 'k>;

/// `out = a + b`. Buffers: `a`, `b`, `out`, rows of `width` f32. Reads 8 bytes an element and writes 4; one
/// operation.
pub fn add(width: u32) -> GridKernel {
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
pub fn soft_cap(width: u32, cap: f32) -> GridKernel {
    elementwise("soft_cap", width, |k| {
        let (x, out) = (k.read("x", Scalar::F32), k.write("out", Scalar::F32));
        Box::new(move |at| {
            let i = at.row * width + at.column;
            out.store(i, soft_cap_of(k, x.load_vector(i, at.vector), cap));
        })
    })
}

/// `out = snap(x*s)` (`core::numerics::activation::scaled`). Buffers: `x`, rows of `width` f32; `scale`, one value; `out`
/// like x. Reads 4 bytes an element and writes 4; two operations.
pub fn scale(width: u32) -> GridKernel {
    elementwise("scale", width, |k| {
        let (x, scale) = (k.read("x", Scalar::F32), k.read("scale", Scalar::F32));
        let out = k.write("out", Scalar::F32);
        Box::new(move |at| {
            let i = at.row * width + at.column;
            let s = scale.load(k.u32(0));
            let s = match at.vector {
                4 => k.vector([s; 4]),
                2 => k.vector([s; 2]),
                _ => s,
            };
            out.store(i, snap(k, x.load_vector(i, at.vector) * s));
        })
    })
}

/// `out[r] = x[indices[r]]`. Buffers: `x` and `out`, rows of `width` f32; `indices`, a u32 a row of `out`: the
/// row of `x`. Reads 4 bytes an element and writes 4.
pub fn select_rows(width: u32) -> GridKernel {
    elementwise("select_rows", width, |k| {
        let (x, indices) = (k.read("x", Scalar::F32), k.read("indices", Scalar::U32));
        let out = k.write("out", Scalar::F32);
        Box::new(move |at| {
            let from = indices.load(at.row) * width + at.column;
            out.store(at.row * width + at.column, x.load_vector(from, at.vector));
        })
    })
}
