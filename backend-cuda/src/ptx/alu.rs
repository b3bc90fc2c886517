//! Where an invocation is, constants, and arithmetic on words.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::{Attr, Inst};
use unisonic_core::kir::op::Family;

use super::emitter::{Emitter, View};
use super::known::known;
use super::registers::{File, Register, Word};

/// `const`: no statement; whoever uses it has an immediate.
pub fn constant(e: &mut Emitter<'_>, inst: &Inst) {
    let (Some(result), Attr::Word(word)) = (inst.result, inst.attr) else { return };
    let width = e.ty(result).width;
    e.rename(result, vec![Word::Constant(word); width.into()]);
}

/// `param`.
pub fn param(e: &mut Emitter<'_>, inst: &Inst) {
    let (Some(result), Attr::Param(id)) = (inst.result, inst.attr) else { return };
    let name = &e.kernel.params[id.index()].name;
    for register in e.define(result) {
        e.line(format_args!("ld.param.b32 {register}, [param_{name}];"));
    }
}

/// `local_id`, `group_id`.
pub fn special(e: &mut Emitter<'_>, inst: &Inst, from: &str) {
    for register in define(e, inst) {
        e.line(format_args!("mov.b32 {register}, {from};"));
    }
}

/// Whether each word of the result is known, which then needs no instruction.
pub fn is_known(e: &mut Emitter<'_>, inst: &Inst) -> bool {
    let (Some(result), Some(_)) = (inst.result, inst.operands.first()) else { return false };
    if inst.op.row().family != Family::Alu {
        return false;
    }
    let scalar = e.operand_scalar(inst, 0);
    let words = (0..usize::from(e.ty(result).width)).map(|index| {
        let operands: Vec<Word> = inst.operands.iter().map(|&operand| e.word(operand, index)).collect();
        known(inst.op, scalar, &operands)
    });
    let Some(words) = words.collect::<Option<Vec<Word>>>() else { return false };
    e.rename(result, words);
    true
}

/// `udiv`, `urem`: constant divisors have a way of their own.
pub fn divide(
    e: &mut Emitter<'_>,
    inst: &Inst,
    instruction: &str,
    by_constant: fn(&mut Emitter<'_>, Register, Register, u32),
) {
    for (index, register) in define(e, inst).into_iter().enumerate() {
        let [n, divisor] = [0, 1].map(|operand| e.word(inst.operands[operand], index));
        match divisor {
            Word::Constant(divisor) if divisor > 1 => {
                let n = e.register(n);
                by_constant(e, register, n, divisor);
            }
            _ => {
                let (n, divisor) = (e.text(n, View::Unsigned), e.text(divisor, View::Unsigned));
                e.line(format_args!("{instruction} {register}, {n}, {divisor};"));
            }
        }
    }
}

/// One instruction for each word.
pub fn by_word(e: &mut Emitter<'_>, inst: &Inst, instruction: &str, view: View) {
    for (index, register) in define(e, inst).into_iter().enumerate() {
        let operands = inst.operands.iter().map(|&operand| e.text(e.word(operand, index), view));
        let operands = operands.collect::<Vec<_>>().join(", ");
        e.line(format_args!("{instruction} {register}, {operands};"));
    }
}

/// One instruction for each word, signed or not by the type of the first operand. A shift's amount is below
/// 32 and reads the same either way.
pub fn by_sign(e: &mut Emitter<'_>, inst: &Inst, instruction: &str) {
    match e.operand_scalar(inst, 0) {
        Scalar::I32 => by_word(e, inst, &format!("{instruction}.s32"), View::Signed),
        _ => by_word(e, inst, &format!("{instruction}.u32"), View::Unsigned),
    }
}

/// `and`, `or`, `xor` of words or predicates.
pub fn bitwise(e: &mut Emitter<'_>, inst: &Inst, instruction: &str) {
    if e.operand_scalar(inst, 0) != Scalar::Bool {
        return by_word(e, inst, &format!("{instruction}.b32"), View::Unsigned);
    }
    for (index, register) in define(e, inst).into_iter().enumerate() {
        let (a, b) = (e.word(inst.operands[0], index), e.word(inst.operands[1], index));
        let (a, b) = (e.predicate(a), e.predicate(b));
        e.line(format_args!("{instruction}.pred {register}, {a}, {b};"));
    }
}

/// `select`.
pub fn select(e: &mut Emitter<'_>, inst: &Inst) {
    let is_bool = e.operand_scalar(inst, 1) == Scalar::Bool;
    for (index, register) in define(e, inst).into_iter().enumerate() {
        let [holds, yes, no] = [0, 1, 2].map(|operand| e.word(inst.operands[operand], index));
        let holds = e.predicate(holds);
        if is_bool {
            select_predicate(e, register, holds, yes, no);
        } else {
            let (yes, no) = (e.text(yes, View::Unsigned), e.text(no, View::Unsigned));
            e.line(format_args!("selp.b32 {register}, {yes}, {no}, {holds};"));
        }
    }
}

/// PTX selects words only: `(holds and yes) or (not holds and no)`.
fn select_predicate(e: &mut Emitter<'_>, to: Register, holds: Register, yes: Word, no: Word) {
    let (yes, no) = (e.predicate(yes), e.predicate(no));
    let (if_yes, if_no) = (e.temporary(File::TemporaryPredicate), e.temporary(File::TemporaryPredicate));
    e.line(format_args!("and.pred {if_yes}, {holds}, {yes};"));
    e.line(format_args!("not.pred {if_no}, {holds};"));
    e.line(format_args!("and.pred {if_no}, {if_no}, {no};"));
    e.line(format_args!("or.pred {to}, {if_yes}, {if_no};"));
}

/// `cast`: registers have no type but their size.
pub fn cast(e: &mut Emitter<'_>, inst: &Inst) {
    let Some(result) = inst.result else { return };
    e.rename(result, e.words(inst.operands[0]).to_vec());
}

/// Registers of the result.
pub fn define(e: &mut Emitter<'_>, inst: &Inst) -> Vec<Register> {
    inst.result.map_or_else(Vec::new, |result| e.define(result))
}
