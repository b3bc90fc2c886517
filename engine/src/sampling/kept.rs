//! The ids that filters have kept so far: first the whole vocabulary, then a list.
//!
//! All filters but typical keep a front part of one order, so a filter finds a threshold and then collects
//! what reaches it. In the vocabulary that means looking at the few blocks whose maximum does, and in those
//! at the few logits that do. A front part that is most of the vocabulary is not collected at all
//! ([`Kept::cut`], [`Kept::span`]).

use unisonic_core::numerics::float::ord;

use super::noise::Race;
use super::order::Entry;
use super::passes::{self, BLOCK};

/// `ord` of -inf, the logit of what is masked.
pub const MASKED: i32 = ord(f32::NEG_INFINITY);

/// A list longer than this costs more than to look through all of a vocabulary again.
const LONG_LIST: usize = 8192;

/// Room for the work of one choice, kept between choices.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Largest [`ord`] of each block of the vocabulary.
    pub maxima: Vec<i32>,
    ids: Vec<u32>,
    z: Vec<f32>,
    /// Entries of an order in which a filter looks for its threshold.
    pub entries: Vec<Entry>,
    /// Ids that may win a draw.
    pub candidates: Vec<u32>,
    keys: Vec<i32>,
}

/// Kept ids, ascending, with their logits.
pub struct Kept<'a> {
    vocabulary: &'a [f32],
    scratch: &'a mut Scratch,
    is_list: bool,
    /// No id with a smaller [`ord`] will be kept in the end.
    floor: i32,
    /// The last place that is kept, in (ord(z) descending, id ascending).
    cut: Option<(i32, u32)>,
    /// The largest [`ord`] that is kept.
    ceiling: i32,
}

impl<'a> Kept<'a> {
    /// All ids whose logit is not -inf; the maxima in `scratch` are theirs.
    pub fn all(vocabulary: &'a [f32], scratch: &'a mut Scratch) -> Self {
        Self { vocabulary, scratch, is_list: false, floor: MASKED + 1, cut: None, ceiling: i32::MAX }
    }

    /// Logits by index; -inf is no one. The order of indices is that of ids. After a [`cut`](Self::cut) or
    /// [`span`](Self::span) there are others too.
    pub fn logits(&self) -> &[f32] {
        if self.is_list { &self.scratch.z } else { self.vocabulary }
    }

    /// The ids where they are a list; None for the whole vocabulary, where they are the indices.
    pub fn ids(&self) -> Option<&[u32]> {
        self.is_list.then_some(&self.scratch.ids)
    }

    /// Not more than the first k will be kept in the end, so that filters before top-k need not collect
    /// others.
    pub fn at_most(&mut self, k: u32) {
        self.floor = self.floor.max(bound_of_rank(&self.scratch.maxima, k as usize));
    }

    /// A race of the kept ids to a draw.
    pub fn race(&mut self, race: &mut Race) {
        // The favourite comes first: what cannot beat it is passed over by the block.
        if self.ceiling == i32::MAX
            && let Some((id, z)) = self.first()
        {
            race.enter(id, z);
        }
        let Scratch { maxima, ids, z, candidates, .. } = &mut *self.scratch;
        if self.is_list {
            ids.chunks(BLOCK).zip(z.chunks(BLOCK)).for_each(|(ids, z)| race.enter_list(ids, z));
        } else {
            let cut = self.cut;
            let range = cut.map_or(self.floor, |(key, _)| key)..=self.ceiling;
            race.enter_vocabulary(self.vocabulary, maxima, range, candidates, |id, z| is_before(cut, id, z));
        }
    }

    /// z_max, before a [`span`](Self::span); not -inf, since no filter empties a list.
    pub fn largest(&self) -> f32 {
        let of_list = || self.scratch.z.iter().copied().max_by_key(|&z| ord(z));
        let of_blocks = || self.scratch.maxima.iter().copied().max().map(from_ord);
        let largest = if self.is_list { of_list() } else { of_blocks() };
        largest.unwrap_or(f32::NEG_INFINITY)
    }

    /// The id that is first in (ord(z) descending, id ascending), with its logit.
    pub fn first(&self) -> Option<(u32, f32)> {
        let largest = ord(self.largest());
        let from = match self.is_list {
            true => 0,
            false => BLOCK * self.scratch.maxima.iter().position(|&max| max == largest)?,
        };
        let index = from + self.logits().get(from..)?.iter().position(|&z| ord(z) == largest)?;
        Some((self.ids().map_or(index as u32, |ids| ids[index]), self.logits()[index]))
    }

