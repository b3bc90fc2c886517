//! What must hold of a kernel before it is run, legalised or emitted. All faults are collected, each with the
//! statement as text; [`Rule`] lists them.
//!
//! [`verify()`] is the way in; declarations are checked here, blocks in `blocks.rs`, operations in
//! `insts.rs`.

mod blocks;
mod insts;

use std::collections::HashSet;
use std::fmt;

use super::abi;
use super::kernel::{Inst, Kernel, Space, Value};
use super::op::Op;
use super::types::Type;
use super::uniform::uniform_values;
use super::waits::{has_wait, is_early, see_waits, walk};

/// Largest workgroup.
pub const MAX_WORKGROUP: u32 = 1024;
/// Largest shared memory of a workgroup, in bytes: what NVIDIA's GPUs have from sm_86 on. Where there is
/// less, kernels run that fit.
pub const MAX_SHARED_LEN_BYTES: u64 = 99 * 1024;
/// Length of an element of any type.
pub const WORD_LEN_BYTES: u64 = 4;
/// Deepest nesting of blocks.
pub const MAX_DEPTH: usize = 32;

/// What a kernel can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Names are words of letters, digits and underscores that no other parameter or object has.
    Name,
    /// Workgroups have 1 to [`MAX_WORKGROUP`] invocations.
    Workgroup,
    /// Parameters are `u32`, `i32` or `f32`; elements of objects are types that are stored.
    Declaration,
    /// Shared memory has at most [`MAX_SHARED_LEN_BYTES`] in all.
    SharedLen,
    /// The record of a launch has at most [`abi::MAX_RECORD_LEN_BYTES`].
    RecordLen,
    /// Blocks are nested at most [`MAX_DEPTH`] deep.
    Depth,
    /// Values are numbered in the order of their definitions, and each is defined: the text form says no
    /// more.
    Numbering,
    /// A value is defined once, before its uses, in the block of the use or one around it.
    Scope,
    /// Operands and results have the types of the operation's row.
    Type,
    /// The attribute is the one that the operation needs, and in its range.
    Attribute,
    /// An object is read or written as its declaration allows, and with its element's type.
    Access,
    /// What a block yields is what its statement needs.
    Yield,
    /// The step of a loop is not 0.
    Step,
    /// Operations that wait for or exchange with other invocations are reached by all of the workgroup
    /// together.
    Uniform,
    /// Clusters fill the workgroup.
    Cluster,
    /// A kernel that waits for the launches before it does so once on every way through it, and before that touches no
    /// buffer but to read one that it only reads.
    WaitLaunches,
}

impl Rule {
    /// All.
    pub const ALL: [Rule; 16] = [
        Rule::Name,
        Rule::Workgroup,
        Rule::Declaration,
        Rule::SharedLen,
        Rule::RecordLen,
        Rule::Depth,
        Rule::Numbering,
        Rule::Scope,
        Rule::Type,
        Rule::Attribute,
        Rule::Access,
        Rule::Yield,
        Rule::Step,
        Rule::Uniform,
        Rule::Cluster,
        Rule::WaitLaunches,
    ];
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which.
    pub rule: Rule,
    /// The statement, or what of the kernel.
    pub at: String,
    /// What was expected and found.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: `{}`: {}", self.rule, self.at, self.problem)
    }
}

/// All faults of a kernel, in the order of its text.
pub fn verify(kernel: &Kernel) -> Vec<Fault> {
    let mut verifier = Verifier {
        kernel,
        faults: vec![],
        defined: HashSet::new(),
        visible: HashSet::new(),
        out_of_order: None,
        uniform: vec![],
    };
    verifier.declarations();
    verifier.block(&kernel.body, 0, 0);
    verifier.numbering();
    // What is uniform can be told of values that exist.
    if verifier.faults.is_empty() {
        verifier.uniform = uniform_values(kernel);
        verifier.uniform_block(&kernel.body, true);
        verifier.waits();
    }
    verifier.faults
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    faults: Vec<Fault>,
    /// Every value defined so far.
    defined: HashSet<Value>,
    /// Those that the current statement may use.
    visible: HashSet<Value>,
    /// The first value that is not the next one.
    out_of_order: Option<Value>,
    uniform: Vec<bool>,
}

