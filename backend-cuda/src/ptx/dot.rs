//! Dot products of bytes.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::Inst;

use super::alu::define;
use super::emitter::{Emitter, View};

/// `dot4`: the first operand has the sign of its type, the second is signed.
pub fn dot4(e: &mut Emitter<'_>, inst: &Inst) {
    let sign = if e.operand_scalar(inst, 0) == Scalar::I8x4 { "s32" } else { "u32" };
    for register in define(e, inst) {
        let views = [View::Unsigned, View::Unsigned, View::Signed];
        let operands =
            inst.operands.iter().zip(views).map(|(&operand, view)| e.text(e.word(operand, 0), view));
        let operands = operands.collect::<Vec<_>>().join(", ");
        e.line(format_args!("dp4a.{sign}.s32 {register}, {operands};"));
    }
}
