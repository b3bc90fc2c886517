//! Rewrites a kernel for a device that lacks some operations: what it has stays, what it lacks becomes what
//! it has, with the same results.
//!
//! [`Caps`] says what a device has; [`legalize`] walks a kernel and writes it anew. The files are named for
//! what may be lacking: `lanes.rs` (exchanges across subgroups), `matrix.rs`, `dot.rs` (packed bytes and
//! halves), `mem.rs` (vectors, copies).
//!
//! Nothing here is for devices without 64-bit, 16-bit or 8-bit integers or with few push constants: kernels
//! have only words, and reach memory by objects ([`super::abi`]).

mod dot;
mod lanes;
mod matrix;
mod mem;

use std::collections::HashMap;

use super::build::{Build, Mem, V, kernel as build};
use super::kernel::{Attr, Block, Carried, Inst, Kernel, Stmt, Value};
use super::op::{Op, Pattern};
use super::types::{Scalar, Type};
use super::uniform::uniform_values;

/// What a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// Invocations that exchange values without memory: a power of two, 1 if there is no such thing.
    /// Invocation i of a workgroup is lane i mod this of its subgroup.
    pub subgroup: u32,
    /// [`Op::Dot4`].
    pub dot4: bool,
    /// [`Op::Mma16`]; otherwise [`Op::Mma32`] does it, half of it zeros, where there is that.
    pub mma16: bool,
    /// [`Op::Mma32`].
    pub mma32: bool,
    /// [`Op::LoadB`].
    pub load_b: bool,
    /// [`Op::Half`].
    pub half: bool,
    /// [`Op::CopyAsync`] and what belongs to it.
    pub copy_async: bool,
    /// Elements that a load or store can move at once: 1, 2 or 4.
    pub vector: u8,
}

impl Caps {
    /// Everything that the IR has.
    pub const ALL: Caps = Caps {
        subgroup: 32,
        dot4: true,
        mma16: true,
        mma32: true,
        load_b: true,
        half: true,
        copy_async: true,
        vector: 4,
    };
    /// As little as a device may have.
    pub const NONE: Caps = Caps {
        subgroup: 1,
        dot4: false,
        mma16: false,
        mma32: false,
        load_b: false,
        half: false,
        copy_async: false,
        vector: 1,
    };

    /// Whether a device with these can run an operation as it is.
    pub fn has(&self, inst: &Inst, types: &[Type]) -> bool {
        let width = |value: Value| types[value.index()].width;
        match inst.op {
            Op::Dot4 => self.dot4,
            Op::Mma16 => self.mma16,
            Op::Mma32 => self.mma32,
            Op::LoadB => self.load_b,
            Op::Half => self.half,
            Op::CopyAsync | Op::CopyCommit | Op::CopyWait => self.copy_async,
            Op::Load | Op::LoadStream => inst.result.is_none_or(|result| width(result) <= self.vector),
            Op::Store => inst.operands.get(1).is_none_or(|&value| width(value) <= self.vector),
            Op::ShuffleXor | Op::Broadcast => match inst.attr {
                Attr::Cluster { width, lane } => self.exchanges(inst.op, width, lane),
                _ => true,
            },
            _ => true,
        }
    }
}

/// The same kernel, of operations that the device has. A kernel that has nothing else comes back as it is.
///
/// What is staged adds to the kernel's shared memory: the result may have more than a device has, or than the
/// verifier takes.
///
/// # Panics
/// If the kernel does not verify.
pub fn legalize(kernel: &Kernel, caps: &Caps) -> Kernel {
    if is_legal(kernel, caps) {
        return kernel.clone();
    }
    build(&kernel.name, kernel.workgroup, |k| {
        k.declare_like(kernel);
        let staged_words = caps.staged_words(kernel);
        let stage = (staged_words > 0).then(|| {
            k.shared(&lanes::free_name(kernel, "stage"), Scalar::U32, kernel.workgroup * staged_words)
        });
        let uniform = if staged_words > 0 { uniform_values(kernel) } else { vec![] };
        let mut writer = Writer { k, kernel, caps, values: HashMap::new(), stage, uniform };
        writer.block(&kernel.body);
    })
}

