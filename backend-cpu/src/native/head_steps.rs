//! The steps that work on heads, as tasks on vectors: queries, the KV cache, attention.

use unisonic_core::numerics::range::HEAD_LIMIT;
use unisonic_core::plan::{Batch, BufferId, HeadNorm, Op, PAGE_TOKENS, RopeTableId, WeightId};

use super::attention::{Keys, MAX_HEAD_LEN, Query, Scores};
use super::buffers::Data;
use super::kv::Slot;
use super::program::State;
use crate::pool::Pool;

/// Weights of a norm without weights.
const ONES: &[f32] = &[1.0; MAX_HEAD_LEN];

impl State {
    /// RoPE of a head at the position of a row of the batch.
    pub(super) fn rotate(&self, table: RopeTableId, row: usize, head: &mut [f32]) {
        let (cosines, sines) = self.rope_rows.row(table, row);
        let style = self.plan.rope_tables[table.index()].style;
        // SAFETY: `Isa::kernels` hands out kernels of instructions that the machine has; this one asks for no more.
        unsafe { (self.kernels.rotate)(style, head, cosines, sines) };
    }

    /// RMSNorm of a head, in `out`; returns whether it is in range.
    pub(super) fn normed_head(
        &self,
        head: &[f32],
        weight: Option<WeightId>,
        eps: f32,
        out: &mut [f32],
    ) -> bool {
        // A product with 1 is exact.
        let weight = match weight {
            Some(weight) => self.vector(weight),
            None => &ONES[..head.len()],
        };
        // SAFETY: the slices are a head long, which `Plan::check` has compared, in whole vectors, which `unfit` has.
        unsafe { (self.kernels.rms_norm)(head, weight, eps, None, out) }
    }

    /// A head after its norm and RoPE, in `out`; returns whether it is in range.
    pub(super) fn rotated_head(
        &self,
        head: &[f32],
        row: usize,
        norm: Option<HeadNorm>,
        table: Option<RopeTableId>,
        out: &mut [f32],
    ) -> bool {
        let in_range = match norm {
            Some(HeadNorm { weight, eps }) => self.normed_head(head, Some(weight), eps, out),
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

    pub(super) fn prepare_query(
        &self,
        q: BufferId,
        norm: Option<HeadNorm>,
        rope: Option<RopeTableId>,
        out: BufferId,
        row: usize,
        source: usize,
    ) -> bool {
        let Data::Q16 { heads, head_len, high, low, scales } = self.buffers.get(out) else {
            panic!("the plan prepares queries into buffer {}", out.0);
        };
        let (heads, head_len) = (*heads, *head_len);
        let mut rotated = [0.0; MAX_HEAD_LEN];
        let rotated = &mut rotated[..head_len];
        let mut in_range = true;
        // SAFETY: each task has a row of its own, and the step does not write q. `unfit` has seen that heads are whole vectors,
        // and the planes have room for the head.
        unsafe {
            let row_heads = self.buffers.row(q, row).chunks_exact(head_len);
            let high = high.slice_mut(row * heads * head_len, heads * head_len);
            let low = low.slice_mut(row * heads * head_len, heads * head_len);
            let scales = scales.slice_mut(row * heads, heads);
            for (h, head) in row_heads.enumerate() {
                in_range &= self.rotated_head(head, source, norm, rope, rotated);
                let (high, low) = (high[h * head_len..].as_mut_ptr(), low[h * head_len..].as_mut_ptr());
                in_range &= (self.kernels.quantize_16)(rotated, HEAD_LIMIT, high, low, &mut scales[h]);
            }
        }
        in_range
    }

    pub(super) fn write_kv(&self, op: &Op, batch: &Batch<'_>, row: usize) -> bool {
        let Op::WriteKv { k, v, norm, rope, value_eps, layer } = *op else {
            unreachable!("called for WriteKv")
        };
        let cache = &self.kv[layer.index()];
        let head_len = cache.head_len;
        let position = batch.positions[row];
        let page = batch.page_tables[batch.sequences[row] as usize][(position / PAGE_TOKENS) as usize];
        let mut rotated = [0.0; MAX_HEAD_LEN];
        let rotated = &mut rotated[..head_len];
        let mut planes = [[0_i8; MAX_HEAD_LEN]; 3];
        let [high, low, value] = &mut planes;
        let mut in_range = true;
        // SAFETY: the step writes neither k nor v.
        let (keys, values) = unsafe { (self.buffers.row(k, row), self.buffers.row(v, row)) };
        let heads = keys.chunks_exact(head_len).zip(values.chunks_exact(head_len));
        for (head, (key, v)) in heads.enumerate() {
            let (mut key_scale, mut value_scale) = (0.0, 0.0);
            in_range &= self.rotated_head(key, row, norm, rope, rotated);
            // SAFETY: `unfit` has seen that heads are whole vectors; the planes have room for the longest.
            in_range &= unsafe {
                (self.kernels.quantize_16)(
                    rotated,
                    HEAD_LIMIT,
                    high.as_mut_ptr(),
                    low.as_mut_ptr(),
                    &mut key_scale,
                )
            };
            in_range &= match value_eps {
                Some(eps) => self.normed_head(v, None, eps, rotated),
                None => {
                    rotated.copy_from_slice(v);
                    true
                }
            };
            // SAFETY: `unfit` has seen that heads are whole vectors; the plane has room for the longest.
            in_range &=
                unsafe { (self.kernels.quantize_value_8)(rotated, value.as_mut_ptr(), &mut value_scale) };
            let slot = Slot {
                key_high: &high[..head_len],
                key_low: &low[..head_len],
                key_scale,
                value: &value[..head_len],
                value_scale,
            };
            // SAFETY: rows of a batch have slots of their own: another position, or pages of another sequence.
            unsafe { cache.write(page, head, (position % PAGE_TOKENS) as usize, &slot) };
        }
        in_range
    }

    pub(super) fn attention(&self, op: &Op, rows: usize, batch: &Batch<'_>, pool: &mut Pool) {
        let Op::Attention { q, layer, kappa, window, soft_cap, out } = *op else {
            unreachable!("called for Attention")
        };
        let Data::Q16 { heads, head_len, high, low, scales } = self.buffers.get(q) else {
            panic!("the plan attends with buffer {}", q.0);
        };
        let (heads, head_len) = (*heads, *head_len);
        let cache = &self.kv[layer.index()];
        let scores = Scores { kappa, window, soft_cap };
        pool.run(rows * heads, &|task| {
            let (row, head) = (task / heads, task % heads);
            let source = self.plan.source_row(op, batch, row);
            let keys = Keys {
                cache,
                head: head / (heads / cache.heads),
                pages: batch.page_tables[batch.sequences[source] as usize],
                position: batch.positions[source],
            };
            // SAFETY: each task has a head of its own; the step writes neither q nor the cache.
            unsafe {
                let query = Query {
                    high: high.slice(task * head_len, head_len),
                    low: low.slice(task * head_len, head_len),
                    scale: scales.slice(task, 1)[0],
                };
                let out = self.buffers.columns_mut(out, row, head * head_len, head_len);
                (self.kernels.attend)(&query, scores, &keys, out);
            }
        });
    }
}
