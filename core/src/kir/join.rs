//! One kernel out of several that have nothing to do with each other: side by side in one launch, so that a device pays once
//! for beginning and ending it.
//!
//! The number of a workgroup says which kernel it belongs to. All invocations of a workgroup take the same branch, so
//! barriers and exchanges inside stay legal; what a kernel computes is what it computed alone.
//!
//! Start reading at [`join`].

use super::kernel::{
    Attr, Block, Carried, Inst, Kernel, Object, ObjectId, Param, ParamId, Space, Stmt, Value,
};
use super::op::Op;
use super::types::{Scalar, Type};

/// A kernel and how many workgroups it is launched with.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its workgroups, at least one.
    pub workgroups: u32,
}

/// A kernel that does what all segments do, launched with the sum of their workgroups: those of the first segment first.
///
/// Its parameters and its objects that are not shared are those of the first segment, then those of the next, so that the
/// record of a launch is made of the segments' records. Shared memory of one element type is overlaid, because a workgroup is
/// in one segment only. As many workgroups should be resident as the most demanding segment asks for.
///
/// # Panics
/// If there are no segments, or their workgroups differ in size.
pub fn join(segments: &[Segment<'_>]) -> Kernel {
    let first = segments.first().unwrap_or_else(|| panic!("nothing to join"));
    let workgroup = first.kernel.workgroup;
    assert!(
        segments.iter().all(|segment| segment.kernel.workgroup == workgroup),
        "sizes of workgroups differ"
    );
    let mut joined = Kernel {
        name: name(segments),
        workgroup,
        resident: segments.iter().filter_map(|segment| segment.kernel.resident).min(),
        params: vec![],
        objects: vec![],
        types: vec![],
        body: Block::default(),
    };
    let group = define(&mut joined.types, Scalar::U32);
    let is_group = Inst { op: Op::GroupId, attr: Attr::None, operands: vec![], result: Some(group) };
    let mut shared = vec![];
    let mut body =
        chain(&mut joined, &mut shared, segments, Start { group, first: None, number: 0, before: 0 });
    body.stmts.insert(0, Stmt::Inst(is_group));
    joined.body = body;
    joined
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

fn define(types: &mut Vec<Type>, scalar: Scalar) -> Value {
    types.push(scalar.into());
    Value(types.len() as u32 - 1)
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
}

/// `if group < end { the first segment } else { the others }`.
fn chain(joined: &mut Kernel, shared: &mut Vec<Shared>, segments: &[Segment<'_>], start: Start) -> Block {
    let [segment, others @ ..] = segments else { return Block::default() };
    if others.is_empty() {
        return copy(joined, shared, segment.kernel, start);
    }
    let before = start.before + segment.workgroups;
    let (end, is_in) = (define(&mut joined.types, Scalar::U32), define(&mut joined.types, Scalar::Bool));
    let inst = |op, attr, operands, result| Stmt::Inst(Inst { op, attr, operands, result: Some(result) });
    let then = copy(joined, shared, segment.kernel, start);
    let after = Start { first: Some(end), number: start.number + 1, before, ..start };
    let otherwise = chain(joined, shared, others, after);
    let stmts = vec![
        inst(Op::Const, Attr::Word(before), vec![], end),
        inst(Op::ILt, Attr::None, vec![start.group, end], is_in),
        Stmt::If { condition: is_in, then, otherwise, results: vec![] },
    ];
    Block { stmts, yields: vec![] }
}

/// An object in shared memory, and the segment that used it last.
struct Shared {
    id: ObjectId,
    taken_by: usize,
}

/// The body of a segment, its values, objects and parameters behind those that are there.
fn copy(joined: &mut Kernel, shared: &mut Vec<Shared>, kernel: &Kernel, start: Start) -> Block {
    let values = joined.types.len() as u32;
    joined.types.extend(&kernel.types);
    let params = joined.params.len() as u32;
    let of_segment = |name: &str| format!("{name}_{}", start.number);
    joined
        .params
        .extend(kernel.params.iter().map(|param| Param { name: of_segment(&param.name), ..param.clone() }));
    let objects = kernel.objects.iter().map(|object| match object.space {
        Space::Shared { len } => overlay(&mut joined.objects, shared, object.elem, len, start.number),
        _ => {
            joined.objects.push(Object { name: of_segment(&object.name), ..object.clone() });
            ObjectId(joined.objects.len() as u32 - 1)
        }
    });
    let objects = objects.collect();
    Copy { values, params, objects, start }.block(&kernel.body)
}

/// A shared object of at least `len` elements that this segment does not use yet.
fn overlay(
    objects: &mut Vec<Object>,
    shared: &mut Vec<Shared>,
    elem: Scalar,
    len: u32,
    segment: usize,
) -> ObjectId {
    let is_free =
        |shared: &&mut Shared| shared.taken_by != segment && objects[shared.id.index()].elem == elem;
    if let Some(found) = shared.iter_mut().find(is_free) {
        found.taken_by = segment;
        if let Space::Shared { len: longest } = &mut objects[found.id.index()].space {
            *longest = len.max(*longest);
        }
        return found.id;
    }
    // No segment's name: those end in a number.
    let name = format!("shared_{}_{}", shared.len(), elem.name());
    objects.push(Object { name, elem, space: Space::Shared { len } });
    let id = ObjectId(objects.len() as u32 - 1);
    shared.push(Shared { id, taken_by: segment });
    id
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
            Attr::Param(id) => Attr::Param(ParamId(id.0 + self.params)),
            other => other,
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
