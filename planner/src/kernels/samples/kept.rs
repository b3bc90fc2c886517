//! Keys and values of sequences, in a cache and as the reference takes them.

use std::collections::{BTreeMap, BTreeSet};

use unisonic_core::numerics::attention::{
    CHUNK, KvChunk, Q16, attend_chunk, default_scale, visible_in_chunk,
};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::fwht::{fwht_block, fwht_scales};
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::State;

use super::super::Attention;
use super::cache::{Cache, PageTable, Token};
use super::data::random;

/// A number in [-1, 1).
pub fn uniform(word: u64) -> f32 {
    (word >> 40) as f32 * pow2(-23) - 1.0
}

/// Positions of a page for a KV head. Slots that were never written have poison.
struct Page {
    key_high: Vec<i8>,
    key_low: Vec<i8>,
    key_scales: Vec<f32>,
    value: Vec<i8>,
    value_scales: Vec<f32>,
}

impl Page {
    fn poisoned(head_len: usize) -> Self {
        let plane = || vec![-1; CHUNK * head_len];
        let scales = || vec![f32::NAN; CHUNK];
        Self {
            key_high: plane(),
            key_low: plane(),
            key_scales: scales(),
            value: plane(),
            value_scales: scales(),
        }
    }

    fn chunk(&self) -> KvChunk<'_> {
        KvChunk {
            key_high: &self.key_high,
            key_low: &self.key_low,
            key_scales: &self.key_scales,
            value: &self.value,
            value_scales: &self.value_scales,
        }
    }
}

/// What sequences keep: the keys that some rows see, and no others.
pub struct Kept {
    attention: Attention,
    /// As kernels have it.
    pub cache: Cache,
    /// Where each sequence has its chunks.
    pub pages: PageTable,
    /// By page and KV head.
    chunks: BTreeMap<(usize, usize), Page>,
}

impl Kept {
    /// What rows see.
    pub fn new(attention: Attention, rows: &[Token]) -> Self {
        let layout = attention.layout;
        let tokens: BTreeSet<Token> =
            rows.iter().flat_map(|&row| seen_tokens(row, attention.window)).collect();
        let pages = PageTable::new(tokens.iter().copied());
        let cache = Cache::poisoned(layout, pages.page_count);
        let mut kept = Self { attention, cache, pages, chunks: BTreeMap::new() };
        let mut next = random(5);
        for token in tokens {
            for head in 0..layout.heads as usize {
                kept.write(token, head, &mut next);
            }
        }
        kept
    }

    fn write(&mut self, token: Token, head: usize, next: &mut impl FnMut() -> u64) {
        let hd = self.attention.layout.head_len as usize;
        let (page, slot) = (self.pages.page(token), token.position as usize % CHUNK);
        let chunk = self.chunks.entry((page, head)).or_insert_with(|| Page::poisoned(hd));
        let [key, mut value] = key_and_value(token, hd, next);
        let at = slot * hd..(slot + 1) * hd;
        let (high, low) = (&mut chunk.key_high[at.clone()], &mut chunk.key_low[at.clone()]);
        let plane = &mut chunk.value[at.clone()];
        let fits = quantize_head_16(&key, high, low, &mut chunk.key_scales[slot])
            && quantize_value_8(&mut value, plane, &mut chunk.value_scales[slot]);
        assert!(fits, "keys and values of samples are in range");
        let (sk, sv) = (chunk.key_scales[slot], chunk.value_scales[slot]);
        self.cache.write(page, head, slot, high, low, sk, plane, sv);
    }

    /// The reference's state of each chunk that a row sees, for a KV head.
    pub fn states(&self, row: Token, head: usize, q: &Q16<'_>) -> Vec<(usize, State)> {
        let Attention { kappa, soft_cap, window, .. } = self.attention;
        let state = |chunk: u32| {
            let visible = visible_in_chunk(row.position, window, chunk);
            if visible.is_empty() {
                return None;
            }
            let page = self.pages.page(Token { position: chunk * CHUNK as u32, ..row });
            let kv = self.chunks.get(&(page, head))?.chunk();
            Some((chunk as usize, attend_chunk(q, kappa, soft_cap, &kv, visible)))
        };
        (0..=row.position / CHUNK as u32).filter_map(state).collect()
    }
}

/// What a row sees of its sequence.
fn seen_tokens(row: Token, window: Option<u32>) -> impl Iterator<Item = Token> {
    (0..=row.position / CHUNK as u32).flat_map(move |chunk| {
        let visible = visible_in_chunk(row.position, window, chunk);
        visible.map(move |slot| Token { position: chunk * CHUNK as u32 + slot as u32, ..row })
    })
}

/// Two kinds of chunks, this and the next.
const PEAK_KIND: usize = 4;

/// Key and value of a position. Chunks are of eight kinds, which sequences begin with different ones of. Most
/// have scores of like size; one has scores far apart, so that most weights are dropped; two from [`PEAK_KIND`]
/// are such that some of what a query of ones makes of them lies around 2^-60.
fn key_and_value(token: Token, head_len: usize, next: &mut impl FnMut() -> u64) -> [Vec<f32>; 2] {
    let (position, slot) = (token.position as usize, token.position as usize % CHUNK);
    let mut random = |scale: f32| (0..head_len).map(|_| uniform(next()) * scale).collect::<Vec<f32>>();
    let zeros = || vec![0.0; head_len];
    let is_peak = |kind| kind == PEAK_KIND || kind == PEAK_KIND + 1;
    let [key, value] = match (position / CHUNK + 5 * token.sequence as usize) % 8 {
        3 => [random(40.0), random(1.0)],
        // A score of 17.6 without a value, scores of 0 with values that the transform makes peaks of in each
        // block, of 2^-35, beside few numbers that V8 does not make zeros of.
        kind if is_peak(kind) && slot == 17 => {
            [vec![(12.2 * default_scale(head_len as u32)) as f32; head_len], zeros()]
        }
        kind if is_peak(kind) => {
            let block = fwht_block(head_len) as f32;
            let spread = 1.0 + random(0.4)[0];
            let noise = random(0.0025 * (block * default_scale(block as u32) as f32));
            let scale = spread * (pow2(-35) / (block * fwht_scales(head_len).0));
            [zeros(), noise.iter().map(|x| (1.0 + x) * scale).collect()]
        }
        _ => [random(8.0), random(pow2(position as i32 % 4 - 2))],
    };
    [if position % 11 == 6 { zeros() } else { key }, if position % 13 == 5 { zeros() } else { value }]
}
