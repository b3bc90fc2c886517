//! One kernel out of several that have nothing to do with each other: side by side in one launch, so that a
//! device pays once for beginning and ending it.
//!
//! The number of a workgroup says which kernel it belongs to. All invocations of a workgroup take the same
//! branch, so barriers and exchanges inside stay legal; what a kernel computes is what it computed alone.
//!
//! Start reading at [`join`].

use super::kernel::{
    Attr, Block, Carried, Inst, Kernel, Object, ObjectId, Param, ParamId, Space, Stmt, Value,
};
use super::op::Op;
use super::types::Scalar;
use super::waits::has_wait;

/// A kernel and how it is launched.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its workgroups, at least one.
    pub workgroups: u32,
    /// For each object that is not shared, a number of the buffer that it is, the same for equal ones.
    pub buffers: &'a [u32],
}

/// A kernel that was joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The kernel.
    pub kernel: Kernel,
    /// For each object that is not shared, the number of its buffer.
    pub buffers: Vec<u32>,
}

/// A kernel that does what all segments do, launched with the sum of their workgroups: those of the first
/// segment first.
///
/// Its parameters are those of the first segment, then those of the next, and so are its objects that are not
/// shared; but objects that are only read, and are the same buffer and of the same type, are one. Shared
/// memory of one element type is overlaid, because a workgroup is in one segment only. As many workgroups
/// should be resident as the most demanding segment asks for.
///
/// # Panics
/// If there are no segments, if their workgroups differ in size, or if one has not as many buffers as
/// objects.
pub fn join(segments: &[Segment<'_>]) -> Joined {
    let first = segments.first().unwrap_or_else(|| panic!("nothing to join"));
    let workgroup = first.kernel.workgroup;
    assert!(
        segments.iter().all(|segment| segment.kernel.workgroup == workgroup),
        "sizes of workgroups differ"
    );
    let kernel = Kernel {
        name: name(segments),
        workgroup,
        resident: segments.iter().filter_map(|segment| segment.kernel.resident).min(),
        params: vec![],
        objects: vec![],
        types: vec![],
        body: Block::default(),
    };
    let mut joiner = Joiner { kernel, buffers: vec![], taken_by: vec![] };
    let group = joiner.define(Scalar::U32);
    let is_group = Inst { op: Op::GroupId, attr: Attr::None, operands: vec![], result: Some(group) };
    let has_wait = segments.iter().any(|segment| has_wait(segment.kernel));
    let mut body = joiner.chain(segments, Start { group, first: None, number: 0, before: 0, has_wait });
    body.stmts.insert(0, Stmt::Inst(is_group));
    let Joiner { kernel, buffers, .. } = joiner;
    Joined { kernel: Kernel { body, ..kernel }, buffers: buffers.into_iter().flatten().collect() }
}

/// The names of the segments, each once if they are the same.
fn name(segments: &[Segment<'_>]) -> String {
    let mut names: Vec<&str> = segments.iter().map(|segment| &segment.kernel.name[..]).collect();
    names.dedup();
    match names[..] {
        [one] => format!("{one}_x{}", segments.len()),
        _ => names.join("_and_"),
    }
}

/// Where the first of the segments that are left begins.
#[derive(Clone, Copy)]
struct Start {
    /// The number of the workgroup among all.
    group: Value,
    /// The number of the segment's first workgroup; none if that is 0.
    first: Option<Value>,
    /// How many segments are before it.
    number: usize,
    /// How many workgroups they have.
    before: u32,
    /// Whether one of the segments says when it waits for the launches before: then those do that wait before
    /// all else.
    has_wait: bool,
}

struct Joiner {
    kernel: Kernel,
    /// Of each object, the number of its buffer; none of shared ones.
    buffers: Vec<Option<u32>>,
    /// Of each object, the segment that used it last.
    taken_by: Vec<usize>,
}

impl Joiner {
    fn define(&mut self, scalar: Scalar) -> Value {
        self.kernel.types.push(scalar.into());
        Value(self.kernel.types.len() as u32 - 1)
    }

    /// `if group < end { the first segment } else { the others }`.
    fn chain(&mut self, segments: &[Segment<'_>], start: Start) -> Block {
        let [segment, others @ ..] = segments else { return Block::default() };
        if others.is_empty() {
            return self.copy(segment, start);
        }
        let before = start.before + segment.workgroups;
        let (end, is_in) = (self.define(Scalar::U32), self.define(Scalar::Bool));
        let then = self.copy(segment, start);
        let after = Start { first: Some(end), number: start.number + 1, before, ..start };
        let otherwise = self.chain(others, after);
        let inst = |op, attr, operands, result| Stmt::Inst(Inst { op, attr, operands, result: Some(result) });
        let stmts = vec![
            inst(Op::Const, Attr::Word(before), vec![], end),
            inst(Op::ILt, Attr::None, vec![start.group, end], is_in),
            Stmt::If { condition: is_in, then, otherwise, results: vec![] },
        ];
        Block { stmts, yields: vec![] }
    }

    /// The body of a segment, its values, objects and parameters behind those that are there.
    fn copy(&mut self, segment: &Segment<'_>, start: Start) -> Block {
        let of = segment.kernel;
        let (values, params) = (self.kernel.types.len() as u32, self.kernel.params.len() as u32);
        self.kernel.types.extend(&of.types);
        let name = |name: &str| format!("{name}_{}", start.number);
        self.kernel
            .params
            .extend(of.params.iter().map(|param| Param { name: name(&param.name), ..param.clone() }));
        let mut buffers = segment.buffers.iter().copied();
        let objects = of.objects.iter().map(|object| match object.space {
            Space::Shared { len } => self.overlay(object.elem, len, start.number),
            _ => {
                let buffer = buffers.next().unwrap_or_else(|| panic!("no buffer for `{}`", object.name));
                self.object(Object { name: name(&object.name), ..object.clone() }, buffer)
            }
        });
        let objects = objects.collect();
        assert!(buffers.next().is_none(), "more buffers than objects");
        let mut block = Copy { values, params, objects, start }.block(&of.body);
        if start.has_wait && !has_wait(of) {
            let wait = Inst { op: Op::WaitLaunches, attr: Attr::None, operands: vec![], result: None };
            block.stmts.insert(0, Stmt::Inst(wait));
        }
        block
    }

    fn add(&mut self, object: Object, buffer: Option<u32>, segment: usize) -> ObjectId {
        self.kernel.objects.push(object);
        self.buffers.push(buffer);
        self.taken_by.push(segment);
        ObjectId(self.kernel.objects.len() as u32 - 1)
    }

    fn find(&self, is_it: impl Fn(usize, &Object) -> bool) -> Option<ObjectId> {
        let mut numbered = self.kernel.objects.iter().enumerate();
        numbered.find(|&(number, object)| is_it(number, object)).map(|(number, _)| ObjectId(number as u32))
    }

    /// An object that is a buffer.
    fn object(&mut self, object: Object, buffer: u32) -> ObjectId {
        let is_same = |number: usize, other: &Object| {
            self.buffers[number] == Some(buffer)
                && [object.space, other.space] == [Space::Read; 2]
                && object.elem == other.elem
        };
        self.find(is_same).unwrap_or_else(|| self.add(object, Some(buffer), 0))
    }

    /// A shared object of at least `len` elements that this segment does not use yet.
    fn overlay(&mut self, elem: Scalar, len: u32, segment: usize) -> ObjectId {
        let is_free = |number: usize, other: &Object| {
            self.taken_by[number] != segment
                && matches!(other.space, Space::Shared { .. })
                && other.elem == elem
        };
        if let Some(found) = self.find(is_free) {
            self.taken_by[found.index()] = segment;
            if let Space::Shared { len: longest } = &mut self.kernel.objects[found.index()].space {
                *longest = len.max(*longest);
            }
            return found;
        }
        // No segment's name: those end in a number.
        let name = format!("shared_{}_{}", self.kernel.objects.len(), elem.name());
        self.add(Object { name, elem, space: Space::Shared { len } }, None, segment)
    }
}

/// Where the numbers of a segment begin.
struct Copy {
    values: u32,
    params: u32,
    objects: Vec<ObjectId>,
    start: Start,
}

impl Copy {
    fn value(&self, value: Value) -> Value {
        Value(value.0 + self.values)
    }

    fn all(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|&value| self.value(value)).collect()
    }

    fn block(&self, block: &Block) -> Block {
        Block {
            stmts: block.stmts.iter().map(|stmt| self.stmt(stmt)).collect(),
            yields: self.all(&block.yields),
        }
    }

    fn stmt(&self, stmt: &Stmt) -> Stmt {
        match stmt {
            Stmt::Inst(inst) => Stmt::Inst(self.inst(inst)),
            Stmt::If { condition, then, otherwise, results } => Stmt::If {
                condition: self.value(*condition),
                then: self.block(then),
                otherwise: self.block(otherwise),
                results: self.all(results),
            },
            Stmt::Loop { index, start, end, step, carried, body } => Stmt::Loop {
                index: self.value(*index),
                start: self.value(*start),
                end: self.value(*end),
                step: *step,
                carried: carried.iter().map(|carried| self.carried(carried)).collect(),
                body: self.block(body),
            },
        }
    }

    fn carried(&self, carried: &Carried) -> Carried {
        let Carried { inside, first, result } = *carried;
        Carried { inside: self.value(inside), first: self.value(first), result: self.value(result) }
    }

    fn inst(&self, inst: &Inst) -> Inst {
        let result = inst.result.map(|result| self.value(result));
        let object = |id: ObjectId| self.objects[id.index()];
        let attr = match inst.attr {
            Attr::Object(id) => Attr::Object(object(id)),
            Attr::Copy { to, from } => Attr::Copy { to: object(to), from: object(from) },
            Attr::Columns { of, stride } => Attr::Columns { of: object(of), stride },
            Attr::Param(id) => Attr::Param(ParamId(id.0 + self.params)),
            Attr::None | Attr::Word(_) | Attr::Index(_) | Attr::Selector(_) | Attr::Cluster { .. } => {
                inst.attr
            }
        };
        match (inst.op, self.start.first) {
            // Each segment counts its own workgroups from 0.
            (Op::GroupId, Some(first)) => {
                Inst { op: Op::ISub, attr, operands: vec![self.start.group, first], result }
            }
            _ => Inst { op: inst.op, attr, operands: self.all(&inst.operands), result },
        }
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
