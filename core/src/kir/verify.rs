//! What must hold of a kernel before it is run, legalised or emitted. All faults are collected, each with the statement as
//! text; [`Rule`] lists them.

use std::collections::HashSet;
use std::fmt;

use super::kernel::{Attr, Block, Inst, Kernel, Object, Space, Stmt, Value};
use super::op::{AttrKind, CLUSTER_WIDTHS, Effect, Family, MATRIX_CLUSTER, Op, Pattern};
use super::types::{Scalar, Type};
use super::uniform::uniform_values;

/// Largest workgroup.
pub const MAX_WORKGROUP: u32 = 1024;
/// Largest shared memory of a workgroup, in bytes: what NVIDIA's GPUs have from sm_86 on. Where there is less, kernels run that
/// fit.
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
    /// Blocks are nested at most [`MAX_DEPTH`] deep.
    Depth,
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
    /// Operations that wait for or exchange with other invocations are reached by all of the workgroup together.
    Uniform,
    /// Clusters fill the workgroup.
    Cluster,
}

impl Rule {
    /// All.
    pub const ALL: [Rule; 13] = [
        Rule::Name,
        Rule::Workgroup,
        Rule::Declaration,
        Rule::SharedLen,
        Rule::Depth,
        Rule::Scope,
        Rule::Type,
        Rule::Attribute,
        Rule::Access,
        Rule::Yield,
        Rule::Step,
        Rule::Uniform,
        Rule::Cluster,
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
        uniform: vec![],
    };
    verifier.declarations();
    verifier.block(&kernel.body, 0, 0);
    // What is uniform can be told of values that exist.
    if verifier.faults.is_empty() {
        verifier.uniform = uniform_values(kernel);
        verifier.uniform_block(&kernel.body, true);
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
    uniform: Vec<bool>,
}

impl Verifier<'_> {
    fn fault(&mut self, rule: Rule, at: impl Into<String>, problem: impl Into<String>) {
        self.faults.push(Fault { rule, at: at.into(), problem: problem.into() });
    }

