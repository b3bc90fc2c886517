//! Exchanges between invocations that are in different subgroups: through shared memory.

use super::super::build::{Mem, V};
use super::super::kernel::{Block, Inst, Kernel, Stmt};
use super::super::op::Op;
use super::super::types::{Scalar, Type};
use super::{Caps, Writer};

impl Caps {
    /// Whether an exchange stays inside subgroups: those of a cluster begin at multiples of their size.
    pub(super) fn exchanges(&self, op: Op, width: u32, lane: u32) -> bool {
        width <= self.subgroup || (op == Op::ShuffleXor && lane < self.subgroup)
    }

    /// Words an invocation that have to be staged in shared memory at a time.
    pub(super) fn staged_words(&self, kernel: &Kernel) -> u32 {
        self.staged_by_block(&kernel.body, &kernel.types)
    }

    fn staged_by_block(&self, block: &Block, types: &[Type]) -> u32 {
        let of_stmt = |stmt: &Stmt| match stmt {
            Stmt::Inst(inst) if self.has(inst, types) => 0,
            Stmt::Inst(inst) => self.staged_by(inst, types),
            Stmt::If { then, otherwise, .. } => {
                self.staged_by_block(then, types).max(self.staged_by_block(otherwise, types))
            }
            Stmt::Loop { body, .. } => self.staged_by_block(body, types),
        };
        block.stmts.iter().map(of_stmt).max().unwrap_or(0)
    }

    fn staged_by(&self, inst: &Inst, types: &[Type]) -> u32 {
        let words = |at: usize| u32::from(types[inst.operands[at].index()].width);
        match inst.op {
            Op::ShuffleXor | Op::Broadcast => words(0),
            Op::Mma16 if self.mma32 => 0,
            Op::Mma16 | Op::Mma32 => words(0) + words(1),
            _ => 0,
        }
    }
}

/// A name that no parameter or object has.
pub(super) fn free_name(kernel: &Kernel, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    while kernel
        .objects
        .iter()
        .map(|object| &object.name)
        .chain(kernel.params.iter().map(|p| &p.name))
        .any(|other| *other == name)
    {
        name.push('_');
    }
    name
}

impl<'k> Writer<'k, '_> {
    /// Shared memory in which each invocation has [`Caps::staged_words`].
    pub(super) fn stage(&self) -> Mem<'k> {
        self.stage.unwrap_or_else(|| unreachable!("staged words were counted before"))
    }

    /// `shuffle_xor` or `broadcast`: everybody writes, and after a barrier reads from the other; the second
    /// barrier lets the memory be used again.
    pub(super) fn exchange(&self, op: Op, x: V<'k>, width: u32, lane: u32) -> V<'k> {
        let (k, stage, id) = (self.k, self.stage(), self.k.local_id());
        let parts = parts(x);
        // Word i of all invocations, then word i + 1: neighbours use neighbouring banks.
        let at = |id: V<'k>, i: u32| id + i * self.kernel.workgroup;
        for (i, part) in (0..).zip(&parts) {
            stage.store(at(id, i), self.word(*part));
        }
        k.barrier();
        let other = match op {
            Op::ShuffleXor => id ^ lane,
            _ => (id & !(width - 1)) + lane,
        };
        let words = (0..parts.len() as u32).map(|i| self.of_word(stage.load(at(other, i)), x.ty().scalar));
        let words: Vec<V<'k>> = words.collect();
        k.barrier();
        self.join(&words)
    }

    /// A word as memory holds it.
    fn word(&self, x: V<'k>) -> V<'k> {
        match x.ty().scalar {
            Scalar::U32 => x,
            Scalar::Bool => x.select(self.k.u32(1), self.k.u32(0)),
            _ => x.cast(Scalar::U32),
        }
    }

    fn of_word(&self, word: V<'k>, scalar: Scalar) -> V<'k> {
        match scalar {
            Scalar::U32 => word,
            Scalar::Bool => word.eq(self.k.u32(1)),
            _ => word.cast(scalar),
        }
    }

    /// One word, or a vector.
    pub(super) fn join(&self, parts: &[V<'k>]) -> V<'k> {
        match *parts {
            [x] => x,
            [a, b] => self.k.vector([a, b]),
            [a, b, c, d] => self.k.vector([a, b, c, d]),
            _ => unreachable!("vectors have two or four words"),
        }
    }
}

/// The words of a value.
pub(super) fn parts(x: V<'_>) -> Vec<V<'_>> {
    match x.ty().width {
        1 => vec![x],
        width => (0..u32::from(width)).map(|i| x.part(i)).collect(),
    }
}
