//! What probes are given.
//!
//! Values that rounding, signs and identities depend on, each with each, then values of all kinds from a fixed sequence.
//! What would make a subnormal number, an overflow or a NaN on the way is left out.

use crate::expected::{self, MATRICES_LEN};

/// 2^23 + 1 and its like are where sums round; 1 + 2^-23 where products do.
const FLOATS: [f32; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -2.5,
    3.0,
    0.333_333_34,
    -0.1,
    1.000_000_1,
    0.999_999_94,
    -1.000_000_2,
    4_095.000_2,
    -4_097.0,
    8_388_607.5,
    8_388_609.0,
    -12_582_911.0,
    16_777_215.0,
    16_777_216.0,
    1.844_674_4e19,
    -5.421_011e-20,
    1.175_494_4e-10,
];

/// The n-th number of a fixed sequence (the finaliser of MurmurHash3 over a counter).
fn hash(n: u32) -> u32 {
    let mut x = n.wrapping_mul(0x9E37_79B9).wrapping_add(0x85EB_CA6B);
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// A float of any sign and fraction, of exponents around that of 1.
fn float(n: u32, exponents: u32) -> f32 {
    let bits = hash(n);
    let exponent = 127 - exponents / 2 + hash(n ^ 0x5555_5555) % exponents;
    f32::from_bits(bits & 0x807F_FFFF | exponent << 23)
}

/// Whether a value may come up: zero or normal.
fn is_ordinary(x: f32) -> bool {
    x == 0.0 || x.is_normal()
}

/// Tuples of floats of which `on_the_way` gives everything that comes up; as many as whole workgroups take.
fn tuples<const N: usize>(
    count: usize,
    candidates: impl Iterator<Item = [f32; N]>,
    on_the_way: impl Fn([f32; N]) -> Vec<f32>,
) -> Vec<u32> {
    let ordinary =
        candidates.filter(|&tuple| tuple.iter().chain(&on_the_way(tuple)).all(|&value| is_ordinary(value)));
    ordinary.take(count).flatten().map(f32::to_bits).collect()
}

/// 1024 pairs.
pub fn pairs() -> Vec<u32> {
    let special = FLOATS.into_iter().flat_map(|a| FLOATS.into_iter().map(move |b| [a, b]));
    // Sums of near ones round in all ways, those of far ones are the larger one or its neighbour.
    let random = (0..).map(|n| [float(2 * n, if n % 2 == 0 { 8 } else { 60 }), float(2 * n + 1, 8)]);
    tuples(1024, special.chain(random), |[a, b]| vec![a + b, a - b, a * b])
}

/// 1024 triples; of the first half a product and the third value nearly cancel, so that it shows whether it was rounded.
pub fn triples() -> Vec<u32> {
    let cancelling = (0..512).map(|n| {
        let [a, b] = [float(3 * n + 7, 6), float(3 * n + 8, 6)];
        [a, b, -(a * b)]
    });
    let random = (0..).map(|n| [float(3 * n, 8), float(3 * n + 1, 8), float(3 * n + 2, 8)]);
    tuples(1024, cancelling.chain(random), expected::contraction_steps)
}

/// 512 values.
pub fn singles() -> Vec<u32> {
    let halves = (-60..60).map(|n| [n as f32 * 0.25]);
    let random = (0..).map(|n| [float(n, 24)]);
    let all = FLOATS.into_iter().map(|x| [x]).chain(halves).chain(random);
    tuples(512, all, |[t]| expected::reassociation_steps(t))
}

/// 512 values that are added in trees.
pub fn moderate() -> Vec<u32> {
    (0..512).map(|n| float(n, 12).to_bits()).collect()
}

/// 512 integers: around each power of 2, where conversions round, and others.
pub fn integers() -> Vec<u32> {
    let around =
        (0..32).flat_map(|bit| (0..8).map(move |near| (1_u32 << bit).wrapping_add(near).wrapping_sub(4)));
    around.chain((0..).map(hash)).take(512).collect()
}

/// 1024 pairs of integers.
pub fn integer_pairs() -> Vec<u32> {
    const WORDS: [u32; 12] = [
        0,
        1,
        2,
        31,
        0x7F,
        0x80,
        0x8080_8080,
        0x7F7F_7F7F,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFF80_7F01,
        0xFFFF_FFFF,
    ];
    let special = WORDS.into_iter().flat_map(|a| WORDS.into_iter().flat_map(move |b| [a, b]));
    special.chain((0..).map(hash)).take(2048).collect()
}

/// A, B and C of the product, one after the other, with what lies between rows.
pub fn matrices() -> Vec<u32> {
    // Every 17th word has the least bytes, whose products are the largest.
    let word = |n: u32| if n.is_multiple_of(17) { 0x8080_8080 } else { hash(n) };
    (0..MATRICES_LEN as u32).map(word).collect()
}

/// 1024 floats around halves: each power of 2, ties between halves, subnormal halves, overflows of either sign.
pub fn half_floats() -> Vec<u32> {
    // Of halves from the smallest to the largest, those between two of them.
    let between = (0..768_u32).map(|n| {
        let half = if n < 256 { n * 4 + hash(n) % 4 } else { hash(n) % 0x7C00 };
        let (exponent, fraction) = (half >> 10, half & 0x3FF);
        let unit = f32::from_bits((exponent.max(1) + 127 - 25) << 23);
        let integer = if exponent == 0 { fraction } else { fraction + 1024 };
        let part = [0.0, 0.25, 0.5, 0.75][(n % 4) as usize];
        let sign = if n % 3 == 0 { -1.0 } else { 1.0 };
        (integer as f32 + part) * unit * sign
    });
    const LARGE: [f32; 8] = [65_504.0, 65_519.0, 65_520.0, 65_536.0, 70_000.0, 131_072.0, 1e10, 3e38];
    let large = (0..256).map(|n| LARGE[n % 8] * if n / 8 % 2 == 0 { 1.0 } else { -1.0 });
    // Large ones beside small ones, in either half.
    let (between, large): (Vec<f32>, Vec<f32>) = (between.collect(), large.collect());
    let pairs = large.iter().zip(&between).enumerate();
    let mixed =
        pairs.flat_map(|(n, (&large, &small))| if n % 2 == 0 { [large, small] } else { [small, large] });
    mixed.chain(between[256..].iter().copied()).take(1024).map(f32::to_bits).collect()
}

/// 512 words of two halves: all exponents, subnormals.
pub fn halves() -> Vec<u32> {
    let finite = |half: u32| if half & 0x7C00 == 0x7C00 { half & !0x0400 } else { half };
    let subnormal = (0..128_u32).map(|n| 1 << (n % 10) | (n & 1) << 15 | (hash(n) & 0x83FF) << 16);
    let random = (0..).map(|n| finite(hash(n) & 0xFFFF) | finite(hash(n) >> 16) << 16);
    subnormal.chain(random).take(512).collect()
}

/// 1024 pairs with what is subnormal, or becomes so.
pub fn subnormals() -> Vec<u32> {
    const WORDS: [u32; 16] = [
        0,
        0x8000_0000,
        1,
        2,
        0x8000_0001,
        0x0000_FFFF,
        0x007F_FFFF,
        0x807F_FFFF,
        0x0080_0000,
        0x8080_0000,
        0x0080_0001,
        0x00FF_FFFF,
        0x0100_0001,
        0x3F80_0000,
        0xBF00_0001,
        0x4B80_0001,
    ];
    let special = WORDS.into_iter().flat_map(|a| WORDS.into_iter().flat_map(move |b| [a, b]));
    // Exponents up to 2^-96 for sums, and some whose products are small.
    let small = |n: u32| hash(n) & 0x807F_FFFF | (hash(n ^ 0x5555_5555) % 32) << 23;
    let medium = |n: u32| hash(n) & 0x807F_FFFF | (50 + hash(n ^ 0xAAAA) % 24) << 23;
    let random =
        (0..).flat_map(|n| if n % 2 == 0 { [small(n), small(n + 7)] } else { [medium(n), medium(n + 7)] });
    special.chain(random).take(2048).collect()
}
