//! What registers become: an exhaustive match over the operations.

use super::super::kernel::{Attr, Inst};
use super::super::op::{MAX_OPERANDS, Op};
use super::super::types::Scalar;
use super::{Machine, alu, dot, lanes, matrix, shape};

impl Machine<'_> {
    /// Computes a result from registers, for all invocations: it harms nobody where it has no meaning.
    pub(super) fn pure(&mut self, inst: &Inst) {
        let Some(result) = inst.result else { return };
        let mut out = std::mem::take(&mut self.registers[result.index()]);
        self.compute(inst, &mut out);
        self.registers[result.index()] = out;
    }

    fn compute(&self, inst: &Inst, out: &mut [u32]) {
        let mut operands: [&[u32]; MAX_OPERANDS] = [&[]; MAX_OPERANDS];
        for (to, from) in operands.iter_mut().zip(&inst.operands) {
            *to = &self.registers[from.index()];
        }
        let x = &operands[..inst.operands.len()];
        // Signed and unsigned operations differ by their first operand.
        let scalar = inst.operands.first().map(|operand| self.kernel.types[operand.index()].scalar);
        let is_signed = scalar == Some(Scalar::I32);
        match inst.op {
            Op::Const => out.fill(word(inst.attr)),
            Op::Param => out.fill(self.param(inst.attr)),
            Op::LocalId => out.iter_mut().zip(0..).for_each(|(word, lane)| *word = lane),
            Op::GroupId => out.fill(self.group),
            Op::IAdd => alu::each2(x, out, u32::wrapping_add),
            Op::ISub => alu::each2(x, out, u32::wrapping_sub),
            Op::IMul => alu::each2(x, out, u32::wrapping_mul),
            // Invocations that are not active may have zeros.
            Op::UDiv => alu::each2(x, out, |a, b| a.checked_div(b).unwrap_or(0)),
            Op::URem => alu::each2(x, out, |a, b| a.checked_rem(b).unwrap_or(0)),
            Op::IMin if is_signed => alu::signed(x, out, i32::min),
            Op::IMin => alu::each2(x, out, u32::min),
            Op::IMax if is_signed => alu::signed(x, out, i32::max),
            Op::IMax => alu::each2(x, out, u32::max),
            Op::And => alu::each2(x, out, |a, b| a & b),
            Op::Or => alu::each2(x, out, |a, b| a | b),
            Op::Xor => alu::each2(x, out, |a, b| a ^ b),
            Op::Shl => alu::each2(x, out, u32::wrapping_shl),
            Op::Shr if is_signed => alu::signed(x, out, |a, b| a.wrapping_shr(b as u32)),
            Op::Shr => alu::each2(x, out, u32::wrapping_shr),
            Op::IEq => alu::each2(x, out, |a, b| u32::from(a == b)),
            Op::ILt if is_signed => alu::signed(x, out, |a, b| i32::from(a < b)),
            Op::ILt => alu::each2(x, out, |a, b| u32::from(a < b)),
            Op::Select => alu::select(x, out),
            Op::FAdd => alu::floats(x, out, |a, b| a + b),
            Op::FSub => alu::floats(x, out, |a, b| a - b),
            Op::FMul => alu::floats(x, out, |a, b| a * b),
            Op::I2F => alu::each1(x, out, |a| (a as i32 as f32).to_bits()),
            Op::Cast => out.copy_from_slice(x[0]),
            Op::Vec2 | Op::Vec4 => shape::vector(x, out),
            Op::Part => shape::part(x, index(inst.attr), out),
            Op::Byte => shape::byte(scalar, x, index(inst.attr), out),
            Op::Half => shape::half(x, index(inst.attr), out),
            Op::Permute => shape::permute(x, selector(inst.attr), out),
            Op::PermuteBy => shape::permute_by(x, out),
            Op::Pack => shape::pack(x, out),
            Op::ShuffleXor | Op::Broadcast => lanes::exchange(inst.op, inst.attr, x[0], self.lanes, out),
            Op::Dot4 => dot::dot4(scalar, [x[0], x[1], x[2]], out),
            Op::Mma16 => matrix::multiply(1, [x[0], x[1], x[2]], out),
            Op::Mma32 => matrix::multiply(2, [x[0], x[1], x[2]], out),
            Op::Load
            | Op::LoadStream
            | Op::Store
            | Op::CopyAsync
            | Op::CopyCommit
            | Op::CopyWait
            | Op::Prefetch
            | Op::WaitLaunches
            | Op::Barrier
            | Op::LoadB => unreachable!("`{}` is of memory", inst.op.row().mnemonic),
        }
    }

    fn param(&self, attr: Attr) -> u32 {
        let Attr::Param(id) = attr else { unreachable!("a parameter has a number") };
        self.params[id.index()]
    }
}

fn word(attr: Attr) -> u32 {
    let Attr::Word(word) = attr else { unreachable!("a constant has a word") };
    word
}

fn index(attr: Attr) -> u32 {
    let Attr::Index(index) = attr else { unreachable!("a part has an index") };
    index
}

fn selector(attr: Attr) -> u32 {
    let Attr::Selector(selector) = attr else { unreachable!("a permutation has a selector") };
    selector.into()
}