    fn declarations(&mut self) {
        let kernel = self.kernel;
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !is_name(&kernel.name) {
            self.fault(Rule::Name, &kernel.name, "is no name");
        }
        if !(1..=MAX_WORKGROUP).contains(&kernel.workgroup) {
            let problem =
                format!("{} invocations, but workgroups have 1 to {MAX_WORKGROUP}", kernel.workgroup);
            self.fault(Rule::Workgroup, &kernel.name, problem);
        }
        if kernel.resident == Some(0) {
            self.fault(Rule::Workgroup, &kernel.name, "no workgroup should be resident, but one has to");
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
        for param in &kernel.params {
            if !matches!(param.scalar, Scalar::U32 | Scalar::I32 | Scalar::F32) {
                let problem = format!("a parameter is u32, i32 or f32, not {}", param.scalar.name());
                self.fault(Rule::Declaration, &param.name, problem);
            }
        }
        let mut shared_len_bytes = 0_u64;
        for object in &kernel.objects {
            if !object.elem.is_stored() {
                self.fault(Rule::Declaration, &object.name, format!("{} is not stored", object.elem.name()));
            }
            if let Space::Shared { len } = object.space {
                // Each object begins at 16 bytes.
                shared_len_bytes += (u64::from(len) * WORD_LEN_BYTES).next_multiple_of(16);
            }
        }
        if shared_len_bytes > MAX_SHARED_LEN_BYTES {
            let problem =
                format!("{shared_len_bytes} bytes of shared memory, at most {MAX_SHARED_LEN_BYTES}");
            self.fault(Rule::SharedLen, &kernel.name, problem);
        }
    }

    /// Checks a block that has to yield `yields` values.
    fn block(&mut self, block: &Block, yields: usize, depth: usize) {
        if depth > MAX_DEPTH {
            return self.fault(
                Rule::Depth,
                &self.kernel.name,
                format!("blocks are more than {MAX_DEPTH} deep"),
            );
        }
        let outside = self.visible.clone();
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(inst),
                Stmt::If { condition, then, otherwise, results } => {
                    let at = format!("if {condition}");
                    self.usable(&at, *condition, Some(Scalar::Bool.into()));
                    self.block(then, results.len(), depth + 1);
                    self.block(otherwise, results.len(), depth + 1);
                    for (number, &result) in results.iter().enumerate() {
                        let expected = self.kernel.types.get(result.index()).copied();
                        for block in [then, otherwise] {
                            self.same_type(&at, block.yields.get(number).copied(), expected);
                        }
                        self.define(&at, result);
                    }
                }
                Stmt::Loop { index, start, end, step, carried, body } => {
                    let at = format!("loop {index}");
                    let before = self.visible.clone();
                    for bound in [start, end] {
                        self.usable(&at, *bound, Some(Scalar::U32.into()));
                    }
                    if *step == 0 {
                        self.fault(Rule::Step, &at, "a loop whose step is 0 does not end");
                    }
                    for carried in carried {
                        let ty = self.kernel.types.get(carried.first.index()).copied();
                        self.usable(&at, carried.first, ty);
                    }
                    self.define(&at, *index);
                    self.same_type(&at, Some(*index), Some(Scalar::U32.into()));
                    for (number, carried) in carried.iter().enumerate() {
                        self.define(&at, carried.inside);
                        let ty = self.kernel.types.get(carried.first.index()).copied();
                        for value in
                            [Some(carried.inside), Some(carried.result), body.yields.get(number).copied()]
                        {
                            self.same_type(&at, value, ty);
                        }
                    }
                    self.block(body, carried.len(), depth + 1);
                    self.visible = before;
                    for carried in carried {
                        self.define(&at, carried.result);
                    }
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

    fn inst(&mut self, inst: &Inst) {
        let at = self.kernel.inst_text(inst);
        let faults_before = self.faults.len();
        for &operand in &inst.operands {
            self.usable(&at, operand, None);
        }
        if let Some(result) = inst.result {
            self.define(&at, result);
        }
        if self.faults.len() > faults_before {
            return;
        }
        let ty = |value: Value| self.kernel.types[value.index()];
        let types: Vec<Type> = inst.operands.iter().copied().map(ty).collect();
        let result = inst.result.map(ty);
        let stated = if inst.op.row().result == Some(Pattern::Stated) { result } else { None };
        match inst.op.row().check(&types, stated) {
            Ok(expected) if expected == result => self.attribute(inst, &at, &types, result),
            Ok(expected) => {
                let text = |ty: Option<Type>| ty.map_or("nothing".to_owned(), |ty| ty.to_string());
                let problem = format!("the result is {}, expected {}", text(result), text(expected));
                self.fault(Rule::Type, at, problem);
            }
            Err(problem) => self.fault(Rule::Type, at, problem),
        }
    }

    fn attribute(&mut self, inst: &Inst, at: &str, types: &[Type], result: Option<Type>) {
        let kernel = self.kernel;
        if inst.op.row().family == Family::Matrix && !kernel.workgroup.is_multiple_of(MATRIX_CLUSTER) {
            let problem =
                format!("a workgroup of {} is not whole clusters of {MATRIX_CLUSTER}", kernel.workgroup);
            self.fault(Rule::Cluster, at, problem);
        }
        match (inst.op.row().attr, inst.attr) {
            (AttrKind::None, Attr::None) => {}
            (AttrKind::Word, Attr::Word(word)) => {
                let scalar = result.map(|ty| ty.scalar);
                let limit = match scalar {
                    Some(Scalar::Bool) => 1,
                    _ => u32::MAX,
                };
                if word > limit {
                    self.fault(Rule::Attribute, at, format!("0x{word:x} is above 0x{limit:x}"));
                }
            }
            (AttrKind::Param, Attr::Param(id)) => match kernel.params.get(id.index()) {
                Some(param) if result == Some(param.scalar.into()) => {}
                Some(param) => {
                    self.fault(Rule::Type, at, format!("the parameter is {}", param.scalar.name()))
                }
                None => self.fault(Rule::Attribute, at, "there is no such parameter"),
            },
            (AttrKind::Object, Attr::Object(id)) => match kernel.objects.get(id.index()) {
                Some(object) => {
                    let value = if inst.op == Op::Store { types.get(1).copied() } else { result };
                    if value.is_some_and(|ty| ty.scalar != object.elem) {
                        self.fault(Rule::Access, at, format!("the elements are {}", object.elem.name()));
                    }
                    let allowed = if inst.op == Op::Store {
                        object.space.is_writable()
                    } else {
                        object.space.is_readable()
                    };
                    if !allowed {
                        let cannot = if inst.op == Op::Store { "written" } else { "read" };
                        self.fault(Rule::Access, at, format!("`{}` is not to be {cannot}", object.name));
                    }
                }
                None => self.fault(Rule::Attribute, at, "there is no such object"),
            },
            (AttrKind::Copy, Attr::Copy { to, from }) => {
                match (kernel.objects.get(to.index()), kernel.objects.get(from.index())) {
                    (Some(to), Some(from)) => self.copy(at, to, from),
                    _ => self.fault(Rule::Attribute, at, "there is no such object"),
                }
            }
            (AttrKind::Index, Attr::Index(_)) if inst.op == Op::CopyWait => {}
            (AttrKind::Index, Attr::Index(index)) => {
                let len = match inst.op {
                    Op::Byte => 4,
                    Op::Half => 2,
                    _ => types.first().map_or(0, |ty| u32::from(ty.width)),
                };
                if index >= len {
                    self.fault(Rule::Attribute, at, format!("there is no part {index}"));
                }
            }
            (AttrKind::Selector, Attr::Selector(selector)) => {
                if (0..4).any(|digit| selector >> (4 * digit) & 15 > 7) {
                    self.fault(Rule::Attribute, at, "the digits of a selector are 0 to 7");
                }
            }
            (AttrKind::Cluster, Attr::Cluster { width, lane }) => {
                if !CLUSTER_WIDTHS.contains(&width) || lane >= width {
                    let problem = format!(
                        "clusters have 8, 16 or 32 lanes, and lanes are below that; {lane} of {width}"
                    );
                    self.fault(Rule::Attribute, at, problem);
                } else if !kernel.workgroup.is_multiple_of(width) {
                    let problem =
                        format!("a workgroup of {} is not whole clusters of {width}", kernel.workgroup);
                    self.fault(Rule::Cluster, at, problem);
                }
            }
            _ => self.fault(Rule::Attribute, at, "the attribute is of another operation"),
        }
    }

    fn copy(&mut self, at: &str, to: &Object, from: &Object) {
        if !matches!(to.space, Space::Shared { .. }) || from.space != Space::Read {
            self.fault(Rule::Access, at, "copies go from a buffer that is read to shared memory");
        }
        if to.elem != from.elem {
            let problem = format!("the elements are {} and {}", from.elem.name(), to.elem.name());
            self.fault(Rule::Access, at, problem);
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
        if !self.defined.insert(value) {
            self.fault(Rule::Scope, at, format!("{value} is defined twice"));
        }
        self.visible.insert(value);
    }

    /// Checks what needs all invocations together, in a block that they reach together if `together`.
    fn uniform_block(&mut self, block: &Block, together: bool) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => {
                    let needs_all = matches!(inst.op.row().effect, Effect::Exchanges | Effect::Waits);
                    if needs_all && !together {
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

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
