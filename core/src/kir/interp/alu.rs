//! What values become: an exhaustive match over the operations that compute from registers.

use super::super::kernel::Attr;
use super::super::op::Op;
use super::super::types::Scalar;
use crate::format::blocks::f16_to_f32;

/// Computes the words of all invocations. `scalar` is that of the first operand.
pub fn compute(op: Op, attr: Attr, scalar: Option<Scalar>, x: &[&[u32]], lanes: usize, out: &mut [u32]) {
    let signed = scalar == Some(Scalar::I32);
    match op {
        Op::Const => {
            let Attr::Word(word) = attr else { unreachable!("a constant has a word") };
            out.fill(word);
        }
        Op::IAdd => each2(x, out, u32::wrapping_add),
        Op::ISub => each2(x, out, u32::wrapping_sub),
        Op::IMul => each2(x, out, u32::wrapping_mul),
        // Invocations that are not active may have zeros.
        Op::UDiv => each2(x, out, |a, b| a.checked_div(b).unwrap_or(0)),
        Op::URem => each2(x, out, |a, b| a.checked_rem(b).unwrap_or(0)),
        Op::IMin if signed => each2(x, out, |a, b| (a as i32).min(b as i32) as u32),
        Op::IMin => each2(x, out, u32::min),
        Op::IMax if signed => each2(x, out, |a, b| (a as i32).max(b as i32) as u32),
        Op::IMax => each2(x, out, u32::max),
        Op::And => each2(x, out, |a, b| a & b),
        Op::Or => each2(x, out, |a, b| a | b),
        Op::Xor => each2(x, out, |a, b| a ^ b),
        Op::Shl => each2(x, out, u32::wrapping_shl),
        Op::Shr if signed => each2(x, out, |a, b| (a as i32).wrapping_shr(b) as u32),
        Op::Shr => each2(x, out, u32::wrapping_shr),
        Op::IEq => each2(x, out, |a, b| u32::from(a == b)),
        Op::ILt if signed => each2(x, out, |a, b| u32::from((a as i32) < (b as i32))),
        Op::ILt => each2(x, out, |a, b| u32::from(a < b)),
        Op::Select => {
            for (((out, &holds), &yes), &no) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
                *out = if holds != 0 { yes } else { no };
            }
        }
        Op::FAdd => floats(x, out, |a, b| a + b),
        Op::FSub => floats(x, out, |a, b| a - b),
        Op::FMul => floats(x, out, |a, b| a * b),
        Op::I2F => each1(x, out, |a| (a as i32 as f32).to_bits()),
        Op::Cast => out.copy_from_slice(x[0]),
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
            each2(x, out, |a, b| {
                let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
                u32::from_le_bytes(std::array::from_fn(|i| bytes[usize::from(selector >> (4 * i) & 7)]))
            });
        }
        Op::PermuteBy => {
            for (((out, &a), &b), &selector) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
                let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
                *out = u32::from_le_bytes(std::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]));
            }
        }
        Op::Pack => {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = u32::from_le_bytes(std::array::from_fn(|i| x[i][lane] as u8));
            }
        }
        Op::Dot4 => {
            let is_signed = scalar == Some(Scalar::I8x4);
            for (((out, &a), &b), &sum) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
                let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| {
                    let a = if is_signed { i32::from(a as i8) } else { i32::from(a) };
                    a * i32::from(b as i8)
                });
                *out = (sum as i32).wrapping_add(products.sum()) as u32;
            }
        }
        Op::Param | Op::LocalId | Op::GroupId | Op::ShuffleXor | Op::Broadcast => {
            unreachable!("`{}` is no function of registers alone", op.row().mnemonic)
        }
        Op::Mma16 | Op::Mma32 => unreachable!("`{}` is of a cluster", op.row().mnemonic),
        Op::Load
        | Op::LoadStream
        | Op::Store
        | Op::CopyAsync
        | Op::CopyCommit
        | Op::CopyWait
        | Op::Barrier => unreachable!("`{}` is of memory", op.row().mnemonic),
    }
}

fn each1(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32) -> u32) {
    out.iter_mut().zip(x[0]).for_each(|(out, &a)| *out = f(a));
}

fn each2(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32, u32) -> u32) {
    out.iter_mut().zip(x[0]).zip(x[1]).for_each(|((out, &a), &b)| *out = f(a, b));
}

fn floats(x: &[&[u32]], out: &mut [u32], f: impl Fn(f32, f32) -> f32) {
    each2(x, out, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits());
}
