//! Attention over the packed cache.

use unisonic_core::numerics::attention::{
    CHUNK, KvChunk, Q16, attend_chunk, default_scale, finish, kappa, kappa_with_soft_cap, visible_in_chunk,
};
use unisonic_core::numerics::kv::quantize_value_8;
use unisonic_core::numerics::merge::Merger;
use unisonic_core::numerics::range::HEAD_LIMIT;
use unisonic_core::plan::{KvLayer, Limits};

use super::attention_input::make_special;
use super::generator::gauss_row;
use super::json::{assert_bits, float, floats, integer, list, load, plane, text};
use super::{Random, assert_same, each_isa};
use crate::isa::Kernels;
use crate::native::attention::{Keys, Query, Scores};
use crate::native::kv::{KvCache, Slot};

/// The heads of a layer; the sequence under test is in the last one.
const HEADS: u32 = 2;

/// A quantised head of a query or key.
struct Head {
    high: Vec<i8>,
    low: Vec<i8>,
    scale: f32,
}

impl Head {
    fn quantize(kernels: &Kernels, x: &[f32]) -> Self {
        let mut head = Self { high: vec![-128; x.len()], low: vec![-128; x.len()], scale: f32::NAN };
        let (high, low) = (head.high.as_mut_ptr(), head.low.as_mut_ptr());
        // SAFETY: `Isa::kernels` has asked for the instructions; the planes have room for a multiple of 16 values.
        assert!(unsafe { (kernels.quantize_16)(x, HEAD_LIMIT, high, low, &mut head.scale) });
        head
    }
}

/// Keys and values of a sequence, `[key][head_len]`, and their quantised form.
struct Sequence {
    head_len: usize,
    keys: Vec<Head>,
    value: Vec<i8>,
    value_scales: Vec<f32>,
}

impl Sequence {
    fn quantize(kernels: &Kernels, k: &[f32], v: &[f32], head_len: usize) -> Self {
        let mut value = vec![-128; v.len()];
        let mut value_scales = Vec::new();
        for (v, plane) in v.chunks_exact(head_len).zip(value.chunks_exact_mut(head_len)) {
            let mut scale = f32::NAN;
            assert!(quantize_value_8(&mut v.to_vec(), plane, &mut scale));
            value_scales.push(scale);
        }
        let keys = k.chunks_exact(head_len).map(|k| Head::quantize(kernels, k)).collect();
        Self { head_len, keys, value, value_scales }
    }

    /// The cache with some of the keys; everything else is 0xFF. Pages lie in reverse order, with others between.
    fn cache(&self, written: impl Fn(usize) -> bool) -> (KvCache, Vec<u32>) {
        let count = self.keys.len().div_ceil(CHUNK) as u32;
        let layer = KvLayer { heads: HEADS, head_len: self.head_len as u32 };
        let limits = Limits { kv_pages: 2 * count + 1, max_rows: 1, max_outputs: 1 };
        let mut cache = KvCache::allocate(layer, limits).unwrap();
        cache.fill(0xFF);
        let pages: Vec<u32> = (0..count).map(|page| 2 * (count - page)).collect();
        for (j, key) in self.keys.iter().enumerate().filter(|&(j, _)| written(j)) {
            let slot = Slot {
                key_high: &key.high,
                key_low: &key.low,
                key_scale: key.scale,
                value: &self.value[j * self.head_len..][..self.head_len],
                value_scale: self.value_scales[j],
            };
            // SAFETY: no other thread knows the cache.
            unsafe { cache.write(pages[j / CHUNK], HEADS as usize - 1, j % CHUNK, &slot) };
        }
        (cache, pages)
    }

    /// A query over the keys that it sees, once with nothing else in the cache and once with all other keys.
    fn attend(&self, kernels: &Kernels, query: &Head, scores: Scores, position: u32) -> [Vec<f32>; 2] {
        let window = scores.window.map_or(usize::MAX, |window| window as usize);
        let sees = |j: usize| j <= position as usize && position as usize - j < window;
        let attend = |(cache, pages): (KvCache, Vec<u32>)| {
            let mut out = vec![f32::NAN; self.head_len];
            let query = Query { high: &query.high, low: &query.low, scale: query.scale };
            let keys = Keys { cache: &cache, head: HEADS as usize - 1, pages: &pages, position };
            // SAFETY: `Isa::kernels` has asked for the instructions; heads are multiples of 16 and short enough.
            unsafe { (kernels.attend)(&query, scores, &keys, &mut out) };
            out
        };
        [attend(self.cache(sees)), attend(self.cache(|_| true))]
    }

