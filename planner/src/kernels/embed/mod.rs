//! Rows of an embedding table.
//!
//! The table is the tensor of the file as it is, seen as words: a row of it is read once a token, so nothing is
//! gained by planes, and one kernel serves a table whatever a linear layer does with the same tensor.
//! [`blocks`] takes elements of quantised blocks apart, [`source`] reads bytes of words.

mod blocks;
mod source;

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::build::{Build, Mem, V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::w16;
use unisonic_core::plan::FloatSource;

use super::elementary::{abs_bits, snap};
use super::quantizer::{Bits, Quantizer};
use super::reduce::cluster_max;
use super::{GridKernel, ROW_LANES};
use source::Bytes;

/// Which row of a table a row of the batch takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lookup {
    /// That of its token (buffer `tokens`), times a scale if any.
    Token(Option<f32>),
    /// That of its position (buffer `positions`), or this last one where the table ends before it.
    Position(u32),
}

/// `out[r]` = a row of a table of quantised blocks (`core::numerics::embedding::embed_row`).
///
/// Buffers: `table`, the tensor's bytes as u32 words; `tokens` or `positions`, a u32 a row; `out`, rows of `width` f32. An
/// invocation computes one element. Reads a row's blocks, about once, and writes 4 bytes an element; 20 to 60
/// operations.
pub fn embed_blocks(format: BlockFormat, width: u32, of: Lookup) -> GridKernel {
    let block_elems = format.elems() as u32;
    let row_len_bytes = width / block_elems * format.len_bytes() as u32;
    embed(width, of, |k, table, token, column| {
        // Past the row nothing is stored, and nothing else may be read.
        let column = column.min(k.u32(width - 1));
        let row = Bytes::of_row(table, token, row_len_bytes);
        let block = row.after((column / block_elems) * format.len_bytes() as u32);
        blocks::element(k, format, block, column % block_elems)
    })
}

/// `out[r]` = a row of a table of floats, as W16 has it
/// (`core::numerics::{w16::quantize_w16, embedding::embed_w16_row}`).
///
/// The table is not quantised beforehand: the 32 invocations of a block find its step and round with it.
/// Buffers, bytes and operations as for [`embed_blocks`].
pub fn embed_floats(source: FloatSource, width: u32, of: Lookup) -> GridKernel {
    let row_len_bytes = width * source.len_bytes() as u32;
    embed(width, of, |k, table, token, column| {
        // Past the row are zeros, which change no maximum.
        let [x] = k.choose(
            column.lt(k.u32(width)),
            || [float(source, Bytes::of_row(table, token, row_len_bytes), column)],
            || [k.f32(0.0)],
        );
        let amax = cluster_max(abs_bits(x), w16::BLOCK as u32).cast(Scalar::F32);
        // The loader refuses values from 2^25 on.
        let quantizer = Quantizer::new(k, Bits::Sixteen, amax, pow2(25));
        snap(k, quantizer.integers(k, x).to_f32() * quantizer.scale)
    })
}

/// Element `column` of a row of floats.
fn float<'k>(source: FloatSource, row: Bytes<'k>, column: V<'k>) -> V<'k> {
    match source {
        FloatSource::F32 => row.word(column * 4).cast(Scalar::F32),
        FloatSource::F16 => row.half(column * 2).half(0),
        FloatSource::BF16 => (row.half(column * 2) << 16).cast(Scalar::F32),
    }
}

/// A kernel whose invocations have an element each. `element` is reached by the whole workgroup, with columns
/// past the row too.
fn embed(
    width: u32,
    of: Lookup,
    element: impl for<'k> FnOnce(&'k Build, Mem<'k>, V<'k>, V<'k>) -> V<'k>,
) -> GridKernel {
    let workgroups_a_row = width.div_ceil(ROW_LANES);
    let kernel: Kernel = kernel("embed", ROW_LANES, |k| {
        let indices = match of {
            Lookup::Token(_) => "tokens",
            Lookup::Position(_) => "positions",
        };
        let (table, indices) = (k.read("table", Scalar::U32), k.read(indices, Scalar::U32));
        let out = k.write("out", Scalar::F32);
        let group = k.group_id();
        let (row, column) = (group / workgroups_a_row, (group % workgroups_a_row) * ROW_LANES + k.local_id());
        let index = indices.load(row);
        let value = match of {
            Lookup::Token(Some(scale)) => element(k, table, index, column) * k.f32(scale),
            Lookup::Token(None) => element(k, table, index, column),
            Lookup::Position(last) => element(k, table, index.min(k.u32(last)), column),
        };
        k.when(column.lt(k.u32(width)), || out.store(row * width + column, value));
    });
    GridKernel::rows(kernel, workgroups_a_row)
}
