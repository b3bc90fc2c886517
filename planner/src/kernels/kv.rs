//! The KV cache of a layer as attention kernels read it.
//!
//! A cache is an array of words, seen as `i8x4`: a *block* for each page of 64 tokens (a chunk of
//! docs/numerics.md) and KV head, block `page*heads + head`. With hd the length of a head, *slot* j a position
//! in the page and d a dimension:
//!
//! | part of a block | words | element | word |
//! |---|---|---|---|
//! | key high | 16·hd | K16 plane kh of slot j, d = 16e + 4t + byte | `(64e + j)*4 + t` |
//! | key low | 16·hd | K16 plane kl | the same |
//! | values | 16·hd | V8 plane vq of slot j = 4q + i, d = 4e + byte | `(q*(hd/4) + e)*4 + i` |
//! | key scales | 64 | sk, f32 | `j` |
//! | value scales | 64 | sv, f32 | `j` |
//!
//! So an invocation that has a key loads 16 dimensions of it with 16 bytes, and its neighbours the next keys;
//! one that has four dimensions loads four keys' values with 16 bytes, and its neighbours the next dimensions.
//! A token has whole words of its own: nothing is read back when one is written, and rows of a batch never
//! touch each other's words. What was never written is never made a float of.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, Mem, V};
use unisonic_core::plan::PAGE_TOKENS;

/// Keys of a block.
pub const KEYS: u32 = PAGE_TOKENS;

/// Where everything of a cache lies, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvLayout {
    /// KV heads.
    pub heads: u32,
    /// Values a head, a multiple of 16.
    pub head_len: u32,
}

impl KvLayout {
    /// Words of a plane of a block.
    pub fn plane_len(self) -> u32 {
        KEYS / 4 * self.head_len
    }

    /// Words of a block.
    pub fn block_len(self) -> u32 {
        3 * self.plane_len() + 2 * KEYS
    }

    /// Words of a page.
    pub fn page_len(self) -> u64 {
        u64::from(self.heads) * u64::from(self.block_len())
    }

    /// First word of the block of a page and head.
    pub fn block<'k>(self, page: V<'k>, head: V<'k>) -> V<'k> {
        (page * self.heads + head) * self.block_len()
    }

    /// First word of the low plane of the keys, from that of the block.
    pub fn key_low(self) -> u32 {
        self.plane_len()
    }

    /// First word of the values.
    pub fn values(self) -> u32 {
        2 * self.plane_len()
    }

    /// First key scale.
    pub fn key_scales(self) -> u32 {
        3 * self.plane_len()
    }

    /// First value scale.
    pub fn value_scales(self) -> u32 {
        self.key_scales() + KEYS
    }

    /// For each byte of a block in the order of [`KvLayer`](unisonic_core::plan::KvLayer), which byte of the block it is here.
    pub fn bytes(self) -> Vec<u32> {
        let slots = || (0..KEYS).flat_map(|slot| (0..self.head_len).map(move |d| (slot, d)));
        let key = |(slot, d): (u32, u32)| 4 * ((64 * (d / 16) + slot) * 4 + d % 16 / 4) + d % 4;
        let value =
            |(slot, d): (u32, u32)| 4 * ((slot / 4 * (self.head_len / 4) + d / 4) * 4 + slot % 4) + d % 4;
        let scales = |first: u32| 4 * first..4 * (first + KEYS);
        let high = slots().map(key);
        let low = slots().map(|at| 4 * self.key_low() + key(at));
        let values = slots().map(|at| 4 * self.values() + value(at));
        let keys = high.chain(low).chain(scales(self.key_scales()));
        keys.chain(values).chain(scales(self.value_scales())).collect()
    }

    /// Word `word` of a slot in a plane of keys.
    pub fn key_word<'k>(self, slot: V<'k>, word: V<'k>) -> V<'k> {
        ((word >> 2) << 8) + (slot << 2) + (word & 3)
    }

    /// Word `word` of a slot in the plane of values.
    pub fn value_word<'k>(self, slot: V<'k>, word: V<'k>) -> V<'k> {
        ((slot >> 2) * (self.head_len / 4) + word) * 4 + (slot & 3)
    }
}

/// The page tables of all sequences.
#[derive(Clone, Copy)]
pub struct PageTable<'k> {
    /// The sequence of each row.
    sequences: Mem<'k>,
    /// Page numbers, a list of `stride` for each sequence.
    pages: Mem<'k>,
    stride: V<'k>,
}

impl<'k> PageTable<'k> {
    /// Declares `sequences` (u32, one a row: the sequence), `pages` (u32: page numbers of each sequence, in
    /// order) and the parameter `pages_a_sequence`.
    pub fn declare(k: &'k Build) -> Self {
        let (sequences, pages) = (k.read("sequences", Scalar::U32), k.read("pages", Scalar::U32));
        Self { sequences, pages, stride: k.param("pages_a_sequence", Scalar::U32) }
    }

    /// The pages of a row's sequence.
    pub fn of(self, row: V<'k>) -> Pages<'k> {
        Pages { table: self.pages, first: self.sequences.load(row) * self.stride }
    }
}

/// What tells a kernel which page a position of a row's sequence lies in.
#[derive(Clone, Copy)]
pub struct Pages<'k> {
    table: Mem<'k>,
    /// First page of the sequence.
    first: V<'k>,
}

impl<'k> Pages<'k> {
    /// The page of chunk `chunk` of the sequence.
    pub fn page(&self, chunk: V<'k>) -> V<'k> {
        self.table.load(self.first + chunk)
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::plan::KvLayer;

    use super::*;

    #[test]
    fn each_byte_of_a_block_has_one_place() {
        for head_len in [16, 64, 80, 128, 256] {
            let bytes = KvLayout { heads: 1, head_len }.bytes();
            assert_eq!(bytes.len(), KvLayer { heads: 1, head_len }.head_len_bytes());
            let mut sorted = bytes.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..bytes.len() as u32), "{head_len}");
        }
        // Slot 5, d = 16 + 6: word (64*1 + 5)*4 + 1, byte 2; as a value word (1*(hd/4) + 5)*4 + 1.
        let bytes = KvLayout { heads: 1, head_len: 64 }.bytes();
        assert_eq!(bytes[5 * 64 + 22], 4 * ((64 + 5) * 4 + 1) + 2);
        let values = 2 * 64 * 64 + 4 * 64;
        assert_eq!(bytes[values + 5 * 64 + 22], 2 * 64 * 64 + 4 * ((16 + 5) * 4 + 1) + 2);
    }
}
