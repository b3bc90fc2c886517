//! What is known of integer results without an instruction: constants of constants, and operations that leave
//! an operand as it is. The assembler does not find all of it: it divides by 1.

use unisonic_core::kir::{Op, Scalar};

use super::registers::Word;

/// The result of an operation on one word of each operand, if it is a constant or one of the operands.
pub fn known(op: Op, scalar: Scalar, operands: &[Word]) -> Option<Word> {
    match *operands {
        [Word::Constant(a), Word::Constant(b)] => of_constants(op, scalar, a, b).map(Word::Constant),
        [a, Word::Constant(b)] => with_constant(op, scalar, a, b),
        [Word::Constant(a), b] if is_commutative(op) => with_constant(op, scalar, b, a),
        _ => None,
    }
}

fn is_commutative(op: Op) -> bool {
    matches!(op, Op::IAdd | Op::IMul | Op::And | Op::Or | Op::Xor | Op::IMin | Op::IMax)
}

/// `core::kir::interp` on two constants, of what indices are made of.
fn of_constants(op: Op, scalar: Scalar, a: u32, b: u32) -> Option<u32> {
    let is_signed = scalar == Scalar::I32;
    Some(match op {
        Op::IAdd => a.wrapping_add(b),
        Op::ISub => a.wrapping_sub(b),
        Op::IMul => a.wrapping_mul(b),
        Op::UDiv => a.checked_div(b)?,
        Op::URem => a.checked_rem(b)?,
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Shl => a.checked_shl(b)?,
        Op::Shr if is_signed => (a as i32).checked_shr(b)? as u32,
        Op::Shr => a.checked_shr(b)?,
        Op::IMin if is_signed => (a as i32).min(b as i32) as u32,
        Op::IMin => a.min(b),
        Op::IMax if is_signed => (a as i32).max(b as i32) as u32,
        Op::IMax => a.max(b),
        _ => return None,
    })
}

/// `a op b` for a constant b.
fn with_constant(op: Op, scalar: Scalar, a: Word, b: u32) -> Option<Word> {
    let is_unsigned = scalar != Scalar::I32;
    let is_zero = b == 0;
    match op {
        Op::IAdd | Op::ISub | Op::Or | Op::Xor | Op::Shl | Op::Shr if is_zero => Some(a),
        Op::IMul | Op::And if is_zero => Some(Word::Constant(0)),
        Op::And if b == u32::MAX => Some(a),
        Op::IMul | Op::UDiv if b == 1 => Some(a),
        Op::URem if b == 1 => Some(Word::Constant(0)),
        Op::IMin if is_unsigned && is_zero => Some(Word::Constant(0)),
        Op::IMax if is_unsigned && is_zero => Some(a),
        _ => None,
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
