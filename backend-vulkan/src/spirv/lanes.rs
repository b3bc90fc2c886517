//! Values of other invocations of the subgroup: the legaliser makes exchanges across subgroups of shared
//! memory.

use spirv::{Capability, Op, Scope, Word};
use unisonic_core::kir::kernel::{Attr, Inst};

use super::Emitter;

impl Emitter<'_> {
    pub(super) fn shuffle_xor(&mut self, inst: &Inst) -> Word {
        let (_, mask) = self.cluster(inst);
        self.fits(inst, mask + 1);
        if self.target.subgroup_size == 1 {
            // What an invocation has itself is all that it can exchange: no subgroups are needed for that.
            return self.operand(inst, 0);
        }
        let mask = self.u32_constant(mask);
        self.shuffle(inst, Op::GroupNonUniformShuffleXor, mask)
    }

    /// From the lane of the subgroup whose high bits are this one's.
    pub(super) fn broadcast(&mut self, inst: &Inst) -> Word {
        let (width, lane) = self.cluster(inst);
        self.fits(inst, width);
        let mut from = self.u32_constant(lane);
        if width < self.target.subgroup_size {
            let (own, u32_) = (self.subgroup_lane(), self.u32_ty());
            let high = self.u32_constant(!(width - 1));
            let first = self.push(Op::BitwiseAnd, u32_, &[own, high]);
            from = self.push(Op::BitwiseOr, u32_, &[first, from]);
        }
        self.shuffle(inst, Op::GroupNonUniformShuffle, from)
    }

    fn cluster(&self, inst: &Inst) -> (u32, u32) {
        let Attr::Cluster { width, lane } = inst.attr else { unreachable!("an exchange has a cluster") };
        (width, lane)
    }

    /// Subgroups begin at multiples of their size, as clusters do.
    fn fits(&self, inst: &Inst, lanes: u32) {
        if lanes > self.target.subgroup_size {
            self.legalised_away(inst);
        }
    }

    fn shuffle(&mut self, inst: &Inst, op: Op, lane: Word) -> Word {
        self.module.capability(Capability::GroupNonUniform);
        self.module.capability(Capability::GroupNonUniformShuffle);
        let (ty, value) = (self.spirv_ty(self.result_ty(inst)), self.operand(inst, 0));
        let scope = self.u32_constant(Scope::Subgroup as u32);
        self.push(op, ty, &[scope, value, lane])
    }
}
