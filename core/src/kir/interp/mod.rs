//! Runs kernels on the host, a workgroup in lockstep: every statement for all invocations, then the next.
//!
//! It reports what a GPU would do silently: elements out of bounds, shared memory that was not written, two
//! invocations that touch an element without a barrier between them, what is touched too early
//! ([`super::waits`]), divisors of 0, kernels that do not end.
//! Start reading at [`run`]. `pure.rs` says of each operation what registers become; the families of the
//! table have files of their names: `alu.rs`, `shape.rs`, `mem.rs` (with `copies.rs` for copies under way),
//! `lanes.rs`, `dot.rs`, `matrix.rs`.

mod active;
mod alu;
mod copies;
mod dot;
mod lanes;
mod matrix;
mod mem;
mod pure;
mod shape;

use super::kernel::{Block, Inst, Kernel, Stmt, Value};
use super::op::{Family, Op};
use super::waits::has_wait;
use active::Active;
use copies::Copies;
use mem::Memory;

/// Buffers, parameters and the size of a run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Workgroups.
    pub groups: u32,
    /// Words of the parameters, in the order of the kernel.
    pub params: Vec<u32>,
    /// Bytes of each object that is not shared, in the order of the kernel. Little-endian.
    pub buffers: Vec<Vec<u8>>,
    /// Statements times invocations that may run.
    pub fuel: u64,
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workgroup {group}, invocation {lane}, `{at}`: {problem}")]
pub struct Trap {
    /// Workgroup.
    pub group: u32,
    /// Invocation in it; the first of several.
    pub lane: u32,
    /// The statement.
    pub at: String,
    /// What happened.
    pub problem: String,
}

/// Sees each operation, and may give it another result: for those who look for the operation that a device does otherwise, or
/// who model what a device may do.
pub trait Watch {
    /// An operation has run, for the invocations of which `is_active` holds; the words of values are those of invocation 0, then
    /// those of 1, ... . An operation without a result has no words of one.
    fn after(&mut self, inst: &Inst, operands: &[&[u32]], is_active: &[bool], result: &mut [u32]);
}

/// Runs a kernel that verifies; what it wrote is in `launch.buffers`.
///
/// # Panics
/// If the parameters or buffers are not as many as the kernel has, or the kernel does not verify.
pub fn run(kernel: &Kernel, launch: &mut Launch) -> Result<(), Trap> {
    run_with(kernel, launch, None)
}

/// The same, and `watch` sees it.
///
/// # Panics
/// As [`run`].
pub fn run_watched<'a>(
    kernel: &'a Kernel,
    launch: &'a mut Launch,
    watch: &'a mut dyn Watch,
) -> Result<(), Trap> {
    run_with(kernel, launch, Some(watch))
}

fn run_with<'a>(
    kernel: &'a Kernel,
    launch: &'a mut Launch,
    watch: Option<&'a mut dyn Watch>,
) -> Result<(), Trap> {
    assert_eq!(launch.params.len(), kernel.params.len(), "parameters of `{}`", kernel.name);
    let lanes = kernel.workgroup as usize;
    let registers = kernel.types.iter().map(|ty| vec![0; lanes * usize::from(ty.width)]).collect();
    let memory = Memory::new(kernel, std::mem::take(&mut launch.buffers));
    let copies = Copies::new(lanes);
    let (params, fuel) = (&launch.params[..], launch.fuel);
    let has_wait = has_wait(kernel);
    let is_early = has_wait;
    let mut machine =
        Machine { kernel, lanes, params, fuel, group: 0, registers, memory, copies, is_early, watch };
    let everyone = Active::all(lanes);
    let result = (0..launch.groups).try_for_each(|group| {
        machine.group = group;
        machine.memory.next_group();
        machine.copies = Copies::new(lanes);
        machine.is_early = has_wait;
        machine.block(&kernel.body, &everyone)?;
        match machine.is_early {
            true => Err(machine.trap(
                0,
                "the end".to_owned(),
                "the launches before were not waited for".to_owned(),
            )),
            false => Ok(()),
        }
    });
    launch.buffers = machine.memory.into_buffers();
    launch.fuel = machine.fuel;
    result
}

struct Machine<'a> {
    kernel: &'a Kernel,
    lanes: usize,
    params: &'a [u32],
    fuel: u64,
    group: u32,
    /// Words of each value: those of invocation 0, then those of 1, ...
    registers: Vec<Vec<u32>>,
    memory: Memory,
    copies: Copies,
    /// Whether launches before this one may still run.
    is_early: bool,
    watch: Option<&'a mut dyn Watch>,
}

