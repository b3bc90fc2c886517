//! Memory bandwidth: how fast threads can stream through memory that no cache holds.
//!
//! Decoding reads all weights for each token, so `bytes / bandwidth` is the least time that a token can take.

use std::hint::black_box;
use std::num::NonZero;
use std::time::Instant;

/// Least length of the buffer.
const MIN_LEN_BYTES: u64 = 256 << 20;
/// Largest length of the buffer.
const MAX_LEN_BYTES: u64 = 1 << 30;
/// The buffer is this many times as long as the largest cache. A cache that drops what was used longest ago then has
/// dropped all of it when a pass begins anew.
const CACHES: u64 = 2;
/// The buffer takes at most one part in this many of the memory that is left.
const PARTS_OF_AVAILABLE: u64 = 4;

/// A buffer far larger than the caches, read by several threads at a time.
pub struct Bandwidth {
    words: Vec<u64>,
    threads: NonZero<usize>,
    best_bytes_per_second: f64,
}

impl Bandwidth {
    /// Sets the buffer up, given the length of the largest cache and the memory that is left, where they are known; none
    /// where memory does not suffice.
    pub fn new(
        threads: NonZero<usize>,
        cache_len_bytes: Option<u64>,
        available_bytes: Option<u64>,
    ) -> Option<Self> {
        let len = usize::try_from(buffer_len_bytes(cache_len_bytes, available_bytes)? / 8).ok()?;
        let mut words = Vec::new();
        words.try_reserve_exact(len).ok()?;
        // Written, because a system may keep one page for all memory that was never written.
        words.extend(0..len as u64);
        Some(Self { words, threads, best_bytes_per_second: 0.0 })
    }

    /// Reads the buffer once; counts if it is the fastest pass so far.
    pub fn pass(&mut self) {
        let piece_len = self.words.len().div_ceil(self.threads.get()).max(1);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for piece in self.words.chunks(piece_len) {
                scope.spawn(move || black_box(sum(black_box(piece))));
            }
        });
        let rate = self.len_bytes() as f64 / started.elapsed().as_secs_f64();
        if rate > self.best_bytes_per_second {
            self.best_bytes_per_second = rate;
        }
    }

    /// The fastest pass.
    pub fn best_bytes_per_second(&self) -> f64 {
        self.best_bytes_per_second
    }

    /// Length of the buffer.
    pub fn len_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}

fn buffer_len_bytes(cache_len_bytes: Option<u64>, available_bytes: Option<u64>) -> Option<u64> {
    let wanted = cache_len_bytes.unwrap_or(0).saturating_mul(CACHES).clamp(MIN_LEN_BYTES, MAX_LEN_BYTES);
    let room = available_bytes.map_or(u64::MAX, |bytes| bytes / PARTS_OF_AVAILABLE);
    (room >= MIN_LEN_BYTES).then_some(wanted.min(room))
}

/// Sum of all words modulo 2^64, in lanes that do not wait for each other.
fn sum(words: &[u64]) -> u64 {
    let (chunks, rest) = words.as_chunks::<16>();
    let mut lanes = [0u64; 16];
    for chunk in chunks {
        for (lane, &word) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(word);
        }
    }
    lanes.iter().chain(rest).fold(0, |sum, &word| sum.wrapping_add(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1000).map(|i| i << 54 | i).collect();
        assert_eq!(sum(&words), words.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word)));
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn the_buffer_is_larger_than_the_caches() {
        assert_eq!(buffer_len_bytes(None, None), Some(256 << 20));
        assert_eq!(buffer_len_bytes(Some(1 << 20), None), Some(256 << 20));
        assert_eq!(buffer_len_bytes(Some(200 << 20), None), Some(400 << 20));
        assert_eq!(buffer_len_bytes(Some(u64::MAX), None), Some(1 << 30));
    }

    #[test]
    fn the_buffer_leaves_memory_to_others() {
        assert_eq!(buffer_len_bytes(Some(200 << 20), Some(8 << 30)), Some(400 << 20));
        assert_eq!(buffer_len_bytes(Some(u64::MAX), Some(2 << 30)), Some(512 << 20));
        assert_eq!(buffer_len_bytes(None, Some(512 << 20)), None, "too little to measure");
    }
}
