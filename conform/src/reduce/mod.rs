//! Makes a failing case small enough to be looked at by a person: at most one operation, 64 invocations and 16 KiB of buffers,
//! where that is possible.
//!
//! 1. `single.rs`: each operation of the kernel by itself, with the operands that the interpreter saw; then each with one
//!    that makes an operand of it.
//! 2. `shrink.rs`: what only fails together, with statements, workgroups and buffers left out as long as it fails.
//!
//! Start reading at [`reduce`].

mod shrink;
mod single;
mod trace;

use std::collections::HashSet;

use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::kernel::{Block, Kernel, Stmt, Value};
use unisonic_core::kir::legal::legalize;
use unisonic_core::kir::op::{Effect, Family};
use unisonic_core::kir::{Op, verify};
use unisonic_gpu::machine::MachineError;

use crate::kernels::Kernels;

/// Runs of a kernel, since some fail only now and then.
pub const REPEATS: u32 = 4;
/// Steps of the interpreter that a smaller kernel may take.
const FUEL: u64 = 1 << 28;

/// A kernel that fails on a device, and with what.
#[derive(Clone, Debug, PartialEq)]
pub struct Failing {
    /// What the device was given, legal for it.
    pub kernel: Kernel,
    /// How it is launched.
    pub launch: LaunchData,
    /// What has to be in the buffers afterwards, by the interpreter.
    pub expected: Vec<Vec<u8>>,
    /// What the device left there; or what it said.
    pub found: Result<Vec<Vec<u8>>, String>,
    /// Operations beside constants, loads, stores, and what only computes where those are.
    pub operations: usize,
}

/// A launch that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchData {
    /// Workgroups.
    pub groups: u32,
    /// Words of the parameters.
    pub params: Vec<u32>,
    /// Bytes of the buffers.
    pub buffers: Vec<Vec<u8>>,
}

impl LaunchData {
    /// Of a launch.
    pub fn of(launch: &Launch) -> Self {
        let Launch { groups, params, buffers, .. } = launch.clone();
        Self { groups, params, buffers }
    }

    /// For the interpreter.
    pub fn launch(&self) -> Launch {
        let Self { groups, params, buffers } = self.clone();
        Launch { groups, params, buffers, fuel: FUEL }
    }

    /// Bytes of all buffers.
    pub fn len_bytes(&self) -> usize {
        self.buffers.iter().map(Vec::len).sum()
    }
}

/// Operations that what is stored depends on, and those that wait.
fn operations(kernel: &Kernel) -> usize {
    let makers = trace::makers(kernel);
    let mut needed = vec![];
    let mut waits = 0;
    roots(&kernel.body, &mut needed, &mut waits);
    let mut seen = HashSet::new();
    while let Some(value) = needed.pop() {
        let Some(inst) = makers.get(&value).filter(|_| seen.insert(value)) else { continue };
        // An index is no value that is computed with.
        if !matches!(inst.op, Op::Load | Op::LoadStream) {
            needed.extend(&inst.operands);
        }
    }
    let is_operation = |value: &&Value| makers.get(value).is_some_and(|inst| is_operation(inst.op));
    waits + seen.iter().filter(is_operation).count()
}

/// What is stored or decided upon, and how many operations wait.
fn roots(block: &Block, needed: &mut Vec<Value>, waits: &mut usize) {
    needed.extend(&block.yields);
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(inst) if inst.op == Op::Store => needed.extend(inst.operands.get(1)),
            Stmt::Inst(inst) => *waits += usize::from(inst.op.row().effect == Effect::Waits),
            Stmt::If { condition, then, otherwise, .. } => {
                needed.push(*condition);
                roots(then, needed, waits);
                roots(otherwise, needed, waits);
            }
            Stmt::Loop { start, end, carried, body, .. } => {
                needed.extend([*start, *end]);
                needed.extend(carried.iter().map(|carried| carried.first));
                roots(body, needed, waits);
            }
        }
    }
}

fn is_operation(op: Op) -> bool {
    op.row().family != Family::Index && !matches!(op, Op::Load | Op::LoadStream | Op::Store)
}

impl Failing {
    /// A kernel that nobody has tried.
    pub fn untried(kernel: Kernel, launch: LaunchData, expected: Vec<Vec<u8>>, reason: &str) -> Self {
        let operations = operations(&kernel);
        Self { kernel, launch, expected, found: Err(reason.to_owned()), operations }
    }
}

/// Tries kernels on a device, as long as that is allowed.
pub struct Trial<'a> {
    kernels: &'a mut dyn Kernels,
    /// Runs that are left.
    left: u32,
    /// The device is gone: nothing more can be tried.
    is_lost: bool,
}

impl Trial<'_> {
    /// The kernel with what came out, if it fails; legalised first.
    pub fn fails(&mut self, kernel: &Kernel, launch: &LaunchData) -> Option<Failing> {
        if self.left == 0 || self.is_lost {
            return None;
        }
        let legal = legalize(kernel, &self.kernels.facts().hardware.caps);
        if !verify(&legal).is_empty() || self.kernels.misfit(&legal).is_some() {
            return None;
        }
        let mut right = launch.launch();
        run(&legal, &mut right).ok()?;
        self.left -= 1;
        let mut wrong = None;
        let ran = self.kernels.run(&legal, &launch.launch(), REPEATS, &mut |found| {
            wrong = (found != right.buffers).then_some(found);
            wrong.is_none()
        });
        let found = match ran {
            Ok(()) => Ok(wrong?),
            Err(MachineError::OutOfMemory { .. }) => return None,
            Err(error) => {
                self.is_lost = matches!(error, MachineError::Lost { .. });
                Err(error.to_string())
            }
        };
        let operations = operations(&legal);
        Some(Failing { kernel: legal, launch: launch.clone(), expected: right.buffers, found, operations })
    }
}

/// The smallest kernel that fails as this does, of those that are tried; at least the kernel itself, unless it does not fail
/// again. `most` is how many runs it may take.
pub fn reduce(kernels: &mut dyn Kernels, kernel: &Kernel, launch: &Launch, most: u32) -> Option<Failing> {
    let mut trial = Trial { kernels, left: most, is_lost: false };
    let whole = trial.fails(kernel, &LaunchData::of(launch))?;
    if whole.found.is_ok()
        && let Some(single) = single::reduce(&mut trial, &whole.kernel, launch)
    {
        return Some(single);
    }
    Some(shrink::reduce(&mut trial, whole))
}
