//! Kernel templates: what a GPU runs for each step, written once with `core::kir::build`.
//!
//! A template is a function from the constants of a step to a kernel, with its grid ([`GridKernel`]). What it
//! computes is defined by a function of `core::numerics`, and tests compare the two bit for bit: [`samples`]
//! has launches of every template with what they have to write. Start reading at [`rms_norm()`];
//! [`elementary`] has the functions that all of them use, [`reduce`] the one order of float sums.

mod a16;
pub(crate) mod argmax;
mod attention;
pub mod elementary;
mod embed;
mod experts;
mod fit;
mod found_flags;
mod grid;
mod head_steps;
mod heads;
mod kv;
mod layer_norm;
pub mod linear;
pub mod of_plan;
mod quantize;
mod quantizer;
pub mod reduce;
mod rms_norm;
mod rowwise;
pub mod samples;

pub use a16::A16Form;
pub use argmax::{argmax_join, argmax_parts};
pub use attention::{
    Attention, DecodeShape, MergeShape, MergedRows, PrefillShape, attention_decode, attention_merge,
    attention_prefill,
};
pub use embed::{Lookup, embed_blocks, embed_floats};
pub use experts::{Route, add_shared, route, sum_experts};
pub(crate) use fit::misfit;
pub use found_flags::found_flags;
pub use grid::{Grid, GridKernel};
pub use head_steps::{HeadNorm, HeadShape, PrepareQuery, WriteKv, head_norm, prepare_query, rope, write_kv};
pub use heads::Rope;
pub use kv::KvLayout;
pub use layer_norm::{LayerNorm, layer_norm};
pub use quantize::{Gate, Outputs, SuperblockShape, gate, gelu, quantize_a16};
pub use rms_norm::{RmsNorm, rms_norm};
pub use rowwise::{add, scale, select_rows, soft_cap};

/// Invocations of a workgroup of a kernel that works on rows: the virtual lanes of
/// [`unisonic_core::numerics::float::tree256`].
pub const ROW_LANES: u32 = 256;

#[cfg(test)]
mod tests;
