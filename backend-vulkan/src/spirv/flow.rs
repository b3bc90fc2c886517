//! Blocks, `if` and `loop`: SPIR-V has the same structure, with phis for what blocks yield.

use spirv::{LoopControl, Op, SelectionControl, Word};
use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::{Block, Stmt};

use super::Emitter;

/// Statements of a loop's body from which unrolling only makes the code too long for the instruction cache:
/// left to itself, NVIDIA's compiler makes 130 KB of a tile of a matrix.
const LONG_LOOP: usize = 512;

fn len(block: &Block) -> usize {
    let of_stmt = |stmt: &Stmt| match stmt {
        Stmt::Inst(_) => 1,
        Stmt::If { then, otherwise, .. } => len(then) + len(otherwise),
        Stmt::Loop { body, .. } => len(body),
    };
    block.stmts.iter().map(of_stmt).sum()
}

impl Emitter<'_> {
    /// The one function.
    pub(super) fn function(&mut self) {
        let (entry, kernel) = (self.module.id(), self.kernel);
        self.module.begin_block(entry);
        self.block(&kernel.body);
        self.module.push_effect(Op::Return, &[]);
    }

    fn block(&mut self, block: &Block) {
        let mark = self.known.mark();
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(inst),
                Stmt::If { .. } => self.if_(stmt),
                Stmt::Loop { .. } => self.loop_(stmt),
            }
        }
        self.known.forget_since(mark);
    }

    fn branch(&mut self, to: Word) {
        self.module.push_effect(Op::Branch, &[to]);
    }

    /// Two blocks that meet; without a second one the first is jumped over.
    fn if_(&mut self, stmt: &Stmt) {
        let Stmt::If { condition, then, otherwise, results } = stmt else { return };
        let (yes, merge) = (self.module.id(), self.module.id());
        let no = if otherwise.stmts.is_empty() { merge } else { self.module.id() };
        let header = self.module.open_label();
        let control = SelectionControl::NONE.bits();
        self.module.push_effect(Op::SelectionMerge, &[merge, control]);
        let condition = self.id_of(*condition);
        self.module.push_effect(Op::BranchConditional, &[condition, yes, no]);

        self.module.begin_block(yes);
        self.block(then);
        let after_yes = self.module.open_label();
        self.branch(merge);
        let mut after_no = header;
        if no != merge {
            self.module.begin_block(no);
            self.block(otherwise);
            after_no = self.module.open_label();
            self.branch(merge);
        }
        self.module.begin_block(merge);
        for (number, &result) in results.iter().enumerate() {
            let from = [(then.yields[number], after_yes), (otherwise.yields[number], after_no)];
            let ty = self.spirv_ty(self.ty_of(result));
            let operands = from.map(|(value, block)| [self.id_of(value), block]);
            self.values[result.index()] = self.module.push(Op::Phi, ty, operands.as_flattened());
        }
    }

    /// A header that tests, a body, and a block that counts and goes back to the header.
    fn loop_(&mut self, stmt: &Stmt) {
        let Stmt::Loop { index, start, end, step, carried, body } = stmt else { return };
        let before = self.module.open_label();
        let [header, turn, go_on, merge, next_index] = [(); 5].map(|()| self.module.id());
        self.branch(header);

        let header_number = self.module.block_count();
        self.module.begin_block(header);
        self.values[index.index()] = self.module.id();
        for carried in carried {
            let id = self.module.id();
            self.values[carried.inside.index()] = id;
            self.values[carried.result.index()] = id;
        }
        let (u32_, bool_) = (self.u32_ty(), self.spirv_ty(Scalar::Bool.into()));
        let goes_on = self.push(Op::ULessThan, bool_, &[self.id_of(*index), self.id_of(*end)]);
        let control = match len(body) > LONG_LOOP {
            true => LoopControl::DONT_UNROLL.bits(),
            false => LoopControl::NONE.bits(),
        };
        self.module.push_effect(Op::LoopMerge, &[merge, go_on, control]);
        self.module.push_effect(Op::BranchConditional, &[goes_on, turn, merge]);

        self.module.begin_block(turn);
        self.block(body);
        self.branch(go_on);

        self.module.begin_block(go_on);
        let step = self.u32_constant(*step);
        let index = self.id_of(*index);
        self.module.push_as(Op::IAdd, u32_, next_index, &[index, step]);
        self.branch(header);

        // What the turn yields has an id now.
        let phi = |ty, result, first, next| [ty, result, first, before, next, go_on];
        let mut phis = vec![phi(u32_, index, self.id_of(*start), next_index)];
        for (carried, &next) in carried.iter().zip(&body.yields) {
            let ty = self.spirv_ty(self.ty_of(carried.inside));
            phis.push(phi(ty, self.id_of(carried.inside), self.id_of(carried.first), self.id_of(next)));
        }
        self.module.begin_with_phis(header_number, &phis);
        self.module.begin_block(merge);
    }
}