    /// Keeps of the ids with `ord(z) >= low` those that `keep(index, z)` keeps.
    pub fn retain(&mut self, low: i32, mut keep: impl FnMut(u32, f32) -> bool) {
        let low = low.max(self.floor);
        let (cut, ceiling) = (self.cut.take(), std::mem::replace(&mut self.ceiling, i32::MAX));
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
            for_each_reaching(self.vocabulary, maxima, low, |id, logit| {
                if ord(logit) <= ceiling && is_before(cut, id, logit) && keep(id, logit) {
                    ids.push(id);
                    z.push(logit);
                }
            });
            self.is_list = true;
        }
    }

    /// Keeps what is up to a place in (ord(z) descending, index ascending).
    pub fn cut(&mut self, key: i32, last: u32) {
        if self.is_list || self.about_within(key, i32::MAX) < LONG_LIST {
            self.retain(key, |index, z| ord(z) > key || index <= last);
        } else {
            self.cut = Some((key, last));
        }
    }

    /// Keeps the ids with an [`ord`] from `low` to `high`. Before any other filter than a draw, [`settle`](Self::settle) has to
    /// be called.
    pub fn span(&mut self, low: i32, high: i32) {
        if self.is_list || self.about_within(low, high) < LONG_LIST {
            self.retain(low, |_, z| ord(z) <= high);
        } else {
            (self.floor, self.ceiling) = (self.floor.max(low), high);
        }
    }

    /// Makes a list of what a [`span`](Self::span) keeps.
    pub fn settle(&mut self) {
        if self.ceiling < i32::MAX {
            self.retain(self.floor, |_, _| true);
        }
    }

    /// A guess at how many of the vocabulary that are, from 32 blocks.
    fn about_within(&self, low: i32, high: i32) -> usize {
        let step = (self.scratch.maxima.len() / 32).max(1);
        let few = self.vocabulary.chunks(BLOCK).step_by(step);
        few.map(|block| passes::within(block, low, high).count_ones() as usize).sum::<usize>() * step
    }

    /// Whether to find all with `ord(z) >= low` takes much less than a pass over all.
    pub fn few_reach(&self, low: i32) -> bool {
        let maxima = &self.scratch.maxima;
        let reaching = || maxima.iter().map(|&max| usize::from(max >= low)).sum::<usize>();
        if self.is_list { self.scratch.z.len() < LONG_LIST } else { reaching() * 4 < maxima.len() }
    }

    /// Makes an entry of each id with `ord(z) >= low` and a weight above 0, by ascending index, where
    /// `key(z)` gives one. Of a block of logits only those are looked at that `those` has a bit for.
    pub fn weigh(
        &mut self,
        low: i32,
        z_max: f32,
        those: impl Fn(&[f32]) -> u64,
        key: impl Fn(f32) -> Option<i32>,
    ) {
        let Scratch { maxima, z, entries, .. } = &mut *self.scratch;
        entries.clear();
        let mut weights = [0; BLOCK];
        let mut weigh = |first: u32, block: &[f32]| {
            let those = those(block);
            // A whole block takes as long as eight of them alone.
            let many = those.count_ones() > 8;
            if many {
                passes::weights(block, z_max, &mut weights);
            }
            for_each_bit(those, block, |i, z| {
                let weight = if many { weights[i as usize] } else { passes::integer_weight(z, z_max) };
                if weight > 0 {
                    entries.extend(key(z).map(|key| Entry { key, index: first + i, weight }));
                }
            });
        };
        if self.is_list {
            z.chunks(BLOCK).zip((0..).step_by(BLOCK)).for_each(|(block, first)| weigh(first, block));
        } else {
            blocks_reaching(self.vocabulary, maxima, low).for_each(|(first, block)| weigh(first, block));
        }
    }

    /// The k-th largest [`ord`], for k of at least 1; [`MASKED`] where there are fewer.
    pub fn key_of_rank(&mut self, k: usize) -> i32 {
        let Scratch { maxima, z, keys, .. } = &mut *self.scratch;
        keys.clear();
        if self.is_list {
            keys.extend(z.iter().map(|&z| ord(z)));
        } else {
            for_each_reaching(self.vocabulary, maxima, self.floor, |_, z| keys.push(ord(z)));
        }
        if k > keys.len() { MASKED } else { *keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1 }
    }

    /// The entries of the last [`weigh`](Self::weigh).
    pub fn entries(&mut self) -> &mut Vec<Entry> {
        &mut self.scratch.entries
    }
}

/// Whether an id is kept by a cut, in (ord(z) descending, id ascending).
fn is_before(cut: Option<(i32, u32)>, id: u32, z: f32) -> bool {
    cut.is_none_or(|(key, last)| ord(z) > key || (ord(z) == key && id <= last))
}

/// A lower bound of the k-th largest [`ord`]: as many blocks have a maximum that reaches it.
pub fn bound_of_rank(maxima: &[i32], k: usize) -> i32 {
    if k > maxima.len() {
        return i32::MIN;
    }
    let mut maxima = maxima.to_vec();
    *maxima.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1
}

/// Each id with `ord(z) >= low`, ascending.
pub fn for_each_reaching(z: &[f32], maxima: &[i32], low: i32, mut each: impl FnMut(u32, f32)) {
    for (first, block) in blocks_reaching(z, maxima, low) {
        for_each_bit(passes::reaching(block, low), block, |i, z| each(first + i, z));
    }
}

/// Index and logit of each set bit.
fn for_each_bit(mut mask: u64, block: &[f32], mut each: impl FnMut(u32, f32)) {
    while mask != 0 {
        let i = mask.trailing_zeros();
        mask &= mask - 1;
        each(i, block[i as usize]);
    }
}

/// The blocks in which a logit reaches `low`, each with its first id.
fn blocks_reaching<'a>(z: &'a [f32], maxima: &'a [i32], low: i32) -> impl Iterator<Item = (u32, &'a [f32])> {
    let blocks = z.chunks(BLOCK).zip(maxima).zip((0..).step_by(BLOCK));
    blocks.filter(move |((_, largest), _)| **largest >= low).map(|((block, _), first)| (first, block))
}

/// The float of an ordered integer.
pub fn from_ord(ord: i32) -> f32 {
    f32::from_bits((if ord < 0 { ord ^ 0x7FFF_FFFF } else { ord }) as u32)
}
