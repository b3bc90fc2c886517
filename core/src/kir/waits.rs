//! What a kernel does before it waits for the launches before it ([`Op::WaitLaunches`]).
//!
//! Devices that can begin a launch before those before it have ended (CUDA's programmatic dependent launch)
//! win the time in which weights are on their way. What is read that early is in memory that no launch ever
//! writes. As every launch waits before it touches anything else, none is more than one ahead of what it sees
//! or changes.

use std::collections::HashMap;

use super::kernel::{Attr, Block, Inst, Kernel, ObjectId, Space, Stmt, Value};
use super::op::Op;

/// Whether a kernel says when it waits. One that does not waits before all else.
pub fn has_wait(kernel: &Kernel) -> bool {
    let mut found = false;
    walk(&kernel.body, false, &mut |inst, _| found |= inst.op == Op::WaitLaunches);
    found
}

/// Objects that a kernel reads before it waits: no launch may write what they show.
pub fn early_objects(kernel: &Kernel) -> Vec<ObjectId> {
    if !has_wait(kernel) {
        return vec![];
    }
    let mut objects = vec![];
    see_waits(kernel, &mut |inst, waited| match (inst.op, inst.attr) {
        (Op::Load | Op::LoadStream, Attr::Object(id)) if !waited && !objects.contains(&id) => {
            let is_read = kernel.objects.get(id.index()).is_some_and(|object| object.space == Space::Read);
            objects.extend(is_read.then_some(id));
        }
        _ => {}
    });
    objects
}

/// Whether an operation may come before the wait: it touches no buffer, or only reads one that the kernel
/// only reads.
pub(super) fn is_early(kernel: &Kernel, inst: &Inst) -> bool {
    let space = |id: ObjectId| kernel.objects.get(id.index()).map(|object| object.space);
    match (inst.op, inst.attr) {
        (Op::CopyAsync, _) => false,
        (Op::Load | Op::LoadStream | Op::Store, Attr::Object(id)) => {
            matches!(space(id), Some(Space::Shared { .. } | Space::Read) | None)
        }
        _ => true,
    }
}

/// Goes through all operations in the order of the text, with whether a wait may have come before, by one of
/// the branches above or the block itself.
pub(super) fn walk<'k>(block: &'k Block, mut has_waited: bool, see: &mut dyn FnMut(&'k Inst, bool)) -> bool {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(inst) => {
                see(inst, has_waited);
                has_waited |= inst.op == Op::WaitLaunches;
            }
            Stmt::If { then, otherwise, .. } => {
                let branches = [then, otherwise].map(|block| walk(block, has_waited, see));
                has_waited = branches.contains(&true);
            }
            Stmt::Loop { body, .. } => has_waited = walk(body, has_waited, see),
        }
    }
    has_waited
}

/// Loops inside of loops whose first turns are looked at by themselves: each doubles the work.
const MAX_FIRST_TURNS: u32 = 4;

/// Goes through all operations of a kernel, some of them several times, with whether the kernel has waited before them on
/// every way there. Whether it has at the end.
///
/// The first turn of a loop whose bounds are constants is a way of its own, in which its index and what follows from it are
/// known: kernels wait in the first turn, where the others have waited already.
pub(super) fn see_waits<'k>(kernel: &'k Kernel, see: &mut dyn FnMut(&'k Inst, bool)) -> bool {
    Ways { known: HashMap::new(), first_turns: 0, see }.block(&kernel.body, false)
}

struct Ways<'k, 's> {
    /// Words that are constants on the way here.
    known: HashMap<Value, u32>,
    /// First turns that the way is in.
    first_turns: u32,
    see: &'s mut dyn FnMut(&'k Inst, bool),
}

impl<'k> Ways<'k, '_> {
    fn block(&mut self, block: &'k Block, mut waited: bool) -> bool {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => {
                    (self.see)(inst, waited);
                    waited |= inst.op == Op::WaitLaunches;
                    self.learn(inst);
                }
                Stmt::If { condition, then, otherwise, .. } => {
                    let holds = self.known.get(condition).copied();
                    // A block that is not reached says nothing.
                    let mut way = |block: &'k Block, word: u32| {
                        holds.is_some_and(|holds| holds != word) || self.block(block, waited)
                    };
                    let ways = [way(then, 1), way(otherwise, 0)];
                    waited = ways == [true; 2];
                }
                Stmt::Loop { index, start, end, body, .. } => {
                    let bounds = [start, end].map(|bound| self.known.get(bound).copied());
                    if let [Some(start), Some(end)] = bounds
                        && start < end
                        && self.first_turns < MAX_FIRST_TURNS
                    {
                        self.known.insert(*index, start);
                        self.first_turns += 1;
                        waited = self.block(body, waited);
                        self.first_turns -= 1;
                    }
                    self.known.remove(index);
                    // Turns that may be none leave it as it was, and those that follow find it so.
                    self.block(body, waited);
                }
            }
        }
        waited
    }

    /// Notes the word of a result, of what conditions on the first turn are made of.
    fn learn(&mut self, inst: &Inst) {
        let Some(result) = inst.result else { return };
        let of = |number: usize| inst.operands.get(number).and_then(|value| self.known.get(value)).copied();
        let word = match (inst.op, inst.attr, of(0), of(1)) {
            (Op::Const, Attr::Word(word), ..) => Some(word),
            (Op::IAdd, _, Some(a), Some(b)) => Some(a.wrapping_add(b)),
            (Op::IEq, _, Some(a), Some(b)) => Some((a == b).into()),
            _ => None,
        };
        match word {
            Some(word) => self.known.insert(result, word),
            None => self.known.remove(&result),
        };
    }
}