    /// The same by `core::numerics`.
    fn reference(&self, query: &Head, scores: Scores, position: u32) -> Vec<f32> {
        let q = Q16 { high: &query.high, low: &query.low, scale: query.scale };
        let mut merger = Merger::new();
        for c in 0..=position as usize / CHUNK {
            let visible = visible_in_chunk(position, scores.window, c as u32);
            if visible.is_empty() {
                continue;
            }
            let slots = c * CHUNK..self.keys.len().min((c + 1) * CHUNK);
            let keys = &self.keys[slots.clone()];
            let plane = |of: fn(&Head) -> &[i8]| keys.iter().flat_map(of).copied().collect::<Vec<i8>>();
            let chunk = KvChunk {
                key_high: &plane(|key| &key.high),
                key_low: &plane(|key| &key.low),
                key_scales: &keys.iter().map(|key| key.scale).collect::<Vec<f32>>(),
                value: &self.value[slots.start * self.head_len..slots.end * self.head_len],
                value_scales: &self.value_scales[slots],
            };
            merger.push(c, attend_chunk(&q, scores.kappa, scores.soft_cap, &chunk, visible));
        }
        let mut out = vec![f32::NAN; self.head_len];
        finish(&merger.finish().expect("a query sees itself"), &mut out);
        out
    }
}

#[test]
fn known_answers() {
    for case in list(&load("attention")["cases"]) {
        let (head_len, count) = (integer(&case["hd"]) as usize, integer(&case["keys"]) as usize);
        let seed = integer(&case["seed"]) as u64;
        let (mut k, mut v) = (gauss_row(seed, count * head_len), gauss_row(seed + 1, count * head_len));
        k.iter_mut().for_each(|k| *k *= float(&case["k_scale"]));
        make_special(case["special"].as_str(), &mut k, &mut v, head_len);
        let scores = Scores {
            kappa: float(&case["kappa"]),
            window: case["window"].as_u64().map(|window| window as u32),
            soft_cap: case["softcap"].is_string().then(|| float(&case["softcap"])),
        };
        each_isa(|isa, kernels| {
            let sequence = Sequence::quantize(kernels, &k, &v, head_len);
            for query in list(&case["queries"]) {
                let position = integer(&query["pos"]) as u32;
                let name = format!("{isa}, {}, position {position}", text(&case["name"]));
                let head = Head::quantize(kernels, &floats(&query["q"]));
                assert_eq!(head.high, plane(&query["qh"]), "{name}: qh");
                assert_eq!(head.low, plane(&query["ql"]), "{name}: ql");
                assert_bits(&[head.scale], &query["sq"], &name);
                for out in sequence.attend(kernels, &head, scores, position) {
                    assert_bits(&out, &query["o"], &name);
                }
            }
        });
    }
}

/// Keys and values of differing magnitudes; some are zero or below what attention counts.
fn random_rows(random: &mut Random, count: usize, head_len: usize, spread: i32) -> Vec<f32> {
    let mut rows = Vec::with_capacity(count * head_len);
    for _ in 0..count {
        let exponent = match random.below(32) {
            0 => -100,
            1 => -38,
            2 => -20,
            _ => random.below(spread as usize + 1) as i32 - spread / 2,
        };
        rows.extend((0..head_len).map(|_| {
            let below = random.below(5) as i32;
            if exponent == -100 { 0.0 } else { random.float(exponent - below) }
        }));
    }
    rows
}

