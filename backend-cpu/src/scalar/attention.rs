//! Queries, the KV cache and attention: one head of one row at a time.

use std::ops::Range;

use unisonic_core::numerics::attention::{self, KeyChunk, KvChunk, Q16, visible_in_chunk};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::{Merger, State};
use unisonic_core::numerics::norm::{rms_norm, rms_norm_plain};
use unisonic_core::numerics::{exact_v, rope};
use unisonic_core::plan::{Batch, BufferId, HeadNorm, KvLayerId, PAGE_TOKENS, RopeTableId};

use super::kv::{KvCache, Values};
use super::program::ScalarProgram;

/// The constants of `Op::Attention`.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    pub kappa: f32,
    pub window: Option<u32>,
    pub soft_cap: Option<f32>,
}

/// What becomes of keys and values before they are stored.
#[derive(Clone, Copy)]
pub(super) struct KvHeads {
    pub norm: Option<HeadNorm>,
    pub rope: Option<RopeTableId>,
    pub value_eps: Option<f32>,
}

impl ScalarProgram {
    /// A head of a row after its norm and RoPE, in `out`; returns whether it is in range.
    fn rotated_head(
        &self,
        head: &[f32],
        row: usize,
        norm: Option<HeadNorm>,
        table: Option<RopeTableId>,
        out: &mut [f32],
    ) -> bool {
        let in_range = match norm {
            Some(HeadNorm { weight, eps }) => rms_norm(head, self.vector(weight), eps, out),
            None => {
                out.copy_from_slice(head);
                true
            }
        };
        if let Some(table) = table {
            self.rotate(table, row, out);
        }
        in_range
    }

    /// RoPE of a head at the position of a row of the batch.
    pub(super) fn rotate(&self, table: RopeTableId, row: usize, head: &mut [f32]) {
        let (cosines, sines) = self.rope_rows.row(table, row);
        rope::rotate(self.plan.rope_tables[table.index()].style, head, cosines, sines);
    }

    /// `Op::PrepareQuery`; returns the rows that broke the range contract.
    pub(super) fn prepare_query(
        &mut self,
        q: BufferId,
        norm: Option<HeadNorm>,
        rope: Option<RopeTableId>,
        out: BufferId,
        rows: usize,
        source: &dyn Fn(usize) -> usize,
    ) -> Vec<usize> {
        let mut data = self.buffers.lend(out);
        let mut flagged = Vec::new();
        for row in 0..rows {
            let (high, low, scales) = data.planes_row_mut(row);
            let head_len = high.len() / scales.len();
            let planes = high.chunks_exact_mut(head_len).zip(low.chunks_exact_mut(head_len)).zip(scales);
            let heads = self.buffers.f32(q).row(row).chunks_exact(head_len);
            let mut rotated = vec![0.0; head_len];
            let mut in_range = true;
            for (head, ((high, low), scale)) in heads.zip(planes) {
                in_range &= self.rotated_head(head, source(row), norm, rope, &mut rotated);
                in_range &= quantize_head_16(&rotated, high, low, scale);
            }
            if !in_range {
                flagged.push(row);
            }
        }
        self.buffers.give_back(out, data);
        flagged
    }

