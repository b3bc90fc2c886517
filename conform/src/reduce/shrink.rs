//! Leaves out of a kernel whatever it still fails without.
//!
//! A statement that is left out becomes what does least: its results are zeros; a branch becomes its first block, a loop its
//! first turn. Workgroups, invocations, buffers and their ends go as well.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use unisonic_core::kir::kernel::{Attr, Block, Inst, Kernel, ObjectId, Space, Stmt, Value};
use unisonic_core::kir::op::{Effect, MAX_OPERANDS};
use unisonic_core::kir::{Op, Type};

use super::{Failing, LaunchData, Trial};
use crate::rewrite::renumbered;

/// A failing kernel that is not larger.
pub fn reduce(trial: &mut Trial<'_>, whole: Failing) -> Failing {
    let mut smallest = fewer_groups(trial, whole);
    loop {
        let before = size(&smallest);
        smallest = fewer_statements(trial, smallest);
        smallest = fewer_invocations(trial, smallest);
        if size(&smallest) >= before {
            break;
        }
    }
    let smallest = without_unused_objects(trial, smallest);
    shorter_buffers(trial, smallest)
}

fn size(failing: &Failing) -> (usize, u32) {
    (weight(&failing.kernel.body), failing.kernel.workgroup * failing.launch.groups)
}

/// Statements, of which constants count less, since what is left out becomes one.
fn weight(block: &Block) -> usize {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Inst(inst) if inst.op == Op::Const => 1,
        Stmt::Inst(_) => 4,
        Stmt::If { then, otherwise, .. } => 16 + weight(then) + weight(otherwise),
        Stmt::Loop { body, .. } => 16 + weight(body),
    };
    block.stmts.iter().map(of).sum()
}

/// Statements, those inside of others too.
fn count(block: &Block) -> usize {
    let of = |stmt: &Stmt| match stmt {
        Stmt::Inst(_) => 1,
        Stmt::If { then, otherwise, .. } => 1 + count(then) + count(otherwise),
        Stmt::Loop { body, .. } => 1 + count(body),
    };
    block.stmts.iter().map(of).sum()
}

fn fewer_groups(trial: &mut Trial<'_>, mut failing: Failing) -> Failing {
    for groups in [1, 2, 4, 16] {
        if groups >= failing.launch.groups {
            break;
        }
        let launch = LaunchData { groups, ..failing.launch.clone() };
        if let Some(smaller) = trial.fails(&failing.kernel, &launch) {
            failing = smaller;
            break;
        }
    }
    failing
}

fn fewer_invocations(trial: &mut Trial<'_>, failing: Failing) -> Failing {
    for workgroup in [1, 8, 32, 64, 128] {
        if workgroup >= failing.kernel.workgroup {
            break;
        }
        let kernel = Kernel { workgroup, ..failing.kernel.clone() };
        if let Some(smaller) = trial.fails(&kernel, &failing.launch) {
            return smaller;
        }
    }
    failing
}

/// Pieces of the list of statements, from halves down to single ones, for which then an operand may stand, too.
fn fewer_statements(trial: &mut Trial<'_>, mut failing: Failing) -> Failing {
    let mut piece = count(&failing.kernel.body).div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < count(&failing.kernel.body) {
            let by_operand = (0..if piece == 1 { MAX_OPERANDS } else { 0 }).map(Instead::Operand);
            let smaller = [Instead::Zero].into_iter().chain(by_operand).find_map(|instead| {
                let kernel = without(&failing.kernel, start..start + piece, instead);
                let is_smaller = weight(&kernel.body) < weight(&failing.kernel.body);
                is_smaller.then(|| trial.fails(&kernel, &failing.launch)).flatten()
            });
            match smaller {
                Some(smaller) => failing = smaller,
                None => start += piece,
            }
        }
        if piece == 1 {
            return failing;
        }
        piece = piece.div_ceil(2);
    }
}

/// What stands for the result of an operation that is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instead {
    Zero,
    /// Its operand of that number, if it has the type.
    Operand(usize),
}

