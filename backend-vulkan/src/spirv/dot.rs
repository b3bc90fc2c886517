//! Dot products of four bytes in a word.

use spirv::{Capability, Op, PackedVectorFormat, Word};
use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::Inst;

use super::Emitter;

impl Emitter<'_> {
    /// The dot product is exact, and the sum is modulo 2^32. Of two signs, SPIR-V has the signed operand
    /// first.
    pub(super) fn dot4(&mut self, inst: &Inst) -> Word {
        self.module.capability(Capability::DotProduct);
        self.module.capability(Capability::DotProductInput4x8BitPacked);
        self.module.extension("SPV_KHR_integer_dot_product");
        let [a, b, sum] = [0, 1, 2].map(|number| self.operand(inst, number));
        let (op, first, second) = match self.ty_of(inst.operands[0]).scalar {
            Scalar::U8x4 => (Op::SUDot, b, a),
            _ => (Op::SDot, a, b),
        };
        let i32_ = self.spirv_ty(Scalar::I32.into());
        let format = PackedVectorFormat::PackedVectorFormat4x8Bit as u32;
        let dot = self.module.push(op, i32_, &[first, second, format]);
        self.push(Op::IAdd, i32_, &[sum, dot])
    }
}
