//! Arithmetic on words. Integers are modulo 2^32 in SPIR-V as well, and no float operation may be joined with
//! another.

use spirv::{Decoration, GlslStd450Op, Op, Word};
use unisonic_core::kir::kernel::Inst;
use unisonic_core::kir::{Scalar, Type};

use super::Emitter;

impl Emitter<'_> {
    /// An operation that takes the operands as they are, on vectors as on words.
    pub(super) fn word_by_word(&mut self, inst: &Inst, op: Op) -> Word {
        let ty = self.spirv_ty(self.result_ty(inst));
        let operands: Vec<Word> = inst.operands.iter().map(|&operand| self.id_of(operand)).collect();
        self.push(op, ty, &operands)
    }

    /// A float operation: never joined with another.
    pub(super) fn float(&mut self, inst: &Inst, op: Op) -> Word {
        let id = self.word_by_word(inst, op);
        self.module.decorate(id, Decoration::NoContraction, &[]);
        id
    }

    fn is_signed(&self, inst: &Inst) -> bool {
        self.ty_of(inst.operands[0]).scalar == Scalar::I32
    }

    /// One of two operations, by the sign of the first operand's type.
    pub(super) fn by_sign(&mut self, inst: &Inst, signed: Op, unsigned: Op) -> Word {
        let op = if self.is_signed(inst) { signed } else { unsigned };
        self.word_by_word(inst, op)
    }

    /// One of two operations: bools are no words.
    pub(super) fn bits(&mut self, inst: &Inst, of_words: Op, of_bools: Op) -> Word {
        let is_bool = self.ty_of(inst.operands[0]).scalar == Scalar::Bool;
        self.word_by_word(inst, if is_bool { of_bools } else { of_words })
    }

    pub(super) fn minimum(&mut self, inst: &Inst) -> Word {
        let op = if self.is_signed(inst) { GlslStd450Op::SMin } else { GlslStd450Op::UMin };
        self.extended_on_operands(inst, op)
    }

    pub(super) fn maximum(&mut self, inst: &Inst) -> Word {
        let op = if self.is_signed(inst) { GlslStd450Op::SMax } else { GlslStd450Op::UMax };
        self.extended_on_operands(inst, op)
    }

    fn extended_on_operands(&mut self, inst: &Inst, op: GlslStd450Op) -> Word {
        let ty = self.spirv_ty(self.result_ty(inst));
        let operands: Vec<Word> = inst.operands.iter().map(|&operand| self.id_of(operand)).collect();
        self.extended(op, ty, &operands)
    }

    pub(super) fn extended(&mut self, op: GlslStd450Op, ty: Word, operands: &[Word]) -> Word {
        let set = self.module.extended();
        let mut all = vec![set, op as u32];
        all.extend_from_slice(operands);
        self.module.push(Op::ExtInst, ty, &all)
    }

    pub(super) fn cast(&mut self, inst: &Inst) -> Word {
        let (from, to) = (self.ty_of(inst.operands[0]), self.result_ty(inst));
        self.bitcast(self.operand(inst, 0), from, to)
    }

    /// The same bits as another type; nothing where both are one type in SPIR-V.
    pub(super) fn bitcast(&mut self, id: Word, from: Type, to: Type) -> Word {
        let (from, to) = (self.spirv_ty(from), self.spirv_ty(to));
        if from == to { id } else { self.push(Op::Bitcast, to, &[id]) }
    }
}
