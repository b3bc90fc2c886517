//! A KV cache on the host, by the table of [`super::super::kv`], and the pages that sequences have in it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::KvLayout;
use super::super::kv::KEYS;
use super::data::{POISON_WORD, random};

/// A cache as kernels have it.
#[derive(Clone)]
pub struct Cache {
    /// Where everything lies.
    pub layout: KvLayout,
    /// Its words.
    pub bytes: Vec<u8>,
}

impl Cache {
    /// A cache whose every word is a NaN of f32 and no zero of the planes.
    pub fn poisoned(layout: KvLayout, pages: usize) -> Self {
        Self { layout, bytes: vec![0xFF; 4 * pages * layout.page_len() as usize] }
    }

    fn block(&self, page: usize, head: usize) -> usize {
        4 * (page * self.layout.heads as usize + head) * self.layout.block_len() as usize
    }

    /// Writes K16 and V8 of a KV head into a slot of a page.
    #[allow(clippy::too_many_arguments, reason = "all that a slot has")]
    pub fn write(
        &mut self,
        page: usize,
        head: usize,
        slot: usize,
        high: &[i8],
        low: &[i8],
        sk: f32,
        value: &[i8],
        sv: f32,
    ) {
        let (block, hd) = (self.block(page, head), self.layout.head_len as usize);
        let plane = KEYS as usize * hd;
        for d in 0..hd {
            let (e, t) = (d / 16, d / 4 % 4);
            let key = block + ((64 * e + slot) * 4 + t) * 4 + d % 4;
            self.bytes[key] = high[d] as u8;
            self.bytes[key + plane] = low[d] as u8;
            let value_at = ((slot / 4) * (hd / 4) + d / 4) * 4 + slot % 4;
            self.bytes[block + 2 * plane + 4 * value_at + d % 4] = value[d] as u8;
        }
        for (part, scale) in [sk, sv].into_iter().enumerate() {
            let at = block + 3 * plane + 4 * (KEYS as usize * part + slot);
            self.bytes[at..at + 4].copy_from_slice(&scale.to_le_bytes());
        }
    }
}

/// A position of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    /// Number of the sequence.
    pub sequence: u32,
    /// Position in it.
    pub position: u32,
}

/// Tokens from (sequence, position).
pub fn tokens(list: &[(u32, u32)]) -> Vec<Token> {
    list.iter().map(|&(sequence, position)| Token { sequence, position }).collect()
}

/// Positions of some tokens.
pub fn positions(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.position).collect()
}

/// Sequences of some tokens.
pub fn sequences(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.sequence).collect()
}

/// The pages of sequences.
pub struct PageTable {
    /// The buffer `pages`: page numbers, in a mixed order, and poison for chunks that have no page.
    pub words: Vec<u32>,
    /// Page numbers of a sequence.
    pub pages_a_sequence: u32,
    /// Pages of the cache: one more than are in use.
    pub page_count: usize,
}

impl PageTable {
    /// Pages for the chunks in which tokens lie.
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Self {
        let chunks: BTreeSet<(u32, u32)> =
            tokens.into_iter().map(|token| (token.sequence, token.position / KEYS)).collect();
        let largest = |of: fn(&(u32, u32)) -> u32| chunks.iter().map(of).max().map_or(0, |x| x + 1);
        let (sequences, pages_a_sequence) = (largest(|chunk| chunk.0), largest(|chunk| chunk.1));
        let page_count = chunks.len() + 1;
        // Ordered by a random number.
        let mut next = random(page_count as u64);
        let mixed: BTreeMap<u64, u32> = (0..page_count as u32).map(|page| (next(), page)).collect();
        let mut words = vec![POISON_WORD; (sequences * pages_a_sequence) as usize];
        for ((sequence, chunk), page) in chunks.into_iter().zip(mixed.into_values()) {
            words[(sequence * pages_a_sequence + chunk) as usize] = page;
        }
        Self { words, pages_a_sequence, page_count }
    }

    /// The page in which a token lies.
    pub fn page(&self, token: Token) -> usize {
        self.words[(token.sequence * self.pages_a_sequence + token.position / KEYS) as usize] as usize
    }
}