    /// `Op::WriteKv`; returns the rows that broke the range contract.
    pub(super) fn write_kv(
        &mut self,
        k: BufferId,
        v: BufferId,
        before: KvHeads,
        layer: KvLayerId,
        batch: &Batch<'_>,
    ) -> Vec<usize> {
        let KvHeads { norm, rope, value_eps } = before;
        let mut caches = std::mem::take(&mut self.kv);
        let cache = &mut caches[layer.index()];
        let head_len = cache.head_len;
        let mut rotated = vec![0.0; head_len];
        let mut flagged = Vec::new();
        for (row, &position) in batch.positions.iter().enumerate() {
            let page = batch.page_tables[batch.sequences[row] as usize][(position / PAGE_TOKENS) as usize];
            let slot = (position % PAGE_TOKENS) as usize;
            let keys = self.buffers.f32(k).row(row).chunks_exact(head_len);
            let values = self.buffers.f32(v).row(row).chunks_exact(head_len);
            let mut in_range = true;
            for (head, (key, value)) in keys.zip(values).enumerate() {
                let at = cache.first_row(page, head) + slot;
                let slots = at * head_len..(at + 1) * head_len;
                in_range &= self.rotated_head(key, row, norm, rope, &mut rotated);
                let (high, low) = (&mut cache.key_high[slots.clone()], &mut cache.key_low[slots.clone()]);
                in_range &= quantize_head_16(&rotated, high, low, &mut cache.key_scales[at]);
                in_range &= match value_eps {
                    Some(eps) => rms_norm_plain(value, eps, &mut rotated),
                    None => {
                        rotated.copy_from_slice(value);
                        true
                    }
                };
                in_range &= match &mut cache.values {
                    Values::V8 { values, scales } => {
                        quantize_value_8(&mut rotated, &mut values[slots], &mut scales[at])
                    }
                    Values::Exact { values } => {
                        values[slots].copy_from_slice(&rotated);
                        true
                    }
                };
            }
            if !in_range {
                flagged.push(row);
            }
        }
        self.kv = caches;
        flagged
    }

    /// `Op::Attention` for row `q_row` of `q`, which is row `row` of the batch: all its heads, side by side, in `y`.
    #[allow(clippy::too_many_arguments, reason = "the fields of Op::Attention and a row")]
    pub(super) fn attend(
        &self,
        q: BufferId,
        q_row: usize,
        layer: KvLayerId,
        scores: Scores,
        batch: &Batch<'_>,
        row: usize,
        y: &mut [f32],
    ) {
        let cache = &self.kv[layer.index()];
        let head_len = cache.head_len;
        let position = batch.positions[row];
        let pages = batch.page_tables[batch.sequences[row] as usize];
        let (high, low, scales) = self.buffers.planes(q).row(q_row);
        let heads_per_kv_head = scales.len() / cache.heads;
        for (head, y) in y.chunks_exact_mut(head_len).enumerate() {
            let at = head * head_len..(head + 1) * head_len;
            let query = Q16 { high: &high[at.clone()], low: &low[at], scale: scales[head] };
            let mut merger = Merger::new();
            for chunk in 0..=position / PAGE_TOKENS {
                let visible = visible_in_chunk(position, scores.window, chunk);
                if !visible.is_empty() {
                    let first = cache.first_row(pages[chunk as usize], head / heads_per_kv_head);
                    merger.push(chunk as usize, cache.attend_chunk(&query, scores, first, visible));
                }
            }
            cache.finish(&merger.finish().expect("every query sees its own key"), y);
        }
    }
}

impl KvCache {
    /// State of the chunk whose first slot is row `first`.
    fn attend_chunk(&self, query: &Q16<'_>, scores: Scores, first: usize, visible: Range<usize>) -> State {
        let Scores { kappa, soft_cap, .. } = scores;
        let rows = first..first + PAGE_TOKENS as usize;
        let slots = rows.start * self.head_len..rows.end * self.head_len;
        let keys = KeyChunk {
            high: &self.key_high[slots.clone()],
            low: &self.key_low[slots.clone()],
            scales: &self.key_scales[rows.clone()],
        };
        match &self.values {
            Values::V8 { values, scales } => {
                let chunk = KvChunk {
                    key_high: keys.high,
                    key_low: keys.low,
                    key_scales: keys.scales,
                    value: &values[slots],
                    value_scales: &scales[rows],
                };
                attention::attend_chunk(query, kappa, soft_cap, &chunk, visible)
            }
            Values::Exact { values } => {
                exact_v::attend_chunk(query, kappa, soft_cap, &keys, &values[slots], visible)
            }
        }
    }

    fn finish(&self, state: &State, y: &mut [f32]) {
        match self.values {
            Values::V8 { .. } => attention::finish(state, y),
            Values::Exact { .. } => exact_v::finish(state, y),
        }
    }
}
