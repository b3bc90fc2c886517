//! Attention (docs/numerics.md "KV cache and attention"): Q16 queries over the paged cache of
//! [`super::KvLayout`].
//!
//! Rows of any sequences, few at a time: [`attention_decode`] makes a state of every group of 16 chunks that
//! a row sees, and [`attention_merge`] joins them. A workgroup of the former has the query heads of a KV head
//! and reads the keys and values of its group once; a cluster of 32 invocations in it has a chunk, so that
//! all but the last step needs no barrier. [`chunk`] is the arithmetic inside a chunk, [`state`] the merging
//! of states.
//!
//! Many rows of a sequence: [`attention_prefill`], with matrix products.

mod chunk;
mod decode;
mod fragments;
mod merge;
mod prefill;
mod state;

pub use decode::{DecodeShape, attention_decode};
pub use merge::{MergeShape, MergedRows, attention_merge};
pub use prefill::{PrefillShape, attention_prefill};

use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::numerics::merge::GROUP_CHUNKS;

use super::elementary::not;
use super::kv::{KEYS, KvLayout};

/// The constants of an attention step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The cache.
    pub layout: KvLayout,
    /// Query heads, a multiple of the KV heads. Query head h reads KV head `h / (heads / layout.heads)`.
    pub heads: u32,
    /// What scores are multiplied by.
    pub kappa: f32,
    /// Key j is visible to query i iff `j <= i` and, with a window, `i - j < window`.
    pub window: Option<u32>,
    /// Soft cap of the scores.
    pub soft_cap: Option<f32>,
}

impl Attention {
    /// Query heads of a KV head.
    fn heads_a_kv_head(self) -> u32 {
        self.heads / self.layout.heads
    }
}

/// Chunks of a group.
const GROUP: u32 = GROUP_CHUNKS as u32;

/// The positions that a query sees.
#[derive(Clone, Copy)]
struct Seen<'k> {
    start: V<'k>,
    end: V<'k>,
}

impl<'k> Seen<'k> {
    /// Of the query at `position`.
    fn new(k: &'k Build, position: V<'k>, window: Option<u32>) -> Self {
        let end = position + 1;
        let start = match window {
            Some(window) => end - end.min(k.u32(window)),
            None => k.u32(0),
        };
        Self { start, end }
    }

    /// The first chunk with a visible key.
    fn first_chunk(self) -> V<'k> {
        self.start / KEYS
    }

    /// The chunk after the last one with a visible key.
    fn end_chunk(self) -> V<'k> {
        (self.end - 1) / KEYS + 1
    }

    /// Whether a key is visible.
    fn holds(self, position: V<'k>) -> V<'k> {
        position.lt(self.end) & not(position.lt(self.start))
    }
}

/// States of groups in memory: `maxima` (M, i32) and `sums` (L, f32), `[row][head][group]`, and `outputs` (O,
/// f32), `[row][head][group][head_len]`. Groups that a row does not see have undefined states.
#[derive(Clone, Copy)]
struct States<'k> {
    maxima: Mem<'k>,
    sums: Mem<'k>,
    outputs: Mem<'k>,
    head_len: u32,
    /// Groups that have a place.
    groups: V<'k>,
}

#[cfg(test)]
mod tests;
