//! Small kernels of every operation, made from the table: what a device, an emitter or the legaliser makes of
//! one has to be what the interpreter makes.
//!
//! [`all`] has for each operation, each type of its operands and each size of workgroup that matters to it
//! some kernels. Invocation i loads the operands at i and applies the operation with each attribute, with
//! each choice of operands replaced by constants; every result is stored. What touches memory or waits is in
//! `memory.rs`, what buffers hold in `contents.rs`.

mod contents;
mod memory;

use std::cell::RefCell;

use super::build::{Build, Mem, V, kernel};
use super::interp::Launch;
use super::kernel::{Attr, Kernel, Space};
use super::op::{AttrKind, CLUSTER_WIDTHS, Effect, Family, Op, Pattern};
use super::types::{Scalar, Type};
pub use contents::Floats;
use contents::{Contents, fill};

/// Invocations of a launch.
const INVOCATIONS: u32 = 1536;
/// Invocations of a workgroup where nothing is said.
const WORKGROUP: u32 = 64;
/// Results of a kernel, about.
const RESULTS: usize = 8;
/// The word of the parameter.
const PARAM: u32 = 0x4049_0FDB;

/// An operation on types.
pub struct Case {
    /// The operation.
    pub op: Op,
    /// Named by operation and types.
    pub kernel: Kernel,
    /// What the buffers hold, in order, and how many words.
    buffers: Vec<(Contents, u32)>,
}

impl Case {
    /// A launch that meets the edge values in every combination. The same each time.
    pub fn launch(&self, floats: Floats) -> Launch {
        let params = vec![PARAM; self.kernel.params.len()];
        let groups = INVOCATIONS / self.kernel.workgroup;
        Launch { groups, params, buffers: fill(&self.buffers, floats), fuel: u64::MAX }
    }
}

/// Every operation of the table, in its order.
pub fn all() -> Vec<Case> {
    Op::ALL.iter().flat_map(|&op| of(op)).collect()
}

fn of(op: Op) -> Vec<Case> {
    let by_hand = memory::cases(op);
    if !by_hand.is_empty() {
        return by_hand;
    }
    let mut cases = Vec::new();
    for (operands, result) in signatures(op) {
        for &workgroup in workgroups(op, result) {
            let attrs = attrs(op, workgroup, &operands, result);
            let each = (RESULTS / constants(op).len()).max(1);
            for (part, attrs) in attrs.chunks(each).enumerate() {
                let types: Vec<String> = operands.iter().chain([&result]).map(Type::to_string).collect();
                let name = format!("{}_{}_{workgroup}_{part}", op.row().mnemonic, types.join("_"));
                cases.push(case(op, &name, workgroup, |writer| {
                    writer.operation(op, attrs, &operands, result);
                }));
            }
        }
    }
    cases
}

/// Types of the operands and the result that an operation takes, once each.
fn signatures(op: Op) -> Vec<(Vec<Type>, Type)> {
    let row = op.row();
    let types = Scalar::ALL.into_iter().flat_map(|scalar| Type::WIDTHS.map(|width| Type { scalar, width }));
    let mut found = Vec::new();
    for variable in types.clone() {
        let operand = |&pattern: &Pattern| match pattern {
            Pattern::Is(scalar) => Type { scalar, width: if row.by_word { variable.width } else { 1 } },
            Pattern::OneT => Type::one(variable.scalar),
            Pattern::Words(width) => Type { width, ..variable },
            Pattern::Many(scalar, width) => Type { scalar, width },
            Pattern::T | Pattern::Stated => variable,
        };
        let operands: Vec<Type> = row.operands.iter().map(operand).collect();
        let stated: Vec<Option<Type>> = match row.result {
            Some(Pattern::Stated) => types.clone().map(Some).collect(),
            _ => vec![None],
        };
        for stated in stated {
            let is_param = stated.is_some_and(|ty| ty.width == 1 && ty.scalar.is_param());
            if let Ok(Some(result)) = row.check(&operands, stated)
                && (op != Op::Param || is_param)
                && !found.contains(&(operands.clone(), result))
            {
                found.push((operands.clone(), result));
            }
        }
    }
    found
}

/// Workgroups that matter to an operation: exchanges have to know which lanes of a subgroup exist, whatever
/// the type.
fn workgroups(op: Op, result: Type) -> &'static [u32] {
    let is_exchange = op.row().family == Family::Lanes && result == Scalar::U32.into();
    if is_exchange { &[8, 32, 48, WORKGROUP] } else { &[WORKGROUP] }
}

/// Each mask and lane of a cluster on `u32`, and some on other types.
fn attrs(op: Op, workgroup: u32, operands: &[Type], result: Type) -> Vec<Attr> {
    match op.row().attr {
        AttrKind::None => vec![Attr::None],
        AttrKind::Word if result.scalar == Scalar::Bool => [0, 1].map(Attr::Word).to_vec(),
        AttrKind::Word => [0, 1, 0x3FC0_0000, 0x8000_0000, u32::MAX].map(Attr::Word).to_vec(),
        AttrKind::Param => vec![Attr::None],
        AttrKind::Index => {
            let len = match op {
                Op::Byte => 4,
                Op::Half => 2,
                _ => operands[0].width.into(),
            };
            (0..len).map(Attr::Index).collect()
        }
        AttrKind::Selector => [
            0x3210, 0x7654, 0x0123, 0x4321, 0x5432, 0x6543, 0x0000, 0x7777, 0x1010, 0x5410, 0x7632, 0x0321,
            0x6240, 0x7351, 0x2104, 0x4567,
        ]
        .map(Attr::Selector)
        .to_vec(),
        AttrKind::Cluster => {
            let is_whole = result == Scalar::U32.into() && workgroup == WORKGROUP;
            let lanes = move |width: u32| {
                (0..width).filter(move |lane| is_whole || [1, width / 2, width - 1].contains(lane))
            };
            CLUSTER_WIDTHS
                .into_iter()
                .filter(|&width| workgroup.is_multiple_of(width))
                .flat_map(|width| lanes(width).map(move |lane| Attr::Cluster { width, lane }))
                .collect()
        }
        AttrKind::Object | AttrKind::Copy | AttrKind::Columns => unreachable!("accesses are written by hand"),
    }
}

