//! Blocks: what their statements may use, what they yield, and what all invocations have to reach together.

use super::super::kernel::{Block, Carried, Stmt, Value};
use super::super::types::Scalar;
use super::{MAX_DEPTH, Rule, Verifier};

impl Verifier<'_> {
    /// Checks a block that has to yield `yields` values.
    pub(super) fn block(&mut self, block: &Block, yields: usize, depth: usize) {
        if depth > MAX_DEPTH {
            let problem = format!("blocks are more than {MAX_DEPTH} deep");
            return self.fault(Rule::Depth, &self.kernel.name, problem);
        }
        let outside = self.visible.clone();
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(inst),
                Stmt::If { condition, then, otherwise, results } => {
                    self.branch(*condition, [then, otherwise], results, depth);
                }
                Stmt::Loop { index, start, end, step, carried, body } => {
                    let at = format!("loop {index}");
                    for bound in [start, end] {
                        self.usable(&at, *bound, Some(Scalar::U32.into()));
                    }
                    if *step == 0 {
                        self.fault(Rule::Step, &at, "a loop whose step is 0 does not end");
                    }
                    self.turns(&at, *index, carried, body, depth);
                }
            }
        }
        if block.yields.len() != yields {
            let problem = format!("{yields} values have to be yielded, {} are", block.yields.len());
            self.fault(Rule::Yield, "yield", problem);
        }
        for &value in &block.yields {
            self.usable("yield", value, None);
        }
        self.visible = outside;
    }

    fn branch(&mut self, condition: Value, blocks: [&Block; 2], results: &[Value], depth: usize) {
        let at = format!("if {condition}");
        self.usable(&at, condition, Some(Scalar::Bool.into()));
        for block in blocks {
            self.block(block, results.len(), depth + 1);
        }
        for (number, &result) in results.iter().enumerate() {
            let expected = self.kernel.types.get(result.index()).copied();
            for block in blocks {
                self.same_type(&at, block.yields.get(number).copied(), expected);
            }
            self.define(&at, result);
        }
    }

    /// The turns of a loop, and what it carries.
    fn turns(&mut self, at: &str, index: Value, carried: &[Carried], body: &Block, depth: usize) {
        let before = self.visible.clone();
        for carried in carried {
            let ty = self.kernel.types.get(carried.first.index()).copied();
            self.usable(at, carried.first, ty);
        }
        self.define(at, index);
        self.same_type(at, Some(index), Some(Scalar::U32.into()));
        for (number, carried) in carried.iter().enumerate() {
            self.define(at, carried.inside);
            let ty = self.kernel.types.get(carried.first.index()).copied();
            for value in [Some(carried.inside), Some(carried.result), body.yields.get(number).copied()] {
                self.same_type(at, value, ty);
            }
        }
        self.block(body, carried.len(), depth + 1);
        self.visible = before;
        for carried in carried {
            self.define(at, carried.result);
        }
    }

    /// Checks what needs all invocations together, in a block that they reach together if `together`.
    pub(super) fn uniform_block(&mut self, block: &Block, together: bool) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => {
                    if inst.op.row().effect.is_together() && !together {
                        let at = self.kernel.inst_text(inst);
                        self.fault(Rule::Uniform, at, "invocations of a workgroup may differ in reaching it");
                    }
                }
                Stmt::If { condition, then, otherwise, .. } => {
                    let together = together && self.uniform[condition.index()];
                    self.uniform_block(then, together);
                    self.uniform_block(otherwise, together);
                }
                Stmt::Loop { start, end, body, .. } => {
                    let together = together && self.uniform[start.index()] && self.uniform[end.index()];
                    self.uniform_block(body, together);
                }
            }
        }
    }
}
