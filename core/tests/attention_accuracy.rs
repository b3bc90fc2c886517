//! Attention against f64 softmax: u1 to the precision of its eight-bit values, the diagnostic `u1+exact-v` far beyond.

#[path = "support/generator.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod generator;

use generator::gauss_row;
use unisonic_core::numerics::attention::{
    CHUNK, KeyChunk, KvChunk, Q16, attend_chunk, default_kappa, finish, visible_in_chunk,
};
use unisonic_core::numerics::exact_v;
use unisonic_core::numerics::kv::{quantize_head_16, quantize_value_8};
use unisonic_core::numerics::merge::Merger;

const HEAD: usize = 64;
const CHUNKS: usize = 20;

/// The largest difference from f64 softmax, relative to the largest output: (u1, diagnostic).
fn errors(position: usize) -> (f64, f64) {
    let slots = CHUNKS * CHUNK;
    let (keys, values, query) = (gauss_row(1, slots * HEAD), gauss_row(2, slots * HEAD), gauss_row(3, HEAD));
    let (mut kh, mut kl, mut sk) = (vec![0; slots * HEAD], vec![0; slots * HEAD], vec![0.0; slots]);
    let (mut vq, mut sv) = (vec![0; slots * HEAD], vec![0.0; slots]);
    for j in 0..slots {
        let at = j * HEAD..(j + 1) * HEAD;
        assert!(quantize_head_16(&keys[at.clone()], &mut kh[at.clone()], &mut kl[at.clone()], &mut sk[j]));
        assert!(quantize_value_8(&mut values[at.clone()].to_vec(), &mut vq[at], &mut sv[j]));
    }
    let (mut qh, mut ql, mut sq) = ([0; HEAD], [0; HEAD], 0.0);
    assert!(quantize_head_16(&query, &mut qh, &mut ql, &mut sq));
    let q = Q16 { high: &qh, low: &ql, scale: sq };
    let kappa = default_kappa(HEAD as u32);

    let (mut u1, mut diagnostic) = (Merger::new(), Merger::new());
    for c in 0..CHUNKS {
        let visible = visible_in_chunk(position as u32, None, c as u32);
        if visible.is_empty() {
            continue;
        }
        let (scales, bytes) = (c * CHUNK..(c + 1) * CHUNK, c * CHUNK * HEAD..(c + 1) * CHUNK * HEAD);
        let keys =
            KeyChunk { high: &kh[bytes.clone()], low: &kl[bytes.clone()], scales: &sk[scales.clone()] };
        let chunk = KvChunk {
            key_high: keys.high,
            key_low: keys.low,
            key_scales: keys.scales,
            value: &vq[bytes.clone()],
            value_scales: &sv[scales],
        };
        u1.push(c, attend_chunk(&q, kappa, None, &chunk, visible.clone()));
        diagnostic.push(c, exact_v::attend_chunk(&q, kappa, None, &keys, &values[bytes], visible));
    }
    let (mut out, mut exact) = ([0.0; HEAD], [0.0; HEAD]);
    finish(&u1.finish().expect("chunk 0 has a visible key"), &mut out);
    exact_v::finish(&diagnostic.finish().expect("chunk 0 has a visible key"), &mut exact);

    let reference = softmax_reference(&query, &keys, &values, position);
    let largest =
        reference.iter().fold(0.0, |largest: f64, o| if o.abs() > largest { o.abs() } else { largest });
    let worst = |out: &[f32]| {
        let errors = out.iter().zip(&reference).map(|(&o, r)| (f64::from(o) - r).abs() / largest);
        errors.fold(0.0, |worst: f64, error| if error > worst { error } else { worst })
    };
    (worst(&out), worst(&exact))
}

fn softmax_reference(query: &[f32], keys: &[f32], values: &[f32], position: usize) -> Vec<f64> {
    let scores: Vec<f64> = keys
        .chunks(HEAD)
        .take(position + 1)
        .map(|key| key.iter().zip(query).map(|(&k, &q)| f64::from(k) * f64::from(q)).sum::<f64>() / 8.0)
        .collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b > a { b } else { a });
    let weights: Vec<f64> = scores.iter().map(|score| libm::exp(score - largest)).collect();
    let sum: f64 = weights.iter().sum();
    (0..HEAD)
        .map(|d| weights.iter().zip(values.chunks(HEAD)).map(|(w, v)| w * f64::from(v[d])).sum::<f64>() / sum)
        .collect()
}

#[test]
fn u1_and_the_diagnostic_are_close_to_softmax() {
    for position in [0, 5, 63, 64, 1023, 1024, CHUNKS * CHUNK - 1] {
        let (u1, diagnostic) = errors(position);
        assert!(u1 < 0.02, "u1 at {position}: {u1}");
        assert!(diagnostic < 2e-4, "u1+exact-v at {position}: {diagnostic}");
    }
}

/// The window's edges, over chunk borders.
#[test]
fn visible_keys_are_those_of_the_definition() {
    for position in [0_u32, 1, 62, 63, 64, 99, 100, 101, 163, 640] {
        for window in [None, Some(1), Some(37), Some(64), Some(100), Some(u32::MAX)] {
            for chunk in 0..11_u32 {
                let visible = visible_in_chunk(position, window, chunk);
                for i in 0..CHUNK as u32 {
                    let j = chunk * 64 + i;
                    let expected = j <= position && window.is_none_or(|window| position - j < window);
                    assert_eq!(
                        visible.contains(&(i as usize)),
                        expected,
                        "query {position}, key {j}, {window:?}"
                    );
                }
            }
        }
    }
}