#[test]
fn random_sequences_equal_the_reference() {
    let mut random = Random::new(300);
    for round in 0..48 {
        let head_len = [64, 80, 96, 112, 128, 256][round % 6];
        // Each head length also crosses the border of a group at 1024 keys.
        let count = 1 + random.below(if round < 12 { 2300 } else { 300 });
        let count = if round < 6 { count.max(1100) } else { count };
        let spread = random.pick(&[0, 2, 8, 40]);
        let k = random_rows(&mut random, count, head_len, spread);
        let v = random_rows(&mut random, count, head_len, 4);
        let soft_cap = random.pick(&[None, Some(50.0), Some(0.25)]);
        let scale = default_scale(head_len as u32);
        let scores = Scores {
            kappa: if soft_cap.is_some() { kappa_with_soft_cap(scale) } else { kappa(scale) },
            window: random.pick(&[None, None, Some(1), Some(16), Some(100), Some(1024)]),
            soft_cap,
        };
        let last = count as u32 - 1;
        let positions =
            [last, random.below(count) as u32, last / 64 * 64, (last / 64 * 64).saturating_sub(1)];
        let queries = random_rows(&mut random, positions.len(), head_len, spread);
        each_isa(|isa, kernels| {
            let sequence = Sequence::quantize(kernels, &k, &v, head_len);
            for (position, query) in positions.into_iter().zip(queries.chunks_exact(head_len)) {
                let query = Head::quantize(kernels, query);
                let expected = sequence.reference(&query, scores, position);
                for out in sequence.attend(kernels, &query, scores, position) {
                    assert_same(&out, &expected, || {
                        format!("{isa}, {head_len} dimensions, {count} keys, position {position}, {scores:?}")
                    });
                }
            }
        });
    }
}

/// A sequence whose softmax exponents are chosen: chunks and keys whose weights lie just above and below the limit of
/// 32, large ones mostly with a value of zero, so that the small ones decide the result, and values that are so small
/// that outputs lie around 2^-60.
#[test]
fn sequences_around_the_thresholds_equal_the_reference() {
    let mut random = Random::new(301);
    for round in 0..150 {
        let head_len = random.pick(&[16, 64]);
        let kappa = kappa(default_scale(head_len as u32));
        let query: Vec<f32> = (0..head_len).map(|_| 3.0 + random.float(-1)).collect();
        let dot: f32 = query.iter().fold(0.0, |sum, q| sum + q * q);
        let count = 1 + random.below(200) + if round % 2 == 0 { 1024 } else { 0 };
        let (mut k, mut v) = (Vec::new(), Vec::new());
        // Weights down to the limit, or outputs around 2^-60.
        let exponents: &[i32] =
            random.pick(&[&[0, -1, -10, -20, -28, -31, -32, -33, -34], &[0, -14, -15, -16, -17, -34]]);
        let (mut of_chunk, mut largest) = (0, 0);
        for j in 0..count {
            if j % CHUNK == 0 {
                of_chunk = random.pick(&[0, 0, -1, -2, -31, -32, -33]);
                largest = random.pick(&[-40, -39, -38, 0]);
            }
            let of_key = random.pick(exponents);
            let exponent = (of_chunk + of_key) as f32 + random.below(100) as f32 * 0.008 - 0.4;
            let factor = exponent / (dot * kappa);
            k.extend(query.iter().map(|q| q * factor));
            let is_zero = of_key > -5 && random.below(256) != 0;
            let value = if is_zero { 0.0 } else { random.float(largest) };
            // Nearly flat, so that most dimensions of the rotated value are small.
            v.extend((0..head_len).map(|_| value + value * 0.015625 * random.below(16) as f32));
        }
        let last = count as u32 - 1;
        // Few keys, so that a group has one chunk.
        let window = random.pick(&[None, Some(64), Some(last % 1024 + 10), Some(last % 1024 + 100)]);
        let scores = Scores { kappa, window, soft_cap: None };
        each_isa(|isa, kernels| {
            let sequence = Sequence::quantize(kernels, &k, &v, head_len);
            let query = Head::quantize(kernels, &query);
            let expected = sequence.reference(&query, scores, last);
            for out in sequence.attend(kernels, &query, scores, last) {
                assert_same(&out, &expected, || format!("{isa}, round {round}, {count} keys, {scores:?}"));
            }
        });
    }
}
