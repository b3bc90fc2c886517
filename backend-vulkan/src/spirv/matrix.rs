//! Products of matrices: cooperative matrices will be emitted here. Until then the legaliser makes dot products of them.

use spirv::Word;
use unisonic_core::kir::kernel::Inst;

use super::Emitter;

impl Emitter<'_> {
    pub(super) fn matrix_product(&mut self, inst: &Inst) -> Word {
        self.legalised_away(inst)
    }
}
