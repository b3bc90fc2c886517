//! Vectors and packed bytes.

use super::super::kernel::Attr;
use super::super::op::Op;
use super::super::types::Scalar;
use super::alu::{each1, each2};
use crate::format::blocks::f16_to_f32;

/// Computes the words of all invocations. `scalar` is that of the first operand.
pub fn compute(op: Op, attr: Attr, scalar: Option<Scalar>, x: &[&[u32]], lanes: usize, out: &mut [u32]) {
    match op {
        Op::Vec2 | Op::Vec4 => {
            for (lane, out) in out.chunks_exact_mut(x.len()).enumerate() {
                out.iter_mut().zip(x).for_each(|(out, part)| *out = part[lane]);
            }
        }
        Op::Part => {
            let Attr::Index(index) = attr else { unreachable!("a part has an index") };
            let width = x[0].len() / lanes;
            out.iter_mut().zip(x[0].chunks_exact(width)).for_each(|(out, x)| *out = x[index as usize]);
        }
        Op::Byte => {
            let Attr::Index(index) = attr else { unreachable!("a byte has an index") };
            let is_signed = scalar == Some(Scalar::I8x4);
            each1(x, out, |a| {
                let byte = a.to_le_bytes()[index as usize];
                if is_signed { i32::from(byte as i8) as u32 } else { u32::from(byte) }
            });
        }
        Op::Half => {
            let Attr::Index(index) = attr else { unreachable!("a half has an index") };
            each1(x, out, |a| f16_to_f32((a >> (16 * index)) as u16).to_bits());
        }
        Op::Permute => {
            let Attr::Selector(selector) = attr else { unreachable!("a permutation has a selector") };
            each2(x, out, |a, b| permute(a, b, selector.into()));
        }
        Op::PermuteBy => {
            for (((out, &a), &b), &selector) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
                *out = permute(a, b, selector);
            }
        }
        Op::Pack => {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = u32::from_le_bytes(std::array::from_fn(|i| x[i][lane] as u8));
            }
        }
        _ => unreachable!("`{}` is of another family", op.row().mnemonic),
    }
}

/// Byte i is the one of both words that digit i names.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes(std::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]))
}
