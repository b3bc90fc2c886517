//! Memory bandwidth: how fast threads can stream through memory that no cache holds.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use memmap2::MmapMut;

use crate::output::bytes;

/// Least length of the buffer.
const MIN_LEN_BYTES: u64 = 256 << 20;
/// Largest length of the buffer.
const MAX_LEN_BYTES: u64 = 4 << 30;
/// The buffer is at least this many times as long as the caches together. A cache that drops what was used longest ago
/// then has dropped all of it when a pass begins anew.
const CACHE_MULTIPLE: u64 = 2;
/// The buffer takes at most this part of the memory that is left.
const AVAILABLE_DIVISOR: u64 = 4;
/// Passes through the buffer in a measurement.
const PASSES: u64 = 3;
/// Distance of the places that a thread reads at a time: more than one stream keeps more of the memory busy.
const STREAMS: usize = 4;

/// Threads, each with its piece of a buffer far larger than the caches. They end when this is dropped.
pub struct Bandwidth {
    workers: Vec<Sender<Arc<Barrier>>>,
    len_bytes: u64,
}

impl Bandwidth {
    /// Starts the threads, given the length of all last-level caches and the memory that is left, where they are known.
    /// An error says why there is no measurement.
    pub fn new(
        threads: u32,
        cache_len_bytes: Option<u64>,
        available_bytes: Option<u64>,
    ) -> Result<Self, String> {
        let wanted_len_bytes = buffer_len_bytes(cache_len_bytes, available_bytes)?;
        let piece_len_bytes = usize::try_from(wanted_len_bytes.div_ceil(u64::from(threads.max(1))))
            .map_err(|_| format!("no piece of memory is {} long", bytes(wanted_len_bytes)))?;
        let workers: Vec<_> = (0..threads).map_while(|_| worker(piece_len_bytes)).collect();
        let len_bytes = workers.len() as u64 * piece_len_bytes as u64;
        if len_bytes < wanted_len_bytes {
            return Err(format!("only {} of {threads} threads got their memory", workers.len()));
        }
        Ok(Self { workers, len_bytes })
    }

    /// Bytes a second over some passes through the buffer.
    pub fn measure(&self) -> f64 {
        let barrier = Arc::new(Barrier::new(self.workers.len() + 1));
        for worker in &self.workers {
            worker.send(Arc::clone(&barrier)).expect("workers wait for as long as they can be told to work");
        }
        barrier.wait();
        let started = Instant::now();
        barrier.wait();
        (PASSES * self.len_bytes) as f64 / started.elapsed().as_secs_f64()
    }

    /// Threads that read.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Length of the buffer.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

fn buffer_len_bytes(cache_len_bytes: Option<u64>, available_bytes: Option<u64>) -> Result<u64, String> {
    let caches_len_bytes = cache_len_bytes.unwrap_or(0);
    let len_bytes = caches_len_bytes.saturating_mul(CACHE_MULTIPLE).max(MIN_LEN_BYTES);
    if len_bytes > MAX_LEN_BYTES {
        return Err(format!("caches of {} take too large a buffer", bytes(caches_len_bytes)));
    }
    match available_bytes {
        Some(available) if len_bytes > available / AVAILABLE_DIVISOR => Err(format!(
            "the buffer would take {}, which is more than a {AVAILABLE_DIVISOR}th of the {} that are left",
            bytes(len_bytes),
            bytes(available)
        )),
        _ => Ok(len_bytes),
    }
}

/// A thread with memory of its own; none where the system has no thread or memory left.
fn worker(len_bytes: usize) -> Option<Sender<Arc<Barrier>>> {
    let memory = MmapMut::map_anon(len_bytes).ok()?;
    // Without huge pages it is slower, as a model in usual pages is.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    let (sender, receiver) = channel();
    thread::Builder::new().name("bandwidth".into()).spawn(move || work(memory, &receiver)).ok()?;
    Some(sender)
}

fn work(mut memory: MmapMut, jobs: &Receiver<Arc<Barrier>>) {
    // Written by the thread that reads it, so that it lies near its processor, and because a system may keep one page
    // for all memory that was never written.
    memory.fill(1);
    for barrier in jobs {
        barrier.wait();
        for _ in 0..PASSES {
            black_box(sum(black_box(&memory)));
        }
        barrier.wait();
    }
}

/// Sum of all whole words modulo 2^64, in lanes that do not wait for each other.
fn sum(bytes: &[u8]) -> u64 {
    const LANES: usize = 16;
    let mut lanes = [0u64; LANES];
    let (words, _) = bytes.as_chunks::<8>();
    let (lines, rest) = words.as_chunks::<LANES>();
    let (streams, rest_lines) = lines.split_at(lines.len() / STREAMS * STREAMS);
    let mut add = |line: &[[u8; 8]; LANES]| {
        for (lane, &word) in lanes.iter_mut().zip(line) {
            *lane = lane.wrapping_add(u64::from_ne_bytes(word));
        }
    };
    let (a, b) = streams.split_at(streams.len() / 2);
    let ((a, b), (c, d)) = (a.split_at(a.len() / 2), b.split_at(b.len() / 2));
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        [a, b, c, d].into_iter().for_each(&mut add);
    }
    rest_lines.iter().for_each(add);
    let words = rest.iter().map(|&word| u64::from_ne_bytes(word));
    lanes.into_iter().chain(words).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1003).map(|i| i << 54 | i).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(sum(&bytes), words.iter().fold(0, |sum: u64, &word| sum.wrapping_add(word)));
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn threads_read_their_pieces_again_and_again() {
        let workers = (0..3).map(|_| worker(1 << 16).expect("a thread")).collect();
        let bandwidth = Bandwidth { workers, len_bytes: 3 << 16 };
        assert_eq!(bandwidth.threads(), 3);
        assert!(bandwidth.measure() > 0.0 && bandwidth.measure() > 0.0);
    }

    #[test]
    fn the_buffer_is_larger_than_the_caches_or_there_is_none() {
        assert_eq!(buffer_len_bytes(None, None), Ok(256 << 20));
        assert_eq!(buffer_len_bytes(Some(1 << 20), None), Ok(256 << 20));
        assert_eq!(buffer_len_bytes(Some(200 << 20), Some(1600 << 20)), Ok(400 << 20));
        let says = |cache, available| buffer_len_bytes(cache, available).expect_err("no room");
        assert!(says(Some(200 << 20), Some(1599 << 20)).contains("419.4 MB"));
        assert!(says(None, Some(1023 << 20)).contains("left"));
        assert!(says(Some(3 << 30), None).contains("caches of 3.22 GB"));
    }
}
