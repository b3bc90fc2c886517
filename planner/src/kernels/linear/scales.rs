//! The scales of 16 rows and a superblock: those of weight rows g and g + 8, which an invocation needs.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::planes::weight::{Plane, WeightFormat};

use unisonic_core::format::blocks::BlockFormat;

use super::integers::parts;
use super::operands::{Place, Words};

/// Scales of rows g and g + 8.
pub enum Scales<'k> {
    /// d_b and m_b of 8 blocks, f32.
    Blocks {
        /// Of each row, each half of the superblock.
        d: [[V<'k>; 2]; 2],
        /// The same of the minima, where there are.
        m: Option<[[V<'k>; 2]; 2]>,
    },
    /// d and integer scales of sub-blocks.
    SubBlocks {
        /// Elements of a sub-block: 16 or 32.
        len: u32,
        /// Of each row, four scales a word.
        scales: [Vec<V<'k>>; 2],
        /// Of each row, four minima a word; none where there are no minima.
        minima: [Vec<V<'k>>; 2],
        /// Of each row, d and dmin.
        d: [Vec<V<'k>>; 2],
    },
}

/// Whether a format has integer minima.
pub fn has_minima(format: WeightFormat) -> bool {
    matches!(format, WeightFormat::Block(BlockFormat::Q2_K | BlockFormat::Q4_K | BlockFormat::Q5_K))
}

/// Whether products of an integer and its scale are bytes: up to 3*15 in Q2_K.
pub fn scales_fit_bytes(format: WeightFormat) -> bool {
    format == WeightFormat::Block(BlockFormat::Q2_K)
}

impl<'k> Scales<'k> {
    /// Loads them.
    pub fn load(format: WeightFormat, place: &Place<'k>, from: &impl Words<'k>) -> Self {
        let rows = [place.g, place.g + 8];
        if format.has(Plane::FloatScales) {
            let float = |at| from.words(Plane::FloatScales, at, 4).cast(Scalar::F32);
            return Scales::Blocks { d: rows.map(|row| [float(row * 8), float(row * 8 + 4)]), m: None };
        }
        let eight = |plane| {
            let four = |at| from.halves(plane, at, 4).half_to_f32();
            rows.map(|row| [four(row * 8), four(row * 8 + 4)])
        };
        if format.has(Plane::BlockScales) {
            let m = format.has(Plane::BlockMinima).then(|| eight(Plane::BlockMinima));
            return Scales::Blocks { d: eight(Plane::BlockScales), m };
        }
        let words = rows.map(|row| parts(from.words(Plane::SubScales, row * 4, 4)));
        let halves = if has_minima(format) { 2 } else { 1 };
        let d = rows.map(|row| {
            let d = match format.has(Plane::Halves) {
                true => from.halves(Plane::Halves, row * halves, halves as u8),
                // Behind the 12 bytes of scales.
                false => from.halves(Plane::SubScales, row * 8 + 6, 2),
            };
            (0..halves).map(|half| if halves == 1 { d } else { d.part(half) }.half_to_f32()).collect()
        });
        let (len, scales, minima) = match (has_minima(format), format.has(Plane::Halves)) {
            (false, _) => (16, words.map(|words| words.to_vec()), [vec![], vec![]]),
            (true, true) => {
                let low = |words: [V<'k>; 4]| words.map(|word| word & 0x0F0F_0F0F).to_vec();
                (16, words.map(low), words.map(|words| low(words.map(|word| word >> 4))))
            }
            (true, false) => (32, words.map(packed_scales), words.map(packed_minima)),
        };
        Scales::SubBlocks { len, scales, minima, d }
    }
}

/// Six bits each, sub-blocks 0..3 whole in a word, 4..7 in pieces: `numerics`' `q4_k_scales`, four at a time.
fn packed_scales(w: [V<'_>; 4]) -> Vec<V<'_>> {
    vec![w[0] & 0x3F3F_3F3F, w[2] & 0x0F0F_0F0F | (w[0] >> 2) & 0x3030_3030]
}

fn packed_minima(w: [V<'_>; 4]) -> Vec<V<'_>> {
    vec![w[1] & 0x3F3F_3F3F, (w[2] >> 4) & 0x0F0F_0F0F | (w[1] >> 2) & 0x3030_3030]
}

/// Register words of minima for the product with digits (`core::planes::activation`): what lane t holds of words 0 and 1 of
/// a row.
pub fn minima_registers<'k>(k: &'k Build, place: &Place<'k>, minima: &[V<'k>]) -> [V<'k>; 2] {
    let odd = (place.t & 1).eq(k.u32(1));
    let upper = k.u32(1).lt(place.t);
    let words = match *minima {
        // Digits weigh 1, 2, 2, 2; t says which sub-blocks, and which digit of the first word.
        [low, high] => {
            let m = odd.select(high, low);
            [upper.select(m << 1, m), m << 1]
        }
        // Digits weigh 1 and 8.
        _ => {
            let m = upper.select(odd.select(minima[3], minima[2]), odd.select(minima[1], minima[0]));
            [m, m << 3]
        }
    };
    words.map(|word| word.cast(Scalar::I8x4))
}
