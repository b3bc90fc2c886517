//! Vectors and packed bytes.

use super::super::types::Scalar;
use super::alu::{each1, each2};
use crate::format::blocks::f16_to_f32;

/// A vector of its parts.
pub fn vector(x: &[&[u32]], out: &mut [u32]) {
    for (lane, out) in out.chunks_exact_mut(x.len()).enumerate() {
        out.iter_mut().zip(x).for_each(|(out, part)| *out = part[lane]);
    }
}

/// A part of a vector.
pub fn part(x: &[&[u32]], index: u32, out: &mut [u32]) {
    let width = x[0].len() / out.len();
    out.iter_mut().zip(x[0].chunks_exact(width)).for_each(|(out, x)| *out = x[index as usize]);
}

/// A byte, with the sign of its type.
pub fn byte(scalar: Option<Scalar>, x: &[&[u32]], index: u32, out: &mut [u32]) {
    let is_signed = scalar == Some(Scalar::I8x4);
    each1(x, out, |a| {
        let byte = a.to_le_bytes()[index as usize];
        if is_signed { i32::from(byte as i8) as u32 } else { u32::from(byte) }
    });
}

/// A half as a float.
pub fn half(x: &[&[u32]], index: u32, out: &mut [u32]) {
    each1(x, out, |a| f16_to_f32((a >> (16 * index)) as u16).to_bits());
}

/// Bytes of two words by a selector.
pub fn permute(x: &[&[u32]], selector: u32, out: &mut [u32]) {
    each2(x, out, |a, b| permuted(a, b, selector));
}

/// Bytes of two words by the digits of a third.
pub fn permute_by(x: &[&[u32]], out: &mut [u32]) {
    for (((out, &a), &b), &selector) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
        *out = permuted(a, b, selector);
    }
}

/// Byte i is the one of both words that bits 0-2 of digit i name.
fn permuted(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]))
}

/// The low bytes of four words.
pub fn pack(x: &[&[u32]], out: &mut [u32]) {
    for (lane, out) in out.iter_mut().enumerate() {
        *out = u32::from_le_bytes(std::array::from_fn(|i| x[i][lane] as u8));
    }
}
