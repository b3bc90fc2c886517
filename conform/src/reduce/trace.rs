//! What operations of a kernel were given, by the interpreter.

use std::collections::HashMap;

use unisonic_core::kir::Op;
use unisonic_core::kir::interp::{Launch, Watch, run_watched};
use unisonic_core::kir::kernel::{Block, Inst, Kernel, Stmt, Value};
use unisonic_core::kir::op::Effect;

/// Executions of an operation by a workgroup that are kept: in loops and other workgroups they see other operands.
const EXECUTIONS: usize = 8;

/// An operation that can be tried by itself, and what it was given.
pub struct Site {
    /// The operation.
    pub inst: Inst,
    /// For each execution by a workgroup, for each operand the words of all invocations.
    pub executions: Vec<Vec<Vec<u32>>>,
    /// For each execution, for each operand that another operation makes, the words of that one's operands.
    pub makers: Vec<HashMap<Value, Vec<Vec<u32>>>>,
}

/// The operations of a kernel with operands, in the order in which they first run.
pub fn sites(kernel: &Kernel, launch: &Launch) -> Vec<Site> {
    let mut watch = Recorder { sites: vec![], by_result: HashMap::new(), last: HashMap::new() };
    let mut launch = launch.clone();
    // A kernel that ends early has shown what it did until then.
    let _ = run_watched(kernel, &mut launch, &mut watch);
    watch.sites
}

/// The operation that makes each value.
pub fn makers(kernel: &Kernel) -> HashMap<Value, Inst> {
    fn of(block: &Block, found: &mut HashMap<Value, Inst>) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => found.extend(inst.result.map(|result| (result, inst.clone()))),
                Stmt::If { then, otherwise, .. } => {
                    of(then, found);
                    of(otherwise, found);
                }
                Stmt::Loop { body, .. } => of(body, found),
            }
        }
    }
    let mut found = HashMap::new();
    of(&kernel.body, &mut found);
    found
}

struct Recorder {
    sites: Vec<Site>,
    by_result: HashMap<Value, usize>,
    /// What the operation that makes a value was given last.
    last: HashMap<Value, Vec<Vec<u32>>>,
}

/// Whether an operation is a function of its operands, and has some.
pub fn is_tried(op: Op) -> bool {
    let row = op.row();
    !row.operands.is_empty() && matches!(row.effect, Effect::Pure | Effect::Exchanges)
}

impl Watch for Recorder {
    fn after(&mut self, inst: &Inst, operands: &[&[u32]], is_active: &[bool], _: &mut [u32]) {
        let Some(result) = inst.result.filter(|_| is_tried(inst.op)) else { return };
        let at = *self.by_result.entry(result).or_insert_with(|| {
            self.sites.push(Site { inst: inst.clone(), executions: vec![], makers: vec![] });
            self.sites.len() - 1
        });
        let Some(first) = is_active.iter().position(|&is_active| is_active) else { return };
        // What is not active has words without a meaning, such as divisors of 0: it gets those of one that is.
        let words = |operand: &&[u32]| {
            let width = operand.len() / is_active.len();
            let of_lane = |lane: usize| operand[lane * width..][..width].iter().copied();
            let lanes = is_active.iter().enumerate();
            lanes.flat_map(|(lane, &holds)| of_lane(if holds { lane } else { first })).collect::<Vec<u32>>()
        };
        let operands: Vec<Vec<u32>> = operands.iter().map(words).collect();
        let site = &mut self.sites[at];
        if site.executions.len() < EXECUTIONS {
            let makers = inst
                .operands
                .iter()
                .filter_map(|operand| self.last.get(operand).map(|operands| (*operand, operands.clone())));
            site.makers.push(makers.collect());
            site.executions.push(operands.clone());
        }
        self.last.insert(result, operands);
    }
}