/// Whether a device runs all of a kernel as it is.
pub fn is_legal(kernel: &Kernel, caps: &Caps) -> bool {
    fn has_block(caps: &Caps, block: &Block, types: &[Type]) -> bool {
        block.stmts.iter().all(|stmt| match stmt {
            Stmt::Inst(inst) => caps.has(inst, types),
            Stmt::If { then, otherwise, .. } => {
                has_block(caps, then, types) && has_block(caps, otherwise, types)
            }
            Stmt::Loop { body, .. } => has_block(caps, body, types),
        })
    }
    has_block(caps, &kernel.body, &kernel.types)
}

/// Writes the new kernel while it walks the old one.
struct Writer<'k, 'o> {
    k: &'k Build,
    kernel: &'o Kernel,
    caps: &'o Caps,
    /// What the old values have become.
    values: HashMap<Value, V<'k>>,
    /// Shared memory through which invocations hand each other what subgroups cannot.
    stage: Option<Mem<'k>>,
    /// Which of the old values all invocations have alike, where something is staged.
    uniform: Vec<bool>,
}

impl<'k> Writer<'k, '_> {
    /// Writes a block; what it yields.
    fn block(&mut self, block: &Block) -> Vec<V<'k>> {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(inst),
                Stmt::If { condition, then, otherwise, results } => {
                    let condition = self.value(*condition);
                    let then = self.k.block(|| self.block(then));
                    let otherwise = self.k.block(|| self.block(otherwise));
                    let written = self.k.choose_block(condition, then, otherwise);
                    self.values.extend(results.iter().copied().zip(written));
                }
                Stmt::Loop { index, start, end, step, carried, body } => {
                    let bounds = [self.value(*start), self.value(*end)];
                    let first: Vec<V<'k>> = carried.iter().map(|c| self.value(c.first)).collect();
                    let k = self.k;
                    let written = k.fold_any(bounds, *step, &first, |turn, inside| {
                        self.values.insert(*index, turn);
                        self.values
                            .extend(carried.iter().map(|c: &Carried| c.inside).zip(inside.iter().copied()));
                        self.block(body)
                    });
                    self.values.extend(carried.iter().map(|c| c.result).zip(written));
                }
            }
        }
        block.yields.iter().map(|&value| self.value(value)).collect()
    }

    fn value(&self, value: Value) -> V<'k> {
        self.values[&value]
    }

    fn inst(&mut self, inst: &Inst) {
        let x: Vec<V<'k>> = inst.operands.iter().map(|&operand| self.value(operand)).collect();
        let written = if self.caps.has(inst, &self.kernel.types) {
            self.as_it_is(inst, &x)
        } else {
            match (inst.op, inst.attr) {
                (Op::Dot4, _) => Some(self.dot4(x[0], x[1], x[2])),
                (Op::Half, Attr::Index(index)) => Some(self.half(x[0], index)),
                (Op::Mma16 | Op::Mma32, _) => Some(self.mma(x[0], x[1], x[2])),
                (Op::LoadB, Attr::Columns { of, stride }) => Some(self.load_b(of, x[0], stride)),
                // What comes back from shared memory would not be known to be alike, and barriers may rest on it.
                (Op::ShuffleXor | Op::Broadcast, _) if self.uniform[inst.operands[0].index()] => Some(x[0]),
                (Op::ShuffleXor | Op::Broadcast, Attr::Cluster { width, lane }) => {
                    Some(self.exchange(inst.op, x[0], width, lane))
                }
                (Op::Load | Op::LoadStream, Attr::Object(id)) => {
                    let ty = inst.result.map(|result| self.kernel.types[result.index()]);
                    ty.map(|ty| self.load(inst.op, id, x[0], ty.width))
                }
                (Op::Store, Attr::Object(id)) => {
                    self.store(id, x[0], x[1]);
                    None
                }
                (Op::CopyAsync, Attr::Copy { to, from }) => {
                    self.copy(to, x[0], from, x[1]);
                    None
                }
                // Plain loads and stores have arrived at once.
                (Op::CopyCommit | Op::CopyWait, _) => None,
                _ => self.as_it_is(inst, &x),
            }
        };
        if let (Some(result), Some(written)) = (inst.result, written) {
            self.values.insert(result, written);
        }
    }

    fn as_it_is(&self, inst: &Inst, operands: &[V<'k>]) -> Option<V<'k>> {
        let operands: Vec<Value> = operands.iter().map(|operand| operand.value()).collect();
        let is_stated = inst.op.row().result == Some(Pattern::Stated);
        let stated = inst.result.filter(|_| is_stated).map(|result| self.kernel.types[result.index()]);
        self.k.inst(inst.op, inst.attr, &operands, stated)
    }
}

#[cfg(test)]
mod tests;
