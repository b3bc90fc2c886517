//! The KV cache of a layer as the attention kernel reads it: a block of 64 keys and values for each page and
//! head.
//!
//! | part of a block | bytes | content |
//! |---|---|---|
//! | key high | 64·hd | for each 16 keys, for each 4 dimensions: 4 bytes of each key, biased by 128 |
//! | key low | 64·hd | the same, biased by 64 |
//! | values | 64·hd | for each pair of keys, for each 16 dimensions: the two bytes of each dimension |
//! | key scales | 256 | 64 f32 |
//! | value scales | 256 | 64 f32 |

use unisonic_core::plan::{DeviceError, KvLayer, Limits, PAGE_TOKENS};

use crate::memory::Lines;
use crate::simd::LANES;

/// Keys of a block.
pub const KEYS: usize = PAGE_TOKENS as usize;

/// What is added to the low plane of a key: its values are -64 to 63.
pub const LOW_BIAS: i32 = 64;

/// A layer's cache.
pub struct KvCache {
    /// KV heads.
    pub heads: usize,
    /// Values a head.
    pub head_len: usize,
    lines: Lines,
}

/// Byte offsets of the parts of a block.
#[derive(Clone, Copy)]
pub struct Parts {
    /// Values of a head.
    pub head_len: usize,
}

impl Parts {
    /// Of the low plane.
    pub fn key_low(self) -> usize {
        KEYS * self.head_len
    }
    /// Of the values.
    pub fn values(self) -> usize {
        2 * KEYS * self.head_len
    }
    /// Of the key scales.
    pub fn key_scales(self) -> usize {
        3 * KEYS * self.head_len
    }
    /// Of the value scales.
    pub fn value_scales(self) -> usize {
        self.key_scales() + 4 * KEYS
    }
    /// Of the end.
    pub fn len_bytes(self) -> usize {
        self.value_scales() + 4 * KEYS
    }
    /// Byte of a key's dimension in its plane.
    fn key(self, slot: usize, d: usize) -> usize {
        let vector = slot / LANES * (self.head_len / 4) + d / 4;
        64 * vector + 4 * (slot % LANES) + d % 4
    }
    /// Byte of a value's dimension.
    fn value(self, slot: usize, d: usize) -> usize {
        let vector = slot / 2 * (self.head_len / LANES) + d / LANES;
        32 * vector + 2 * (d % LANES) + slot % 2
    }
}

/// A quantised key and value.
pub struct Slot<'a> {
    /// K16 planes.
    pub key_high: &'a [i8],
    /// K16 planes.
    pub key_low: &'a [i8],
    /// K16 scale.
    pub key_scale: f32,
    /// V8 plane.
    pub value: &'a [i8],
    /// V8 scale.
    pub value_scale: f32,
}

impl KvCache {
    /// A cache of `limits.kv_pages` pages.
    pub fn allocate(layer: KvLayer, limits: Limits) -> Result<Self, DeviceError> {
        let (heads, head_len) = (layer.heads as usize, layer.head_len as usize);
        let blocks = (limits.kv_pages as usize).saturating_mul(heads);
        let len_bytes = blocks.saturating_mul(Parts { head_len }.len_bytes());
        Ok(Self { heads, head_len, lines: Lines::zeroed("the KV cache", len_bytes)? })
    }

    /// Puts a byte everywhere.
    #[cfg(test)]
    pub fn fill(&mut self, byte: u8) {
        self.lines.bytes_mut().fill(byte);
    }

    fn block_range(&self, page: u32, head: usize) -> std::ops::Range<usize> {
        let len = Parts { head_len: self.head_len }.len_bytes();
        let block = page as usize * self.heads + head;
        block * len..(block + 1) * len
    }

    /// Copies the blocks of all heads of a page to another.
    pub fn copy_page(&mut self, from: u32, to: u32) {
        for head in 0..self.heads {
            let (from, to) = (self.block_range(from, head), self.block_range(to, head));
            self.lines.bytes_mut().copy_within(from, to.start);
        }
    }

