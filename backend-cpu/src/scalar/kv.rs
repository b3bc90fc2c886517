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

    /// Row of the first slot of a head in a page.
    pub(super) fn first_row(&self, page: u32, head: usize) -> usize {
        (page as usize * self.heads + head) * SLOTS
    }
}
