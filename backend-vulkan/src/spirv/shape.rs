//! Vectors and packed bytes.

use spirv::{GlslStd450Op, Op, Word};
use unisonic_core::kir::kernel::{Attr, Inst};
use unisonic_core::kir::{Scalar, Type};

use super::Emitter;

const U32: Type = Type::one(Scalar::U32);
const I32: Type = Type::one(Scalar::I32);

impl Emitter<'_> {
    /// A component; a vector of one is its component.
    pub(super) fn part(&mut self, inst: &Inst) -> Word {
        let Attr::Index(index) = inst.attr else { unreachable!("a part has an index") };
        let vector = self.operand(inst, 0);
        if self.ty_of(inst.operands[0]).width == 1 {
            return vector;
        }
        let ty = self.spirv_ty(self.result_ty(inst));
        self.extract(ty, vector, index)
    }

    pub(super) fn extract(&mut self, ty: Word, vector: Word, index: u32) -> Word {
        self.push(Op::CompositeExtract, ty, &[vector, index])
    }

    pub(super) fn byte(&mut self, inst: &Inst) -> Word {
        let Attr::Index(index) = inst.attr else { unreachable!("a byte has an index") };
        let word = self.operand(inst, 0);
        let (offset, len) = (self.u32_constant(8 * index), self.u32_constant(8));
        if self.ty_of(inst.operands[0]).scalar == Scalar::I8x4 {
            let (word, i32_) = (self.bitcast(word, U32, I32), self.spirv_ty(I32));
            return match index {
                3 => self.push(Op::ShiftRightArithmetic, i32_, &[word, offset]),
                _ => self.push(Op::BitFieldSExtract, i32_, &[word, offset, len]),
            };
        }
        let u32_ = self.u32_ty();
        let byte = match index {
            3 => self.push(Op::ShiftRightLogical, u32_, &[word, offset]),
            _ => self.push(Op::BitFieldUExtract, u32_, &[word, offset, len]),
        };
        self.bitcast(byte, U32, I32)
    }

    /// Exact for subnormals too: they are normal numbers as f32.
    pub(super) fn half(&mut self, inst: &Inst) -> Word {
        let Attr::Index(index) = inst.attr else { unreachable!("a half has an index") };
        let f32_ = self.spirv_ty(Scalar::F32.into());
        let two = self.vector_ty(f32_, 2);
        let floats = self.extended(GlslStd450Op::UnpackHalf2x16, two, &[self.operand(inst, 0)]);
        self.extract(f32_, floats, index)
    }

    pub(super) fn pack(&mut self, inst: &Inst) -> Word {
        let (i32_, len) = (self.spirv_ty(I32), self.u32_constant(8));
        let mut word = self.operand(inst, 0);
        for byte in 1..4 {
            let offset = self.u32_constant(8 * byte);
            word =
                self.push(Op::BitFieldInsert, i32_, &[word, self.operand(inst, byte as usize), offset, len]);
        }
        self.bitcast(word, I32, U32)
    }
}