impl Verifier<'_> {
    fn fault(&mut self, rule: Rule, at: impl Into<String>, problem: impl Into<String>) {
        self.faults.push(Fault { rule, at: at.into(), problem: problem.into() });
    }

    fn declarations(&mut self) {
        let kernel = self.kernel;
        self.names();
        if !(1..=MAX_WORKGROUP).contains(&kernel.workgroup) {
            let problem =
                format!("{} invocations, but workgroups have 1 to {MAX_WORKGROUP}", kernel.workgroup);
            self.fault(Rule::Workgroup, &kernel.name, problem);
        }
        if kernel.resident == Some(0) {
            self.fault(Rule::Workgroup, &kernel.name, "no workgroup should be resident, but one has to");
        }
        for param in kernel.params.iter().filter(|param| !param.scalar.is_param()) {
            let problem = format!("a parameter is u32, i32 or f32, not {}", param.scalar.name());
            self.fault(Rule::Declaration, &param.name, problem);
        }
        for object in kernel.objects.iter().filter(|object| !object.elem.is_stored()) {
            self.fault(Rule::Declaration, &object.name, format!("{} is not stored", object.elem.name()));
        }
        self.lens();
    }

    fn names(&mut self) {
        let kernel = self.kernel;
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !is_name(&kernel.name) {
            self.fault(Rule::Name, &kernel.name, "is no name");
        }
        let mut names = HashSet::new();
        let params = kernel.params.iter().map(|param| &param.name);
        for name in params.chain(kernel.objects.iter().map(|object| &object.name)) {
            if !is_name(name) {
                self.fault(Rule::Name, name, "is no name");
            } else if !names.insert(name) {
                self.fault(Rule::Name, name, "is declared twice");
            }
        }
    }

    fn lens(&mut self) {
        let kernel = self.kernel;
        let shared = kernel.objects.iter().map(|object| match object.space {
            // Each object begins at 16 bytes.
            Space::Shared { len } => (u64::from(len) * WORD_LEN_BYTES).next_multiple_of(16),
            _ => 0,
        });
        let len_bytes: u64 = shared.sum();
        if len_bytes > MAX_SHARED_LEN_BYTES {
            let problem = format!("{len_bytes} bytes of shared memory, at most {MAX_SHARED_LEN_BYTES}");
            self.fault(Rule::SharedLen, &kernel.name, problem);
        }
        let len_bytes = abi::record_len_bytes(kernel);
        if len_bytes > abi::MAX_RECORD_LEN_BYTES {
            let max = abi::MAX_RECORD_LEN_BYTES;
            let problem = format!("{len_bytes} bytes of addresses and parameters, at most {max}");
            self.fault(Rule::RecordLen, &kernel.name, problem);
        }
    }

    /// Told once: one value out of place displaces those behind it.
    fn numbering(&mut self) {
        let (defined, types) = (self.defined.len(), self.kernel.types.len());
        if let Some(value) = self.out_of_order {
            self.fault(Rule::Numbering, value.to_string(), "the values before it are not defined before it");
        } else if defined < types {
            let problem = format!("{types} values have types, {defined} are defined");
            self.fault(Rule::Numbering, &self.kernel.name, problem);
        }
    }

    /// Where the kernel waits for launches.
    fn waits(&mut self) {
        let kernel = self.kernel;
        if !has_wait(kernel) {
            return;
        }
        walk(&kernel.body, false, &mut |inst, has_waited| {
            if has_waited && inst.op == Op::WaitLaunches {
                self.fault(Rule::WaitLaunches, kernel.inst_text(inst), "the kernel has waited above already");
            }
        });
        let mut early: Vec<&Inst> = vec![];
        let waits = see_waits(kernel, &mut |inst, waited| {
            if !waited && !is_early(kernel, inst) && !early.iter().any(|other| std::ptr::eq(*other, inst)) {
                early.push(inst);
            }
        });
        for inst in early {
            let problem = "it may come before the wait for the launches before";
            self.fault(Rule::WaitLaunches, kernel.inst_text(inst), problem);
        }
        if !waits {
            let problem = "there is a way to the end without the wait for the launches before";
            self.fault(Rule::WaitLaunches, &kernel.name, problem);
        }
    }

    fn usable(&mut self, at: &str, value: Value, expected: Option<Type>) {
        if !self.visible.contains(&value) {
            self.fault(Rule::Scope, at, format!("{value} is not defined here"));
        } else if expected.is_some() {
            self.same_type(at, Some(value), expected);
        }
    }

    fn same_type(&mut self, at: &str, value: Option<Value>, expected: Option<Type>) {
        let (Some(value), Some(expected)) = (value, expected) else { return };
        match self.kernel.types.get(value.index()) {
            Some(&found) if found == expected => {}
            Some(found) => self.fault(Rule::Type, at, format!("{value} is {found}, expected {expected}")),
            None => self.fault(Rule::Scope, at, format!("{value} has no type")),
        }
    }

    fn define(&mut self, at: &str, value: Value) {
        if value.index() >= self.kernel.types.len() {
            return self.fault(Rule::Scope, at, format!("{value} has no type"));
        }
        let is_next = value.index() == self.defined.len();
        if !self.defined.insert(value) {
            self.fault(Rule::Scope, at, format!("{value} is defined twice"));
        } else if !is_next {
            self.out_of_order.get_or_insert(value);
        }
        self.visible.insert(value);
    }
}

#[cfg(test)]
mod tests;