    /// Appends a page in the layout of [`KvLayer`].
    pub fn read_page(&mut self, page: u32, to: &mut Vec<u8>) {
        let parts = Parts { head_len: self.head_len };
        let places = || (0..KEYS).flat_map(|slot| (0..self.head_len).map(move |d| (slot, d)));
        for head in 0..self.heads {
            let range = self.block_range(page, head);
            let block = &self.lines.bytes_mut()[range];
            to.extend(places().map(|(slot, d)| block[parts.key(slot, d)] ^ 0x80));
            let low = |byte: u8| (i32::from(byte) - LOW_BIAS) as u8;
            to.extend(places().map(|(slot, d)| low(block[parts.key_low() + parts.key(slot, d)])));
            to.extend_from_slice(&block[parts.key_scales()..parts.value_scales()]);
            to.extend(places().map(|(slot, d)| block[parts.values() + parts.value(slot, d)]));
            to.extend_from_slice(&block[parts.value_scales()..parts.len_bytes()]);
        }
    }

    /// Replaces a page by bytes in the layout of [`KvLayer`].
    ///
    /// # Panics
    /// If they are not as many as a page has.
    pub fn write_page(&mut self, page: u32, from: &[u8]) {
        let parts = Parts { head_len: self.head_len };
        let (plane, scales) = (KEYS * self.head_len, 4 * KEYS);
        assert_eq!(from.len(), self.heads * (3 * plane + 2 * scales));
        for (head, from) in from.chunks_exact(3 * plane + 2 * scales).enumerate() {
            let range = self.block_range(page, head);
            let block = &mut self.lines.bytes_mut()[range];
            let (high, rest) = from.split_at(plane);
            let (low, rest) = rest.split_at(plane);
            let (key_scales, rest) = rest.split_at(scales);
            let (values, value_scales) = rest.split_at(plane);
            for slot in 0..KEYS {
                for d in 0..self.head_len {
                    let at = slot * self.head_len + d;
                    block[parts.key(slot, d)] = high[at] ^ 0x80;
                    block[parts.key_low() + parts.key(slot, d)] = (i32::from(low[at] as i8) + LOW_BIAS) as u8;
                    block[parts.values() + parts.value(slot, d)] = values[at];
                }
            }
            block[parts.key_scales()..parts.value_scales()].copy_from_slice(key_scales);
            block[parts.value_scales()..parts.len_bytes()].copy_from_slice(value_scales);
        }
    }

    /// The block of a page and head.
    ///
    /// # Safety
    /// No thread writes a slot of it meanwhile.
    pub unsafe fn block(&self, page: u32, head: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { self.lines.bytes(self.block_range(page, head)) }
    }

    /// Writes one slot of a block.
    ///
    /// # Safety
    /// No other thread uses this slot meanwhile.
    ///
    /// # Panics
    /// If the cache has no such block or slot, or the parts are not a head long.
    pub unsafe fn write(&self, page: u32, head: usize, slot: usize, from: &Slot<'_>) {
        let parts = Parts { head_len: self.head_len };
        let range = self.block_range(page, head);
        assert!(
            slot < KEYS && [from.key_high, from.key_low, from.value].iter().all(|x| x.len() == self.head_len)
        );
        // SAFETY: the range is inside the memory (`as_ptr` checks), every offset of `Parts` for a slot below
        // KEYS is inside a block, and the bytes of a slot belong to the caller.
        unsafe {
            let block = self.lines.as_ptr(range);
            for d in 0..self.head_len {
                let key = parts.key(slot, d);
                *block.add(key) = (from.key_high[d] as u8) ^ 0x80;
                *block.add(parts.key_low() + key) = (i32::from(from.key_low[d]) + LOW_BIAS) as u8;
                *block.add(parts.values() + parts.value(slot, d)) = from.value[d] as u8;
            }
            block.add(parts.key_scales()).cast::<f32>().add(slot).write_unaligned(from.key_scale);
            block.add(parts.value_scales()).cast::<f32>().add(slot).write_unaligned(from.value_scale);
        }
    }
}