/// The kernel without its statements of these numbers, and without what only they used.
fn without(kernel: &Kernel, removed: Range<usize>, instead: Instead) -> Kernel {
    let mut remover = Remover { removed, instead, at: 0, types: &kernel.types, aliases: HashMap::new() };
    let body = remover.block(&kernel.body);
    let aliases = remover.aliases;
    let mut kernel = Kernel { body, ..kernel.clone() };
    rename(&mut kernel.body, &aliases);
    while drop_unused(&mut kernel) {}
    renumbered(&kernel)
}

struct Remover<'a> {
    removed: Range<usize>,
    instead: Instead,
    /// Number of the next statement.
    at: usize,
    types: &'a [Type],
    /// Values that have become others.
    aliases: HashMap<Value, Value>,
}

impl Remover<'_> {
    fn block(&mut self, old: &Block) -> Block {
        let mut block = Block { stmts: vec![], yields: old.yields.clone() };
        for stmt in &old.stmts {
            let is_removed = self.removed.contains(&self.at);
            self.at += 1;
            match stmt {
                Stmt::Inst(inst) if is_removed => block.stmts.extend(self.instead_of(inst)),
                Stmt::Inst(inst) => block.stmts.push(Stmt::Inst(inst.clone())),
                Stmt::If { condition, then, otherwise, results } => {
                    let (then, otherwise) = (self.block(then), self.block(otherwise));
                    if is_removed {
                        self.aliases.extend(results.iter().copied().zip(then.yields));
                        block.stmts.extend(then.stmts);
                    } else {
                        let (condition, results) = (*condition, results.clone());
                        block.stmts.push(Stmt::If { condition, then, otherwise, results });
                    }
                }
                Stmt::Loop { index, start, end, step, carried, body } => {
                    let body = self.block(body);
                    if is_removed {
                        self.aliases.insert(*index, *start);
                        self.aliases.extend(carried.iter().map(|carried| (carried.inside, carried.first)));
                        let results = carried.iter().map(|carried| carried.result);
                        self.aliases.extend(results.zip(body.yields));
                        block.stmts.extend(body.stmts);
                    } else {
                        let (index, start, end, step) = (*index, *start, *end, *step);
                        let carried = carried.clone();
                        block.stmts.push(Stmt::Loop { index, start, end, step, carried, body });
                    }
                }
            }
        }
        block
    }

    fn instead_of(&mut self, inst: &Inst) -> Option<Stmt> {
        let result = inst.result?;
        let operand = match self.instead {
            Instead::Zero => None,
            Instead::Operand(number) => {
                let operand = inst.operands.get(number).copied();
                operand.filter(|operand| self.types[operand.index()] == self.types[result.index()])
            }
        };
        match operand {
            Some(operand) => {
                self.aliases.insert(result, operand);
                None
            }
            None => {
                let attr = Attr::Word(0);
                Some(Stmt::Inst(Inst { op: Op::Const, attr, operands: vec![], result: Some(result) }))
            }
        }
    }
}

/// Gives values the names of what they have become.
fn rename(block: &mut Block, aliases: &HashMap<Value, Value>) {
    let new = |value: &mut Value| {
        while let Some(&alias) = aliases.get(value) {
            *value = alias;
        }
    };
    block.yields.iter_mut().for_each(new);
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Inst(inst) => inst.operands.iter_mut().for_each(new),
            Stmt::If { condition, then, otherwise, .. } => {
                new(condition);
                rename(then, aliases);
                rename(otherwise, aliases);
            }
            Stmt::Loop { start, end, carried, body, .. } => {
                new(start);
                new(end);
                carried.iter_mut().for_each(|carried| new(&mut carried.first));
                rename(body, aliases);
            }
        }
    }
}

/// Leaves out operations whose results nobody uses; whether there were any.
pub fn drop_unused(kernel: &mut Kernel) -> bool {
    let mut used = HashSet::new();
    collect_uses(&kernel.body, &mut used);
    let before = count(&kernel.body);
    keep_used(&mut kernel.body, &used);
    count(&kernel.body) < before
}

fn collect_uses(block: &Block, used: &mut HashSet<Value>) {
    used.extend(&block.yields);
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(inst) => used.extend(&inst.operands),
            Stmt::If { condition, then, otherwise, .. } => {
                used.insert(*condition);
                collect_uses(then, used);
                collect_uses(otherwise, used);
            }
            Stmt::Loop { start, end, carried, body, .. } => {
                used.extend([*start, *end]);
                used.extend(carried.iter().map(|carried| carried.first));
                collect_uses(body, used);
            }
        }
    }
}

