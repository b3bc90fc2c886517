//! Draws: the argmax of perturbed logits, with the noise of few ids made in full.
//!
//! An id's noise is a function of its random word, and the word takes ten rounds of Philox; there is no way
//! round those. But noise falls as the word grows, so the least word of a block and its largest logit bound
//! all scores in it, which passes over nearly every block, and the two logarithms of the noise are made for a
//! few ids only.

use std::f32::consts::LN_2;
use std::ops::RangeInclusive;

use multiversion::multiversion;
use unisonic_core::numerics::float::{i2f, ord};
use unisonic_core::numerics::sampling::{DrawKey, gumbel, perturbed};

use super::kept::{MASKED, from_ord};
use super::order::least;
use super::passes::{BLOCK, collect, within};

/// No noise is larger: the word 0 gives 22.18.
const LARGEST_NOISE: f32 = 22.2;
/// Blocks that take part before the others.
const TOP: usize = 16;

/// The best id so far, by (score descending, id ascending).
pub struct Race {
    philox: Philox,
    inverse_temperature: f32,
    best: (i32, u32),
}

impl Race {
    /// A draw with `f32(1/T)`, in which no id has taken part.
    pub fn new(key: DrawKey, inverse_temperature: f32) -> Self {
        Self { philox: Philox::new(key), inverse_temperature, best: (i32::MIN, u32::MAX) }
    }

    /// The id that has won.
    pub fn winner(&self) -> Option<u32> {
        (self.best.0 > i32::MIN).then_some(self.best.1)
    }

    /// An id takes part.
    pub fn enter(&mut self, id: u32, z: f32) {
        self.enter_word(id, z, self.philox.word(id.into()) as u32);
    }

    /// The ids of a vocabulary take part whose [`ord`] is in a range and that are kept. `candidates` is room to work in.
    ///
    /// The blocks with the largest logits come first: the better the best is, the more others cannot win whatever their noise.
    /// Where those are many, words are made for a list of the others; else for whole blocks.
    pub fn enter_vocabulary(
        &mut self,
        z: &[f32],
        maxima: &[i32],
        range: RangeInclusive<i32>,
        candidates: &mut Vec<u32>,
        keep: impl Fn(u32, f32) -> bool,
    ) {
        let (low, high) = range.into_inner();
        let keep = |id, z| (low..=high).contains(&ord(z)) && keep(id, z);
        let top = top_blocks(maxima).max(low);
        for (at, _) in (0..).zip(maxima).filter(|&(_, &max)| max >= top) {
            self.enter_block(z, at, u32::MAX, &keep);
        }
        let low = low.max(self.lowest_that_can_win());
        let rest = maxima.iter().copied().filter(|&max| max < top).max().unwrap_or(i32::MIN);
        if rest < low {
            return;
        }
        let limit = self.largest_word(rest.min(high));
        let blocks: Vec<u32> =
            (0..).zip(maxima).filter(|&(_, &max)| (low..top).contains(&max)).map(|(at, _)| at).collect();
        let mut words = Vec::new();
        if most_are_within(z, &blocks, low, high) {
            words.resize(blocks.len(), 0);
            least_words(&blocks, &self.philox, &mut words);
            for (at, word) in blocks.into_iter().zip(words) {
                if word <= limit && self.can_win(from_ord(maxima[at as usize]), word) {
                    self.enter_block(z, at, limit, &keep);
                }
            }
            return;
        }
        collect(z, maxima, [low, high, top], candidates);
        let len = candidates.len().next_multiple_of(BLOCK);
        // Who takes part twice does no better.
        candidates.resize(len, candidates.last().copied().unwrap_or(0));
        let (lists, _) = candidates.as_chunks::<BLOCK>();
        words.resize(lists.len(), 0);
        least_words_of(lists, &self.philox, &mut words);
        for (ids, word) in lists.iter().zip(words).filter(|&(_, word)| word <= limit) {
            let from = ids.map(|id| maxima.get(id as usize / BLOCK).copied().unwrap_or(i32::MIN));
            let largest = from.into_iter().max().unwrap_or(i32::MIN);
            if self.can_win(from_ord(largest), word) {
                let z = ids.map(|id| z.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY));
                self.enter_ids(ids, &z, limit, &keep);
            }
        }
    }

    fn enter_block(&mut self, z: &[f32], at: u32, limit: u32, keep: &impl Fn(u32, f32) -> bool) {
        let first = at * BLOCK as u32;
        let z = &z[first as usize..];
        let ids: [u32; BLOCK] = std::array::from_fn(|i| first.wrapping_add(i as u32));
        self.enter_ids(&ids, &z[..z.len().min(BLOCK)], limit, keep);
    }

    fn can_win(&self, z: f32, word: u32) -> bool {
        self.bound(z, noise_bound(word)) >= self.best.0
    }

    /// The least [`ord`] of a logit that the largest noise may bring to the best score.
    fn lowest_that_can_win(&self) -> i32 {
        least(MASKED.into(), ord(f32::MAX).into(), |key| {
            self.bound(from_ord(key as i32), LARGEST_NOISE) >= self.best.0
        }) as i32
    }

    /// The largest word whose noise may bring a logit of this [`ord`] to the best score; 0 for none as well.
    fn largest_word(&self, key: i32) -> u32 {
        let cannot =
            least(0, 1 << 32, |word| word > u32::MAX.into() || !self.can_win(from_ord(key), word as u32));
        (cannot - 1).max(0) as u32
    }

    /// At most [`BLOCK`] ids and their logits take part.
    pub fn enter_list(&mut self, ids: &[u32], z: &[f32]) {
        let Some(largest) = z.iter().copied().max_by_key(|&z| ord(z)) else { return };
        if self.bound(largest, LARGEST_NOISE) >= self.best.0 {
            self.enter_ids(ids, z, u32::MAX, &|_, _| true);
        }
    }

    /// Ids take part; those with a word above `limit` cannot win.
    fn enter_ids(&mut self, ids: &[u32], z: &[f32], limit: u32, keep: &impl Fn(u32, f32) -> bool) {
        let mut words = [0; BLOCK];
        words_of(ids, &self.philox, &mut words);
        for ((&id, &z), &word) in ids.iter().zip(z).zip(&words) {
            if word <= limit && self.can_win(z, word) && keep(id, z) {
                self.enter_word(id, z, word);
            }
        }
    }

    fn enter_word(&mut self, id: u32, z: f32, word: u32) {
        if z == f32::NEG_INFINITY {
            return;
        }
        let score = self.bound(z, gumbel(word));
        if score > self.best.0 || (score == self.best.0 && id < self.best.1) {
            self.best = (score, id);
        }
    }

    /// The largest [`ord`] of a score, of logits up to `z` and noise up to this: both roundings are
    /// monotonic.
    fn bound(&self, z: f32, noise: f32) -> i32 {
        ord(perturbed(z, self.inverse_temperature, noise))
    }
}

