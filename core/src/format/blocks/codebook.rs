//! Blocks whose four-bit codes stand for fixed integers: IQ4_NL, IQ4_XS, MXFP4.

use super::plain::{nibbles, tail};
use crate::numerics::float::pow2;

/// The 16 levels of IQ4_NL and IQ4_XS (`kvalues_iq4nl`).
pub const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values of a four-bit float, doubled: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
pub const MXFP4_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The largest exponent byte of MXFP4 that the range contract admits.
pub(super) const MXFP4_MAX_EXPONENT: u8 = 148;

fn look_up(levels: &[i8; 16], bytes: &[u8; 16], q: &mut [i8; 32]) {
    nibbles(bytes, q);
    for q in q {
        *q = levels[usize::from(*q as u8 & 15)];
    }
}

/// f16 d, 16 bytes of nibbles: levels.
pub(super) fn iq4_nl(block: &[u8; 18], q: &mut [i8; 32]) {
    look_up(&IQ4_LEVELS, tail(block), q);
}

/// Exponent byte, 16 bytes of nibbles: levels.
pub(super) fn mxfp4(block: &[u8; 17], q: &mut [i8; 32]) {
    look_up(&MXFP4_LEVELS, tail(block), q);
}

/// `d = 2^(e-128)` (the levels are doubled); +0 below e = 100. e above 148 is refused when a row is checked.
pub(super) fn mxfp4_scale(exponent: u8) -> f32 {
    if exponent < 100 { 0.0 } else { pow2(i32::from(exponent.min(MXFP4_MAX_EXPONENT)) - 128) }
}

/// f16 d, 2 bytes of upper scale bits, 4 bytes of lower scale bits, 8 sub-blocks of 16 bytes of nibbles: levels.
pub(super) fn iq4_xs(block: &[u8; 136], q: &mut [i8; 256]) {
    for (bytes, q) in block[8..].as_chunks().0.iter().zip(q.as_chunks_mut().0) {
        look_up(&IQ4_LEVELS, bytes, q);
    }
}

/// `ls - 32` of the 8 sub-blocks, ls six bits.
pub(super) fn iq4_xs_scales(block: &[u8; 136]) -> [i8; 8] {
    let upper = u16::from_le_bytes([block[2], block[3]]);
    std::array::from_fn(|b| {
        let low = (block[4 + b / 2] >> (4 * (b % 2))) & 15;
        let high = (upper >> (2 * b)) as u8 & 3;
        (low | (high << 4)) as i8 - 32
    })
}
