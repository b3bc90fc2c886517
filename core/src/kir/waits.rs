//! What a kernel does before it waits for the launches before it ([`Op::WaitLaunches`]).
//!
//! Devices that can begin a launch before those before it have ended (CUDA's programmatic dependent launch)
//! win the time in which weights are on their way. What is read that early is in memory that no launch ever
//! writes. As every launch waits before it touches anything else, none is more than one ahead of what it sees
//! or changes.

use super::kernel::{Attr, Block, Inst, Kernel, ObjectId, Space, Stmt};
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
    walk(&kernel.body, false, &mut |inst, has_waited| match (inst.op, inst.attr) {
        (Op::Load | Op::LoadStream, Attr::Object(id)) if !has_waited && !objects.contains(&id) => {
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
