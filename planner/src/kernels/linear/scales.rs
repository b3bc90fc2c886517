//! The scales of 16 rows and a superblock: those of weight rows g and g + 8, which an invocation needs.

use unisonic_core::format::blocks::BlockFormat;
use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::planes::digits::Digits;
use unisonic_core::planes::weight::{Plane, WeightFormat};

use super::integers::parts;
use super::operands::{Place, Words};

/// Scales of rows g and g + 8.
pub enum Scales<'k> {
    /// Of each row, d_b and m_b of 8 blocks; no `m` where there are no minima.
    Blocks {
        /// d_b.
        d: [Eight<'k>; 2],
        /// m_b.
        m: Option<[Eight<'k>; 2]>,
    },
    /// d and integer scales of sub-blocks.
    SubBlocks {
        /// Elements of a sub-block: 16, 32, or 256 where there are no integer scales.
        len: u32,
        /// Of each row, four scales a word.
        scales: [Vec<V<'k>>; 2],
        /// Of each row, four minima a word; none where there are no minima.
        minima: [Vec<V<'k>>; 2],
        /// Of each row, d.
        d: [V<'k>; 2],
        /// Of each row, dmin; none where there are no minima.
        dmin: Option<[V<'k>; 2]>,
    },
}

/// Eight numbers, as they were loaded.
#[derive(Clone, Copy)]
pub enum Eight<'k> {
    /// f16 in four words.
    Halves(V<'k>),
    /// f32 in twice four words.
    Floats([V<'k>; 2]),
    /// Bytes e in two words, for 2^(e - 128), or +0 below 100.
    Exponents(V<'k>),
}

impl<'k> Eight<'k> {
    /// The b-th as f32.
    pub fn get(self, k: &'k Build, b: u32) -> V<'k> {
        match self {
            Eight::Halves(words) => words.part(b / 2).half(b % 2),
            Eight::Floats(words) => words[b as usize / 4].part(b % 4),
            Eight::Exponents(words) => {
                let e = words.part(b / 4).cast(Scalar::U8x4).byte(b % 4);
                e.lt(k.i32(100)).select(k.f32(0.0), ((e - 1) << 23).cast(Scalar::F32))
            }
        }
    }
}

/// Whether products of an integer and its scale are bytes: up to 3*15 in Q2_K.
pub fn scales_fit_bytes(format: WeightFormat) -> bool {
    format == WeightFormat::Block(BlockFormat::Q2_K)
}

/// Whether each block of 32 takes two matrix products: one for each half, whose scale is its own, or one for
/// each byte.
pub fn takes_two_products(format: WeightFormat) -> bool {
    let has_halves = format.has(Plane::SubScales) && Digits::of(format).is_none();
    has_halves || format == WeightFormat::W16
}

impl<'k> Scales<'k> {
    /// Loads them.
    pub fn load(format: WeightFormat, place: &Place<'k>, from: &impl Words<'k>) -> Self {
        let rows = [place.g, place.g + 8];
        if format.has(Plane::FloatScales) {
            let float = |at| from.words(Plane::FloatScales, at, 4).cast(Scalar::F32);
            let d = rows.map(|row| Eight::Floats([float(row * 8), float(row * 8 + 4)]));
            return Scales::Blocks { d, m: None };
        }
        if format.has(Plane::BlockScales) {
            let eight = |plane| rows.map(|row| Eight::Halves(from.words(plane, row * 4, 4)));
            let m = format.has(Plane::BlockMinima).then(|| eight(Plane::BlockMinima));
            return Scales::Blocks { d: eight(Plane::BlockScales), m };
        }
        if format.has(Plane::BlockBytes) {
            let words = rows.map(|row| from.words(Plane::BlockBytes, row * 2, 2));
            if !format.has(Plane::Halves) {
                return Scales::Blocks { d: words.map(Eight::Exponents), m: None };
            }
            let scales = words.map(|words| vec![words.part(0), words.part(1)]);
            return Self::without_minima(32, scales, place, from);
        }
        if !format.has(Plane::SubScales) {
            return Self::without_minima(256, [vec![], vec![]], place, from);
        }
        let words = rows.map(|row| parts(from.words(Plane::SubScales, row * 4, 4)));
        match Digits::of(format) {
            None => Self::without_minima(16, words.map(|words| words.to_vec()), place, from),
            Some(digits) => Self::with_minima(digits, words, rows, from),
        }
    }

    /// Of sub-blocks of `len` elements, with d of both rows in a word.
    fn without_minima(len: u32, scales: [Vec<V<'k>>; 2], place: &Place<'k>, from: &impl Words<'k>) -> Self {
        let d = from.words(Plane::Halves, place.g, 1);
        Scales::SubBlocks { len, scales, minima: [vec![], vec![]], d: [d.half(0), d.half(1)], dmin: None }
    }

    /// From the words of [`Plane::SubScales`] of each row.
    fn with_minima(digits: Digits, words: [[V<'k>; 4]; 2], rows: [V<'k>; 2], from: &impl Words<'k>) -> Self {
        let nibbles = |word: V<'k>| word & 0x0F0F_0F0F;
        match digits {
            Digits::Sixteen => {
                let d = rows.map(|row| from.words(Plane::Halves, row, 1));
                Scales::SubBlocks {
                    len: 16,
                    scales: words.map(|words| words.map(nibbles).to_vec()),
                    minima: words.map(|words| words.map(|word| nibbles(word >> 4)).to_vec()),
                    d: d.map(|d| d.half(0)),
                    dmin: Some(d.map(|d| d.half(1))),
                }
            }
            Digits::Eight => Scales::SubBlocks {
                len: 32,
                scales: words.map(packed_scales),
                minima: words.map(packed_minima),
                d: words.map(|words| words[3].half(0)),
                dmin: Some(words.map(|words| words[3].half(1))),
            },
        }
    }
}

/// Six bits each, sub-blocks 0..3 whole in a word, 4..7 in pieces: `numerics`' `q4_k_scales`, four at a time.
fn packed_scales(w: [V<'_>; 4]) -> Vec<V<'_>> {
    vec![w[0] & 0x3F3F_3F3F, w[2] & 0x0F0F_0F0F | (w[0] >> 2) & 0x3030_3030]
}

fn packed_minima(w: [V<'_>; 4]) -> Vec<V<'_>> {
    vec![w[1] & 0x3F3F_3F3F, (w[2] >> 4) & 0x0F0F_0F0F | (w[1] >> 2) & 0x3030_3030]
}

/// Register words of minima for the product with digits (`core::planes::digits`), times the weights of the
/// digits: what lane t holds of words 0 and 1 of a row.
pub fn minima_registers<'k>(k: &'k Build, place: &Place<'k>, digits: Digits, minima: &[V<'k>]) -> [V<'k>; 2] {
    let odd = (place.t & 1).eq(k.u32(1));
    let upper = k.u32(1).lt(place.t);
    let words = match digits {
        // Digits weigh 1, 2, 2, 2; t says which sub-blocks, and which digit of the first word.
        Digits::Eight => {
            let m = odd.select(minima[1], minima[0]);
            [upper.select(m << 1, m), m << 1]
        }
        // Digits weigh 1 and 8.
        Digits::Sixteen => {
            let m = upper.select(odd.select(minima[3], minima[2]), odd.select(minima[1], minima[0]));
            [m, m << 3]
        }
    };
    words.map(|word| word.cast(Scalar::I8x4))
}