/// Which operands are constants (a bit each), and which constants: several where that costs a device little.
fn constants(op: Op) -> Vec<(usize, usize)> {
    let operands = op.row().operands.len();
    let turns = if operands <= 2 && op.row().effect == Effect::Pure { 4 } else { 1 };
    let sets = (0..1 << operands).flat_map(|set| (0..turns).map(move |turn| (set, turn)));
    sets.filter(|&(set, turn)| set > 0 || turn == 0).collect()
}

/// A case that `write` writes.
fn case(op: Op, name: &str, workgroup: u32, write: impl FnOnce(&Writer<'_>)) -> Case {
    let mut buffers = Vec::new();
    let kernel = kernel(name, workgroup, |k| {
        let lane = k.local_id();
        let i = k.group_id() * workgroup + lane;
        let writer = Writer { k, lane, i, buffers: RefCell::default(), outputs: RefCell::default() };
        write(&writer);
        buffers = writer.buffers.take();
    });
    Case { op, kernel, buffers }
}

/// A case that is being written.
struct Writer<'k> {
    k: &'k Build,
    /// Number of the invocation in its workgroup.
    lane: V<'k>,
    /// Number of the invocation in the launch.
    i: V<'k>,
    buffers: RefCell<Vec<(Contents, u32)>>,
    /// The buffer of each type of result, and its number among the buffers.
    outputs: RefCell<Vec<(Type, Mem<'k>, usize)>>,
}

impl<'k> Writer<'k> {
    /// The operation with each attribute and each choice of constants.
    fn operation(&self, op: Op, attrs: &[Attr], operands: &[Type], result: Type) {
        if op == Op::Param {
            return self.keep(self.k.param("p", result.scalar));
        }
        let contents = |number: usize| Contents::of_operand(op, number, operands[number].scalar);
        let loaded: Vec<V<'k>> =
            operands.iter().enumerate().map(|(number, &ty)| self.operand(ty, contents(number))).collect();
        for &attr in attrs {
            for (set, turn) in constants(op) {
                let values = operands.iter().enumerate().map(|(number, &ty)| {
                    let constants = contents(number).constants();
                    match set >> number & 1 {
                        1 => self
                            .k
                            .constant(ty, constants[(5 * turn + 3 * number + 1) % constants.len()])
                            .value(),
                        _ => loaded[number].value(),
                    }
                });
                let values: Vec<_> = values.collect();
                let is_stated = op.row().result == Some(Pattern::Stated);
                if let Some(value) = self.k.inst(op, attr, &values, is_stated.then_some(result)) {
                    self.keep(value);
                }
            }
        }
    }

    /// A buffer of so many words.
    fn buffer(&self, name: &str, elem: Scalar, space: Space, contents: Contents, len: u32) -> Mem<'k> {
        self.buffers.borrow_mut().push((contents, len));
        match space {
            Space::Read => self.k.read(name, elem),
            Space::ReadWrite => self.k.read_write(name, elem),
            _ => self.k.write(name, elem),
        }
    }

    /// A value for each invocation from a buffer of its own. Bools are kept as `u32`.
    fn operand(&self, ty: Type, contents: Contents) -> V<'k> {
        let elem = if ty.scalar == Scalar::Bool { Scalar::U32 } else { ty.scalar };
        let name = format!("in{}", self.buffers.borrow().len());
        let width = u32::from(ty.width);
        let loaded = self.buffer(&name, elem, Space::Read, contents, INVOCATIONS * width);
        let loaded = loaded.load_vector(self.i * width, ty.width);
        if ty.scalar == Scalar::Bool { loaded.constant(0).lt(loaded) } else { loaded }
    }

    /// Stores a result where nobody else does.
    fn keep(&self, value: V<'k>) {
        let value = match value.ty() {
            Type { scalar: Scalar::Bool, width } => {
                let word = |word| self.k.constant(Type { scalar: Scalar::U32, width }, word);
                value.select(word(1), word(0))
            }
            _ => value,
        };
        let (ty, width) = (value.ty(), u32::from(value.ty().width));
        let known = self.outputs.borrow().iter().find(|(of, ..)| *of == ty).map(|&(_, mem, at)| (mem, at));
        let (mem, number) = known.unwrap_or_else(|| {
            let number = self.buffers.borrow().len();
            let mem = self.buffer(&format!("out{number}"), ty.scalar, Space::Write, Contents::Output, 0);
            self.outputs.borrow_mut().push((ty, mem, number));
            (mem, number)
        });
        let first = {
            let len = &mut self.buffers.borrow_mut()[number].1;
            *len += INVOCATIONS * width;
            *len - INVOCATIONS * width
        };
        mem.store(self.i * width + first, value);
    }
}

#[cfg(test)]
mod tests;
