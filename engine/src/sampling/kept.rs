//! The ids that filters have kept so far: first the whole vocabulary, then a list.
//!
//! All filters but typical keep a front part of one order, so a filter finds a threshold and then collects what reaches
//! it. In the vocabulary that means looking at the few blocks whose maximum does.

use unisonic_core::numerics::float::ord;

use super::order::Entry;
use super::passes::{self, BLOCK};

/// `ord` of -inf, the logit of what is masked.
pub const MASKED: i32 = ord(f32::NEG_INFINITY);

/// Room for the work of one choice, kept between choices.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Largest [`ord`] of each block of the vocabulary.
    pub maxima: Vec<i32>,
    ids: Vec<u32>,
    z: Vec<f32>,
    /// Entries of an order in which a filter looks for its threshold.
    pub entries: Vec<Entry>,
    keys: Vec<i32>,
}

/// Kept ids, ascending, with their logits.
pub struct Kept<'a> {
    vocabulary: &'a [f32],
    scratch: &'a mut Scratch,
    is_list: bool,
}

impl<'a> Kept<'a> {
    /// All ids whose logit is not -inf; the maxima in `scratch` are theirs.
    pub fn all(vocabulary: &'a [f32], scratch: &'a mut Scratch) -> Self {
        Self { vocabulary, scratch, is_list: false }
    }

    /// Logits by index; -inf is no one. The order of indices is that of ids.
    pub fn logits(&self) -> &[f32] {
        if self.is_list { &self.scratch.z } else { self.vocabulary }
    }

    /// The ids where they are a list; None for the whole vocabulary, where they are the indices.
    pub fn ids(&self) -> Option<&[u32]> {
        self.is_list.then_some(&self.scratch.ids)
    }

    /// z_max; not -inf, since no filter empties a list.
    pub fn largest(&self) -> f32 {
        let of_list = || self.scratch.z.iter().copied().max_by_key(|&z| ord(z));
        let of_blocks = || self.scratch.maxima.iter().copied().max().map(from_ord);
        let largest = if self.is_list { of_list() } else { of_blocks() };
        largest.unwrap_or(f32::NEG_INFINITY)
    }

    /// No logit of a block of indices is above this, where that is known.
    pub fn block_bound(&self, block: usize) -> Option<f32> {
        if self.is_list { None } else { self.scratch.maxima.get(block).copied().map(from_ord) }
    }

    /// Keeps of the ids with `ord(z) >= low` those that `keep(index, z)` keeps.
    pub fn retain(&mut self, low: i32, keep: impl Fn(u32, f32) -> bool) {
        let low = low.max(MASKED + 1);
        let Scratch { maxima, ids, z, .. } = &mut *self.scratch;
        if self.is_list {
            let mut len = 0;
            for index in 0..z.len() {
                let (id, logit) = (ids[index], z[index]);
                if ord(logit) >= low && keep(index as u32, logit) {
                    (ids[len], z[len]) = (id, logit);
                    len += 1;
                }
            }
            ids.truncate(len);
            z.truncate(len);
        } else {
            ids.clear();
            z.clear();
            for (first, block) in reaching(self.vocabulary, maxima, low) {
                for (id, &logit) in (first..).zip(block) {
                    if ord(logit) >= low && keep(id, logit) {
                        ids.push(id);
                        z.push(logit);
                    }
                }
            }
            self.is_list = true;
        }
    }

    /// Makes an entry of each id with `ord(z) >= low` and a weight above 0, by ascending index, where `key(z)` gives one.
    pub fn weigh(&mut self, low: i32, z_max: f32, key: impl Fn(f32) -> Option<i32>) {
        let Scratch { maxima, z, entries, .. } = &mut *self.scratch;
        entries.clear();
        let mut weights = [0; BLOCK];
        let mut weigh = |first: u32, block: &[f32]| {
            passes::weights(block, z_max, &mut weights);
            for ((index, &z), &weight) in (first..).zip(block).zip(&weights) {
                if weight > 0 && ord(z) >= low {
                    entries.extend(key(z).map(|key| Entry { key, index, weight }));
                }
            }
        };
        if self.is_list {
            for (block, z) in z.chunks(BLOCK).enumerate() {
                weigh((block * BLOCK) as u32, z);
            }
        } else {
            reaching(self.vocabulary, maxima, low).for_each(|(first, block)| weigh(first, block));
        }
    }

    /// A lower bound of the k-th largest [`ord`]: as many blocks have a maximum that reaches it.
    pub fn bound_of_rank(&mut self, k: usize) -> i32 {
        let Scratch { maxima, keys, .. } = &mut *self.scratch;
        if self.is_list || k > maxima.len() {
            return MASKED;
        }
        keys.clone_from(maxima);
        *keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1
    }

    /// The entries of the last [`weigh`](Self::weigh), or of one's own.
    pub fn entries(&mut self) -> &mut Vec<Entry> {
        &mut self.scratch.entries
    }

    /// Makes an entry of weight 1 and key [`ord`] of every id.
    pub fn rank(&mut self) {
        let mut entries = std::mem::take(&mut self.scratch.entries);
        entries.clear();
        let logits = (0..).zip(self.logits()).map(|(index, &z)| Entry { key: ord(z), index, weight: 1 });
        entries.extend(logits.filter(|entry| entry.key > MASKED));
        self.scratch.entries = entries;
    }
}

/// The blocks in which a logit reaches `low`, each with its first id.
fn reaching<'a>(z: &'a [f32], maxima: &'a [i32], low: i32) -> impl Iterator<Item = (u32, &'a [f32])> {
    let blocks = z.chunks(BLOCK).zip(maxima).enumerate();
    blocks
        .filter(move |&(_, (_, &largest))| largest >= low)
        .map(|(at, (block, _))| ((at * BLOCK) as u32, block))
}

/// The float of an ordered integer.
fn from_ord(ord: i32) -> f32 {
    f32::from_bits((if ord < 0 { ord ^ 0x7FFF_FFFF } else { ord }) as u32)
}