impl Machine<'_> {
    /// Runs a block for the invocations that are in `active`. What others have in registers afterwards has no
    /// meaning.
    fn block(&mut self, block: &Block, active: &Active) -> Result<(), Trap> {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(inst, active)?,
                Stmt::If { condition, then, otherwise, results } => {
                    let (holds, fails) = active.split(&self.registers[condition.index()]);
                    for (block, inner) in [(then, holds), (otherwise, fails)] {
                        if inner.any() {
                            self.block(block, &inner)?;
                            for (&result, &from) in results.iter().zip(&block.yields) {
                                self.copy(result, from, &inner);
                            }
                        }
                    }
                }
                Stmt::Loop { .. } => self.run_loop(stmt, active)?,
            }
        }
        Ok(())
    }

    fn run_loop(&mut self, stmt: &Stmt, active: &Active) -> Result<(), Trap> {
        let Stmt::Loop { index, start, end, step, carried, body } = stmt else { return Ok(()) };
        self.copy(*index, *start, active);
        for carried in carried {
            self.copy(carried.inside, carried.first, active);
        }
        let mut turning = active.clone();
        loop {
            turning.keep_below(&self.registers[index.index()], &self.registers[end.index()]);
            if !turning.any() {
                break;
            }
            self.burn(&turning, || format!("loop {index}"))?;
            self.block(body, &turning)?;
            // All at once: a yield may be another carried value.
            let next: Vec<Vec<u32>> =
                body.yields.iter().map(|from| self.registers[from.index()].clone()).collect();
            for (carried, next) in carried.iter().zip(&next) {
                turning.blend(&mut self.registers[carried.inside.index()], next);
            }
            let indices = &mut self.registers[index.index()];
            if let Some(lane) = turning.lanes().find(|&lane| indices[lane] > u32::MAX - step) {
                return Err(self.trap(lane, format!("loop {index}"), "the index passes 2^32".to_owned()));
            }
            turning.lanes().for_each(|lane| indices[lane] += step);
        }
        for carried in carried {
            self.copy(carried.result, carried.inside, active);
        }
        Ok(())
    }

    fn inst(&mut self, inst: &Inst, active: &Active) -> Result<(), Trap> {
        self.burn(active, || self.kernel.inst_text(inst))?;
        match (inst.op.row().family, inst.op) {
            (Family::Mem, _) | (_, Op::LoadB) => self.mem(inst, active)?,
            (_, Op::UDiv | Op::URem) => {
                self.checked(inst, active, |divisor| divisor != 0, "division by 0")?;
            }
            (_, Op::Shl | Op::Shr) => {
                self.checked(inst, active, |amount| amount < 32, "a shift by 32 or more")?;
            }
            _ => self.pure(inst),
        }
        self.show(inst, active);
        Ok(())
    }

    /// Shows an operation to who watches.
    fn show(&mut self, inst: &Inst, active: &Active) {
        let Some(watch) = &mut self.watch else { return };
        let mut result = match inst.result {
            Some(result) => std::mem::take(&mut self.registers[result.index()]),
            None => vec![],
        };
        let operands: Vec<&[u32]> =
            inst.operands.iter().map(|operand| &self.registers[operand.index()][..]).collect();
        watch.after(inst, &operands, active.holds(), &mut result);
        if let Some(value) = inst.result {
            self.registers[value.index()] = result;
        }
    }

    /// Computes a result whose second operand has to be in a range.
    fn checked(
        &mut self,
        inst: &Inst,
        active: &Active,
        is_allowed: impl Fn(u32) -> bool,
        problem: &str,
    ) -> Result<(), Trap> {
        let words = &self.registers[inst.operands[1].index()];
        let width = words.len() / self.lanes;
        let is_wrong = |lane: &usize| !words[lane * width..][..width].iter().all(|&word| is_allowed(word));
        match active.lanes().find(is_wrong) {
            Some(lane) => Err(self.trap(lane, self.kernel.inst_text(inst), problem.to_owned())),
            None => {
                self.pure(inst);
                Ok(())
            }
        }
    }

    fn copy(&mut self, to: Value, from: Value, active: &Active) {
        let source = std::mem::take(&mut self.registers[from.index()]);
        active.blend(&mut self.registers[to.index()], &source);
        self.registers[from.index()] = source;
    }

    fn burn(&mut self, active: &Active, at: impl Fn() -> String) -> Result<(), Trap> {
        match self.fuel.checked_sub(self.lanes as u64) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(self.trap(
                active.lanes().next().unwrap_or(0),
                at(),
                "the fuel is used up: does the kernel end?".to_owned(),
            )),
        }
    }

    fn trap(&self, lane: usize, at: String, problem: String) -> Trap {
        Trap { group: self.group, lane: lane as u32, at, problem }
    }
}
