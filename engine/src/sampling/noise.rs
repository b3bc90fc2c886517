//! Draws: the argmax of perturbed logits, with the noise of few ids made in full.
//!
//! An id's noise is a function of its random word, and the word takes ten rounds of Philox; there is no way round those. But
//! the two logarithms after them are only made for ids that could win: the exponent and mantissa of the word bound the
//! noise from above ([`score_bounds`]), and the largest possible noise bounds a whole block before any word of it is made.

use std::f32::consts::LN_2;

use multiversion::multiversion;
use unisonic_core::numerics::float::{i2f, ord};
use unisonic_core::numerics::philox::random_word;
use unisonic_core::numerics::sampling::{DrawKey, gumbel, perturbed};

use super::passes::BLOCK;

/// No noise is larger: the word 0 gives 22.18.
const LARGEST_NOISE: f32 = 22.2;

/// The best id so far, by (score descending, id ascending).
pub struct Race {
    key: DrawKey,
    inverse_temperature: f32,
    best: Option<(i32, u32)>,
}

impl Race {
    /// A draw with `f32(1/T)`.
    pub fn new(key: DrawKey, inverse_temperature: f32) -> Self {
        Self { key, inverse_temperature, best: None }
    }

    /// The winner, if anyone took part.
    pub fn winner(&self) -> Option<u32> {
        self.best.map(|(_, id)| id)
    }

    /// Whether an id with a logit of at most `z` could win.
    pub fn could_win(&self, z: f32) -> bool {
        self.best.is_none_or(|(best, _)| ord(perturbed(z, self.inverse_temperature, LARGEST_NOISE)) >= best)
    }

    /// At most [`BLOCK`] ids and their logits take part; of which -inf is no one.
    pub fn enter(&mut self, ids: &[u32], z: &[f32]) {
        if let (Ok(ids), Ok(z)) = (<&[u32; BLOCK]>::try_from(ids), <&[f32; BLOCK]>::try_from(z)) {
            let mut bounds = [0; BLOCK];
            let largest = score_bounds(ids, z, self.key, self.inverse_temperature, &mut bounds);
            if self.best.is_some_and(|(best, _)| largest < best) {
                return;
            }
            for ((&id, &z), bound) in ids.iter().zip(z).zip(bounds) {
                if self.best.is_none_or(|(best, _)| bound >= best) {
                    self.enter_one(id, z);
                }
            }
        } else {
            for (&id, &z) in ids.iter().zip(z) {
                if self.could_win(z) {
                    self.enter_one(id, z);
                }
            }
        }
    }

    fn enter_one(&mut self, id: u32, z: f32) {
        if z == f32::NEG_INFINITY {
            return;
        }
        let DrawKey { seed, position, purpose } = self.key;
        let noise = gumbel(random_word(seed, position, id, purpose));
        let score = ord(perturbed(z, self.inverse_temperature, noise));
        if self.best.is_none_or(|(best, best_id)| score > best || (score == best && id < best_id)) {
            self.best = Some((score, id));
        }
    }
}

/// At least the noise of a word, and at most 0.07 more.
///
/// `E = -log1m(w) >= w`, so `g <= -log(w)`; with `w = 2^e*(1 + m)`, `log2(w) >= e + m`, and `e + m` is the pattern of w as
/// a number, over 2^23. A thousandth covers every rounding.
#[inline(always)]
fn noise_bound(word: u32) -> f32 {
    let k = i2f((word >> 1) as i32) + 0.5;
    // The exponent of w = k*2^-31 and the bias of its pattern: 31 + 127.
    (158.0 - i2f(k.to_bits() as i32) * (1.0 / 8_388_608.0)) * LN_2 + 0.001
}

/// Sets `bounds` to at least the [`ord`] of each score, and answers the largest.
///
/// Addition and multiplication round monotonically, so a bound of the noise gives one of the score.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn score_bounds(
    ids: &[u32; BLOCK],
    z: &[f32; BLOCK],
    key: DrawKey,
    inverse_temperature: f32,
    bounds: &mut [i32; BLOCK],
) -> i32 {
    let mut words = [0; BLOCK];
    random_words(ids, key, &mut words);
    let mut largest = i32::MIN;
    for ((bound, &z), &word) in bounds.iter_mut().zip(z).zip(&words) {
        *bound = ord(perturbed(z, inverse_temperature, noise_bound(word)));
        largest = largest.max(*bound);
    }
    largest
}

/// `numerics::philox::random_word` of every id, eight at a time in lanes of 64 bits whose upper halves mean nothing.
#[inline(always)]
fn random_words(ids: &[u32; BLOCK], key: DrawKey, words: &mut [u32; BLOCK]) {
    const LOW: u64 = 0xFFFF_FFFF;
    let mut round_key = [key.seed as u32, (key.seed >> 32) as u32];
    let round_keys: [[u64; 2]; 10] = std::array::from_fn(|_| {
        let now = round_key.map(u64::from);
        round_key = [round_key[0].wrapping_add(0x9E37_79B9), round_key[1].wrapping_add(0xBB67_AE85)];
        now
    });
    let lanes = ids.as_chunks::<8>().0.iter().zip(words.as_chunks_mut::<8>().0);
    for (ids, words) in lanes {
        let mut c0 = [u64::from(key.position); 8];
        let mut c1 = ids.map(u64::from);
        let mut c2 = [u64::from(key.purpose); 8];
        let mut c3 = [0_u64; 8];
        for [first_key, second_key] in round_keys {
            for lane in 0..8 {
                let first = (c0[lane] & LOW) * 0xD251_1F53;
                let second = (c2[lane] & LOW) * 0xCD9E_8D57;
                c0[lane] = (second >> 32) ^ c1[lane] ^ first_key;
                c1[lane] = second;
                c2[lane] = (first >> 32) ^ c3[lane] ^ second_key;
                c3[lane] = first;
            }
        }
        *words = c0.map(|word| word as u32);
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::numerics::philox::random_word;
    use unisonic_core::numerics::sampling::{DrawKey, gumbel};

    use super::*;

    #[test]
    fn words_are_those_of_the_specification() {
        for (seed, position, purpose) in [(0, 0, 0), (u64::MAX, 7, 0), (0x1234_5678_9ABC_DEF0, u32::MAX, 3)] {
            let ids = std::array::from_fn(|i| (i as u32).wrapping_mul(0x0123_4567) ^ 0x8000_0001);
            let mut words = [0; BLOCK];
            random_words(&ids, DrawKey { seed, position, purpose }, &mut words);
            assert_eq!(words, ids.map(|id| random_word(seed, position, id, purpose)));
        }
    }

    /// Every exponent and a walk through its mantissas, the ends among them.
    #[test]
    fn the_bound_holds_for_every_word() {
        for exponent in 0..32 {
            let (first, last) = (1_u64 << exponent, (2_u64 << exponent) - 1);
            let step = (first / 20_000).max(1);
            let walk = (first..=last).step_by(step as usize).chain([last]);
            for word in walk.map(|word| word as u32).chain([0]) {
                let (noise, bound) = (gumbel(word), noise_bound(word));
                assert!(noise <= bound && bound <= LARGEST_NOISE, "word {word}: {noise}, {bound}");
                assert!(noise < 0.0 || bound < noise + 0.8, "word {word}: {noise}, {bound}");
            }
        }
    }
}
