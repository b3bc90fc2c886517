//! Arithmetic on words.

use super::super::op::Op;
use super::super::types::Scalar;

/// Computes the words of all invocations. `scalar` is that of the first operand.
pub fn compute(op: Op, scalar: Option<Scalar>, x: &[&[u32]], out: &mut [u32]) {
    let signed = scalar == Some(Scalar::I32);
    match op {
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
        _ => unreachable!("`{}` is of another family", op.row().mnemonic),
    }
}

pub fn each1(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32) -> u32) {
    out.iter_mut().zip(x[0]).for_each(|(out, &a)| *out = f(a));
}

pub fn each2(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32, u32) -> u32) {
    out.iter_mut().zip(x[0]).zip(x[1]).for_each(|((out, &a), &b)| *out = f(a, b));
}

fn floats(x: &[&[u32]], out: &mut [u32], f: impl Fn(f32, f32) -> f32) {
    each2(x, out, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits());
}