fn keep_used(block: &mut Block, used: &HashSet<Value>) {
    block.stmts.retain(|stmt| match stmt {
        Stmt::Inst(inst) => {
            let is_needed = matches!(inst.op.row().effect, Effect::Writes | Effect::Waits);
            is_needed || inst.result.is_none_or(|result| used.contains(&result))
        }
        Stmt::If { then, otherwise, results, .. } => {
            !then.stmts.is_empty() || !otherwise.stmts.is_empty() || results.iter().any(|r| used.contains(r))
        }
        Stmt::Loop { carried, body, .. } => {
            !body.stmts.is_empty() || carried.iter().any(|carried| used.contains(&carried.result))
        }
    });
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Inst(_) => {}
            Stmt::If { then, otherwise, .. } => {
                keep_used(then, used);
                keep_used(otherwise, used);
            }
            Stmt::Loop { body, .. } => keep_used(body, used),
        }
    }
}

fn objects_of(block: &Block, found: &mut HashSet<u32>) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(inst) => match inst.attr {
                Attr::Object(id) => drop(found.insert(id.0)),
                Attr::Copy { to, from } => found.extend([to.0, from.0]),
                Attr::Columns { of, .. } => drop(found.insert(of.0)),
                _ => {}
            },
            Stmt::If { then, otherwise, .. } => {
                objects_of(then, found);
                objects_of(otherwise, found);
            }
            Stmt::Loop { body, .. } => objects_of(body, found),
        }
    }
}

/// Without objects that no statement names.
fn without_unused_objects(trial: &mut Trial<'_>, failing: Failing) -> Failing {
    let mut used = HashSet::new();
    objects_of(&failing.kernel.body, &mut used);
    let is_used = |number: usize| used.contains(&(number as u32));
    let kernel = &failing.kernel;
    let mut buffers = failing.launch.buffers.iter();
    let mut launch = LaunchData { buffers: vec![], ..failing.launch.clone() };
    for (number, object) in kernel.objects.iter().enumerate() {
        if matches!(object.space, Space::Shared { .. }) {
            continue;
        }
        let Some(buffer) = buffers.next() else { return failing };
        if is_used(number) {
            launch.buffers.push(buffer.clone());
        }
    }
    let mut smaller = kernel.clone();
    let kept: Vec<usize> = (0..kernel.objects.len()).filter(|&number| is_used(number)).collect();
    smaller.objects = kept.iter().map(|&number| kernel.objects[number].clone()).collect();
    let new = |id: ObjectId| {
        ObjectId(kept.iter().position(|&number| number == id.index()).unwrap_or_default() as u32)
    };
    rename_objects(&mut smaller.body, &new);
    trial.fails(&smaller, &launch).unwrap_or(failing)
}

fn rename_objects(block: &mut Block, new: &dyn Fn(ObjectId) -> ObjectId) {
    for stmt in &mut block.stmts {
        match stmt {
            Stmt::Inst(inst) => {
                inst.attr = match inst.attr {
                    Attr::Object(id) => Attr::Object(new(id)),
                    Attr::Copy { to, from } => Attr::Copy { to: new(to), from: new(from) },
                    Attr::Columns { of, stride } => Attr::Columns { of: new(of), stride },
                    other => other,
                };
            }
            Stmt::If { then, otherwise, .. } => {
                rename_objects(then, new);
                rename_objects(otherwise, new);
            }
            Stmt::Loop { body, .. } => rename_objects(body, new),
        }
    }
}

/// Buffers that end sooner: the interpreter says what is still touched.
fn shorter_buffers(trial: &mut Trial<'_>, mut failing: Failing) -> Failing {
    for number in 0..failing.launch.buffers.len() {
        loop {
            let len = failing.launch.buffers[number].len() / 8 * 4;
            if len == 0 {
                break;
            }
            let mut launch = failing.launch.clone();
            launch.buffers[number].truncate(len);
            match trial.fails(&failing.kernel, &launch) {
                Some(smaller) => failing = smaller,
                None => break,
            }
        }
    }
    failing
}