/// A maximum that at least [`TOP`] blocks reach, where there are so many, and not many more.
fn top_blocks(maxima: &[i32]) -> i32 {
    // As many parts have a block that reaches it.
    let parts = maxima.chunks(maxima.len().div_ceil(4 * TOP).max(1));
    let mut largest: Vec<i32> = parts.filter_map(|part| part.iter().copied().max()).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    largest.get(TOP - 1).or(largest.last()).copied().unwrap_or(i32::MIN)
}

/// Whether a list of the ids in a range would have most of all, from a look at some blocks.
fn most_are_within(z: &[f32], blocks: &[u32], low: i32, high: i32) -> bool {
    let looked = blocks.iter().step_by((blocks.len() / 32).max(1));
    let (mut count, mut all) = (0, 0);
    for block in looked.filter_map(|&at| z.chunks(BLOCK).nth(at as usize)) {
        count += within(block, low, high).count_ones();
        all += block.len() as u32;
    }
    8 * count > 5 * all
}

/// At least the noise of a word, and at most 0.07 more where the noise is large; a larger word has no larger
/// bound.
///
/// `E = -log1m(w) >= w`, so `g <= -log(w)`; with `w = 2^e*(1 + m)`, `log2(w) >= e + m`, and `e + m` is the
/// pattern of w as a number, over 2^23. A thousandth covers every rounding.
fn noise_bound(word: u32) -> f32 {
    let k = i2f((word >> 1) as i32) + 0.5;
    // The exponent of w = k*2^-31 and the bias of its pattern: 31 + 127.
    (158.0 - i2f(k.to_bits() as i32) * (1.0 / 8_388_608.0)) * LN_2 + 0.001
}

const LOW: u64 = 0xFFFF_FFFF;
const FIRST_FACTOR: u64 = 0xD251_1F53;
const SECOND_FACTOR: u64 = 0xCD9E_8D57;

/// Philox4x32-10 of all but the id (`numerics::philox`): what the first three rounds make without it is made
/// once.
///
/// Words are the lower halves of u64, whose upper halves mean nothing: so a product needs no parting.
struct Philox {
    /// Of rounds 1 and 2: the id is xored with one, the product's upper half with the other.
    early: [u64; 2],
    /// Of round 3: what is xored to words 0 and 2, and word 3.
    third: [u64; 3],
    /// Keys of the rounds after the third.
    keys: [[u64; 2]; 7],
}

