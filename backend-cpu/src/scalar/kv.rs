//! The KV cache of one layer: pages of 64 slots a head, in the order the attention reads them.

use unisonic_core::plan::{DeviceError, KvLayer, Limits, PAGE_TOKENS};

use super::Arithmetic;
use crate::memory::allocate;

const SLOTS: usize = PAGE_TOKENS as usize;

/// Keys as K16; values as V8, or as f32 in the exact-v diagnostic. Slot `s` of head `h` in page `p` is row
/// `(p * heads + h) * 64 + s` of every array.
#[derive(Debug)]
pub(super) struct KvCache {
    pub heads: usize,
    pub head_len: usize,
    pub key_high: Vec<i8>,
    pub key_low: Vec<i8>,
    pub key_scales: Vec<f32>,
    pub values: Values,
}

#[derive(Debug)]
pub(super) enum Values {
    V8 { values: Vec<i8>, scales: Vec<f32> },
    Exact { values: Vec<f32> },
}

impl KvCache {
    pub(super) fn allocate(
        layer: KvLayer,
        arithmetic: Arithmetic,
        limits: Limits,
    ) -> Result<Self, DeviceError> {
        let (heads, head_len) = (layer.heads as usize, layer.head_len as usize);
        let rows = (limits.kv_pages as usize).saturating_mul(heads).saturating_mul(SLOTS);
        let what = "the KV cache";
        let values = match arithmetic {
            Arithmetic::U1 => {
                Values::V8 { values: allocate(what, rows, head_len)?, scales: allocate(what, rows, 1)? }
            }
            Arithmetic::ExactV => Values::Exact { values: allocate(what, rows, head_len)? },
        };
        Ok(Self {
            heads,
            head_len,
            key_high: allocate(what, rows, head_len)?,
            key_low: allocate(what, rows, head_len)?,
            key_scales: allocate(what, rows, 1)?,
            values,
        })
    }

    /// Copies all heads of a page to another.
    pub(super) fn copy_page(&mut self, from: u32, to: u32) {
        let rows = self.heads * SLOTS;
        let (from, to) = (self.first_row(from, 0), self.first_row(to, 0));
        let planes = |width: usize| (from * width..(from + rows) * width, to * width);
        let (heads, scales) = (planes(self.head_len), planes(1));
        self.key_high.copy_within(heads.0.clone(), heads.1);
        self.key_low.copy_within(heads.0.clone(), heads.1);
        self.key_scales.copy_within(scales.0.clone(), scales.1);
        match &mut self.values {
            Values::V8 { values, scales: value_scales } => {
                values.copy_within(heads.0, heads.1);
                value_scales.copy_within(scales.0, scales.1);
            }
            Values::Exact { values } => values.copy_within(heads.0, heads.1),
        }
    }

    /// Appends a page in the layout of [`KvLayer`]; false, and nothing, if its values are not V8.
    pub(super) fn read_page(&self, page: u32, to: &mut Vec<u8>) -> bool {
        let Values::V8 { values, scales } = &self.values else { return false };
        for head in 0..self.heads {
            let row = self.first_row(page, head);
            let (plane, rows) = (row * self.head_len..(row + SLOTS) * self.head_len, row..row + SLOTS);
            let bytes = |values: &[i8]| values.iter().map(|&value| value as u8).collect::<Vec<_>>();
            let floats = |scales: &[f32]| scales.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>();
            to.extend(bytes(&self.key_high[plane.clone()]));
            to.extend(bytes(&self.key_low[plane.clone()]));
            to.extend(floats(&self.key_scales[rows.clone()]));
            to.extend(bytes(&values[plane]));
            to.extend(floats(&scales[rows]));
        }
        true
    }

    /// Replaces a page by bytes in the layout of [`KvLayer`], as many as a page has; false, and nothing has
    /// changed, if its values are not V8.
    pub(super) fn write_page(&mut self, page: u32, from: &[u8]) -> bool {
        let first = self.first_row(page, 0);
        let Values::V8 { values, scales } = &mut self.values else { return false };
        let (plane, scales_len) = (SLOTS * self.head_len, SLOTS * size_of::<f32>());
        for (head, from) in from.chunks_exact(3 * plane + 2 * scales_len).enumerate() {
            let row = first + head * SLOTS;
            let (at, rows) = (row * self.head_len..(row + SLOTS) * self.head_len, row..row + SLOTS);
            let (high, rest) = from.split_at(plane);
            let (low, rest) = rest.split_at(plane);
            let (key_scales, rest) = rest.split_at(scales_len);
            let (value, value_scales) = rest.split_at(plane);
            let put = |to: &mut [i8], from: &[u8]| {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = from as i8);
            };
            let put_floats = |to: &mut [f32], from: &[u8]| {
                to.iter_mut().zip(from.as_chunks().0).for_each(|(to, &from)| *to = f32::from_le_bytes(from));
            };
            put(&mut self.key_high[at.clone()], high);
            put(&mut self.key_low[at.clone()], low);
            put_floats(&mut self.key_scales[rows.clone()], key_scales);
            put(&mut values[at], value);
            put_floats(&mut scales[rows], value_scales);
        }
        true
    }

    /// Row of the first slot of a head in a page.
    pub(super) fn first_row(&self, page: u32, head: usize) -> usize {
        (page as usize * self.heads + head) * SLOTS
    }
}