impl Philox {
    fn new(key: DrawKey) -> Self {
        let mut round_key = [key.seed as u32, (key.seed >> 32) as u32];
        let keys: [[u64; 2]; 10] = std::array::from_fn(|_| {
            let now = round_key.map(u64::from);
            round_key = [round_key[0].wrapping_add(0x9E37_79B9), round_key[1].wrapping_add(0xBB67_AE85)];
            now
        });
        let [k1, k2, k3, rest @ ..] = keys;
        // Round 1: only word 0 has the id in it.
        let (first, second) =
            (u64::from(key.position) * FIRST_FACTOR, u64::from(key.purpose) * SECOND_FACTOR);
        let [c0, c1, c2, c3] = [(second >> 32) ^ k1[0], second, (first >> 32) ^ k1[1], first];
        // Round 2: words 2 and 3 do.
        let second = (c2 & LOW) * SECOND_FACTOR;
        let (early, c0, c1) = ([c0, c3 ^ k2[1]], (second >> 32) ^ c1 ^ k2[0], second);
        // Round 3: all but word 3.
        let first = (c0 & LOW) * FIRST_FACTOR;
        Self { early, third: [c1 ^ k3[0], (first >> 32) ^ k3[1], first], keys: rest }
    }

    /// The first word of an id in the lower half, in the lower half.
    #[inline(always)]
    fn word(&self, id: u64) -> u64 {
        let of_second = ((id ^ self.early[0]) & LOW) * FIRST_FACTOR;
        let of_third = (((of_second >> 32) ^ self.early[1]) & LOW) * SECOND_FACTOR;
        let [mut c0, mut c1] = [(of_third >> 32) ^ self.third[0], of_third];
        let [mut c2, mut c3] = [of_second ^ self.third[1], self.third[2]];
        for [first_key, second_key] in self.keys {
            let (first, second) = ((c0 & LOW) * FIRST_FACTOR, (c2 & LOW) * SECOND_FACTOR);
            (c0, c1) = ((second >> 32) ^ c1 ^ first_key, second);
            (c2, c3) = ((first >> 32) ^ c3 ^ second_key, first);
        }
        c0
    }
}

/// The least word of the [`BLOCK`] ids of each of some blocks.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn least_words(blocks: &[u32], philox: &Philox, words: &mut [u32]) {
    for (least_word, &at) in words.iter_mut().zip(blocks) {
        let mut least = u64::MAX;
        // Ids of 64 bits, whose upper halves mean nothing either.
        let first = u64::from(at) * BLOCK as u64;
        for id in first..first + BLOCK as u64 {
            // What means nothing goes below what is compared.
            let word = philox.word(id).rotate_left(32);
            least = if word < least { word } else { least };
        }
        *least_word = (least >> 32) as u32;
    }
}

/// The least word of each list of ids.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn least_words_of(lists: &[[u32; BLOCK]], philox: &Philox, words: &mut [u32]) {
    for (least_word, ids) in words.iter_mut().zip(lists) {
        let mut least = u64::MAX;
        for &id in ids {
            let word = philox.word(id.into()).rotate_left(32);
            least = if word < least { word } else { least };
        }
        *least_word = (least >> 32) as u32;
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn words_of(ids: &[u32], philox: &Philox, words: &mut [u32; BLOCK]) {
    for (word, &id) in words.iter_mut().zip(ids) {
        *word = philox.word(id.into()) as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unisonic_core::numerics::philox::random_word;

    use super::*;

    proptest! {
        #[test]
        fn words_are_those_of_the_specification(
            seed: u64, position: u32, purpose in prop_oneof![Just(0), any::<u32>()], block in 0..u32::MAX / BLOCK as u32,
        ) {
            let right = |id| random_word(seed, position, id, purpose);
            let philox = Philox::new(DrawKey { seed, position, purpose });
            let ids: [u32; BLOCK] = std::array::from_fn(|i| block * BLOCK as u32 + i as u32);
            let mut words = [0; BLOCK];
            words_of(&ids, &philox, &mut words);
            prop_assert_eq!(words, ids.map(right));
            let mut least = [0; 2];
            least_words_of(&[ids], &philox, &mut least[..1]);
            prop_assert_eq!(Some(least[0]), ids.into_iter().map(right).min());
            least_words(&[block, 0], &philox, &mut least);
            prop_assert_eq!(Some(least[0]), ids.into_iter().map(right).min());
            prop_assert_eq!(Some(least[1]), (0..BLOCK as u32).map(right).min());
        }
    }

    /// Every exponent and a walk through its mantissas, the ends among them.
    #[test]
    fn the_bound_holds_for_every_word() {
        let mut before = f32::INFINITY;
        for exponent in 0..32 {
            let (first, last) = (1_u64 << exponent, (2_u64 << exponent) - 1);
            let step = (first / 20_000).max(1);
            let walk = (first..=last).step_by(step as usize).chain([last]);
            for word in walk.map(|word| word as u32) {
                let (noise, bound) = (gumbel(word), noise_bound(word));
                assert!(noise <= bound && bound <= LARGEST_NOISE, "word {word}: {noise}, {bound}");
                assert!(noise < 0.0 || bound < noise + 0.8, "word {word}: {noise}, {bound}");
                assert!(bound <= before, "word {word}");
                before = bound;
            }
        }
        assert!(
            gumbel(0) <= LARGEST_NOISE && gumbel(0) <= noise_bound(0) && noise_bound(1) <= noise_bound(0)
        );
    }
}
