//! Writes kernels in plain Rust that reads like the kernel. What runs on the device is spelled with [`Build`]
//! or an operator on a [`V`]; plain `for` and `if` happen while the kernel is written.
//!
//! ```
//! use unisonic_core::kir::{Scalar, build::kernel, verify};
//!
//! let scale = kernel("scale", 64, |k| {
//!     let (n, factor) = (k.param("n", Scalar::U32), k.param("factor", Scalar::F32));
//!     let (x, y) = (k.read("x", Scalar::F32), k.write("y", Scalar::F32));
//!     let i = k.group_id() * 64 + k.local_id();
//!     k.when(i.lt(n), || y.store(i, x.load(i) * factor));
//! });
//! assert!(verify(&scale).is_empty());
//! ```
//!
//! Operations on values of wrong types are bugs of whoever writes the kernel and panic with the operation's
//! text.
//!
//! Declarations, statements and blocks are here; `values.rs` has what is done with a value or a memory.

mod values;

use std::cell::RefCell;

use super::kernel::{
    Attr, Block, Carried, Inst, Kernel, Object, ObjectId, Param, ParamId, Space, Stmt, Value,
};
use super::op::{Op, Pattern};
use super::types::{Scalar, Type};

/// Writes a kernel.
pub fn kernel(name: &str, workgroup: u32, write: impl FnOnce(&Build)) -> Kernel {
    let empty = Kernel {
        name: name.to_owned(),
        workgroup,
        resident: None,
        params: vec![],
        objects: vec![],
        types: vec![],
        body: Block::default(),
    };
    let build = Build { state: RefCell::new(State { kernel: empty, open: vec![Block::default()] }) };
    write(&build);
    let State { mut kernel, mut open } = build.state.into_inner();
    kernel.body = open.pop().unwrap_or_default();
    kernel
}

/// A kernel that is being written.
pub struct Build {
    state: RefCell<State>,
}

struct State {
    kernel: Kernel,
    /// The blocks around the next statement, the innermost last.
    open: Vec<Block>,
}

/// A value of the kernel.
#[derive(Clone, Copy)]
pub struct V<'k> {
    build: &'k Build,
    value: Value,
}

/// A global or shared array of the kernel.
#[derive(Clone, Copy)]
pub struct Mem<'k> {
    build: &'k Build,
    id: ObjectId,
    elem: Scalar,
}

impl Build {
    /// Says how many workgroups should be resident on a multiprocessor at a time ([`Kernel::resident`]).
    pub fn resident(&self, workgroups: u32) {
        self.state.borrow_mut().kernel.resident = Some(workgroups);
    }

    /// A parameter.
    pub fn param(&self, name: &str, scalar: Scalar) -> V<'_> {
        let id = {
            let params = &mut self.state.borrow_mut().kernel.params;
            params.push(Param { name: name.to_owned(), scalar });
            ParamId(params.len() as u32 - 1)
        };
        self.stated(Op::Param, Attr::Param(id), &[], scalar.into())
    }

    /// A buffer that is read.
    pub fn read(&self, name: &str, elem: Scalar) -> Mem<'_> {
        self.object(name, elem, Space::Read)
    }

    /// A buffer that is written.
    pub fn write(&self, name: &str, elem: Scalar) -> Mem<'_> {
        self.object(name, elem, Space::Write)
    }

    /// A buffer that is read and written.
    pub fn read_write(&self, name: &str, elem: Scalar) -> Mem<'_> {
        self.object(name, elem, Space::ReadWrite)
    }

    /// Memory of the workgroup.
    pub fn shared(&self, name: &str, elem: Scalar, len: u32) -> Mem<'_> {
        self.object(name, elem, Space::Shared { len })
    }

    /// The parameters, objects and hints of another kernel, under the same numbers.
    pub(super) fn declare_like(&self, kernel: &Kernel) {
        let own = &mut self.state.borrow_mut().kernel;
        own.params = kernel.params.clone();
        own.objects = kernel.objects.clone();
        own.resident = kernel.resident;
    }

    /// An object by its number.
    pub(super) fn mem(&self, id: ObjectId) -> Mem<'_> {
        let elem = self.state.borrow().kernel.objects[id.index()].elem;
        Mem { build: self, id, elem }
    }

    fn object(&self, name: &str, elem: Scalar, space: Space) -> Mem<'_> {
        let objects = &mut self.state.borrow_mut().kernel.objects;
        objects.push(Object { name: name.to_owned(), elem, space });
        Mem { build: self, id: ObjectId(objects.len() as u32 - 1), elem }
    }

    /// A constant.
    pub fn u32(&self, x: u32) -> V<'_> {
        self.constant(Scalar::U32.into(), x)
    }

    /// A constant.
    pub fn i32(&self, x: i32) -> V<'_> {
        self.constant(Scalar::I32.into(), x as u32)
    }

    /// A constant.
    pub fn f32(&self, x: f32) -> V<'_> {
        self.constant(Scalar::F32.into(), x.to_bits())
    }

    /// A constant by its word, in each word of a vector.
    pub fn constant(&self, ty: Type, word: u32) -> V<'_> {
        self.stated(Op::Const, Attr::Word(word), &[], ty)
    }

    /// Number of the invocation in its workgroup.
    pub fn local_id(&self) -> V<'_> {
        self.op(Op::LocalId, Attr::None, &[])
    }

    /// Number of the workgroup.
    pub fn group_id(&self) -> V<'_> {
        self.op(Op::GroupId, Attr::None, &[])
    }

    /// Waits for the workgroup.
    pub fn barrier(&self) {
        self.no_result(Op::Barrier, Attr::None, &[]);
    }

    /// Waits for the launches before this one ([`super::op::Op::WaitLaunches`]).
    pub fn wait_launches(&self) {
        self.no_result(Op::WaitLaunches, Attr::None, &[]);
    }

    /// A vector of two or four values of one type.
    pub fn vector<'k, const N: usize>(&'k self, parts: [V<'k>; N]) -> V<'k> {
        let op = if N == 2 { Op::Vec2 } else { Op::Vec4 };
        self.op(op, Attr::None, &parts.map(|part| part.value))
    }

    /// Four integers from -128 to 127 as bytes.
    pub fn pack<'k>(&'k self, parts: [V<'k>; 4]) -> V<'k> {
        self.op(Op::Pack, Attr::None, &parts.map(|part| part.value))
    }

    /// `sum + a·b` of four bytes each.
    pub fn dot4<'k>(&'k self, a: V<'k>, b: V<'k>, sum: V<'k>) -> V<'k> {
        self.op(Op::Dot4, Attr::None, &[a.value, b.value, sum.value])
    }

    /// `sum + a b` over a cluster of 32 invocations: 16x16 by 16x8 where `a` has two words, 16x32 by 32x8
    /// where it has four ([`super::op::Op::Mma32`] says which element is where).
    pub fn mma<'k>(&'k self, a: V<'k>, b: V<'k>, sum: V<'k>) -> V<'k> {
        let op = if a.ty().width == 2 { Op::Mma16 } else { Op::Mma32 };
        self.op(op, Attr::None, &[a.value, b.value, sum.value])
    }

    /// Closes a group of copies ([`Mem::copy_async`]).
    pub fn copy_commit(&self) {
        self.no_result(Op::CopyCommit, Attr::None, &[]);
    }

    /// Waits for this invocation's copies but for those of its last groups.
    pub fn copy_wait(&self, groups: u32) {
        self.no_result(Op::CopyWait, Attr::Index(groups), &[]);
    }

    /// Statements where a condition is true.
    pub fn when<'k>(&'k self, condition: V<'k>, then: impl FnOnce()) {
        self.choose(
            condition,
            || {
                then();
                []
            },
            || [],
        );
    }

    /// Values of one of two blocks.
    pub fn choose<'k, const N: usize>(
        &'k self,
        condition: V<'k>,
        then: impl FnOnce() -> [V<'k>; N],
        otherwise: impl FnOnce() -> [V<'k>; N],
    ) -> [V<'k>; N] {
        let then = self.block(|| then().to_vec());
        let otherwise = self.block(|| otherwise().to_vec());
        array(self.choose_block(condition, then, otherwise))
    }

    /// The same, of blocks that have been written.
    pub(super) fn choose_block<'k>(&'k self, condition: V<'k>, then: Block, otherwise: Block) -> Vec<V<'k>> {
        let results: Vec<V<'k>> = then.yields.iter().map(|&value| self.define(self.ty(value))).collect();
        let results_of = results.iter().map(|result| result.value).collect();
        self.push(Stmt::If { condition: condition.value, then, otherwise, results: results_of });
        results
    }

    /// Statements for `index` from `start` below `end` in steps.
    pub fn each<'k>(&'k self, start: V<'k>, end: V<'k>, step: u32, turn: impl FnOnce(V<'k>)) {
        self.fold(start, end, step, [], |index, []| {
            turn(index);
            []
        });
    }

    /// A loop that carries values from turn to turn; the values after the last.
    pub fn fold<'k, const N: usize>(
        &'k self,
        start: V<'k>,
        end: V<'k>,
        step: u32,
        first: [V<'k>; N],
        turn: impl FnOnce(V<'k>, [V<'k>; N]) -> [V<'k>; N],
    ) -> [V<'k>; N] {
        let turn = |index, carried: &[V<'k>]| turn(index, array(carried.to_vec())).to_vec();
        array(self.fold_any([start, end], step, &first, turn))
    }

    /// The same, for any number of values; the bounds are the first index and the one that is not reached.
    pub fn fold_any<'k>(
        &'k self,
        [start, end]: [V<'k>; 2],
        step: u32,
        first: &[V<'k>],
        turn: impl FnOnce(V<'k>, &[V<'k>]) -> Vec<V<'k>>,
    ) -> Vec<V<'k>> {
        let index = self.define(Scalar::U32.into());
        let like_first = || first.iter().map(|first| self.define(self.ty(first.value))).collect::<Vec<_>>();
        let inside = like_first();
        let body = self.block(|| turn(index, &inside));
        let results = like_first();
        let carried = inside.iter().zip(first).zip(&results).map(|((inside, first), result)| Carried {
            inside: inside.value,
            first: first.value,
            result: result.value,
        });
        let carried = carried.collect();
        let (index, start, end) = (index.value, start.value, end.value);
        self.push(Stmt::Loop { index, start, end, step, carried, body });
        results
    }

    /// Writes a block that stands by itself.
    pub(super) fn block<'k>(&'k self, write: impl FnOnce() -> Vec<V<'k>>) -> Block {
        self.state.borrow_mut().open.push(Block::default());
        let yields = write().iter().map(|value| value.value).collect();
        let mut block = self.state.borrow_mut().open.pop().unwrap_or_default();
        block.yields = yields;
        block
    }

    fn push(&self, stmt: Stmt) {
        if let Some(block) = self.state.borrow_mut().open.last_mut() {
            block.stmts.push(stmt);
        }
    }

    fn define(&self, ty: Type) -> V<'_> {
        let types = &mut self.state.borrow_mut().kernel.types;
        types.push(ty);
        V { build: self, value: Value(types.len() as u32 - 1) }
    }

    fn ty(&self, value: Value) -> Type {
        self.state.borrow().kernel.types[value.index()]
    }

    fn op(&self, op: Op, attr: Attr, operands: &[Value]) -> V<'_> {
        self.inst(op, attr, operands, None).unwrap_or_else(|| panic!("`{}` has no result", op.row().mnemonic))
    }

    fn stated(&self, op: Op, attr: Attr, operands: &[Value], ty: Type) -> V<'_> {
        debug_assert_eq!(op.row().result, Some(Pattern::Stated));
        self.inst(op, attr, operands, Some(ty))
            .unwrap_or_else(|| panic!("`{}` has no result", op.row().mnemonic))
    }

    fn no_result(&self, op: Op, attr: Attr, operands: &[Value]) {
        self.inst(op, attr, operands, None);
    }

    /// Any operation.
    pub(super) fn inst(&self, op: Op, attr: Attr, operands: &[Value], stated: Option<Type>) -> Option<V<'_>> {
        let types: Vec<Type> = operands.iter().map(|&operand| self.ty(operand)).collect();
        let result = match op.row().check(&types, stated) {
            Ok(result) => result.map(|ty| self.define(ty)),
            Err(problem) => {
                let inst = Inst { op, attr, operands: operands.to_vec(), result: None };
                let text = self.state.borrow().kernel.inst_text(&inst);
                panic!("`{text}`: {problem}");
            }
        };
        let inst = Inst { op, attr, operands: operands.to_vec(), result: result.map(|result| result.value) };
        self.push(Stmt::Inst(inst));
        result
    }
}

/// As many values as the caller gave.
fn array<'k, const N: usize>(values: Vec<V<'k>>) -> [V<'k>; N] {
    values.try_into().unwrap_or_else(|values: Vec<V<'k>>| panic!("{N} values became {}", values.len()))
}

#[cfg(test)]
mod tests {
    use super::super::{parse, verify};
    use super::*;

    /// Values are numbered as the reader of the text numbers them, so that a built kernel and its text are
    /// equal.
    #[test]
    fn a_built_kernel_is_what_its_text_says() {
        let built = kernel("all", 32, |k| {
            let n = k.param("n", Scalar::U32);
            let (x, y) = (k.read("x", Scalar::F32), k.read_write("y", Scalar::F32));
            let s = k.shared("s", Scalar::I8x4, 32);
            let i = k.local_id();
            let [a, b] = k.choose(i.lt(n), || [x.load(i), k.f32(1.5)], || [k.f32(-0.0), k.f32(2.5)]);
            let [sum] = k.fold(i, n, 4, [a * b], |turn, [sum]| {
                let four = x.load_vector(turn * 4, 4);
                [sum + four.part(3)]
            });
            let bytes = k.pack([i.cast(Scalar::I32); 4]);
            s.store(i, bytes);
            k.barrier();
            let dot = k.dot4(s.load(i ^ 1), bytes, k.i32(-1));
            let sum = sum.cluster_sum(8);
            k.when(i.eq(n), || y.store(i, dot.to_f32() + sum));
        });
        assert_eq!(verify(&built), [], "{built}");
        let read = parse(&built.to_string()).unwrap_or_else(|error| panic!("{error}\n{built}"));
        assert_eq!(read.to_string(), built.to_string());
        assert_eq!(read, built, "{built}");
    }

    #[test]
    #[should_panic(expected = "`fadd %0, %1`: operand 1 is u32")]
    fn a_wrong_type_is_told_with_the_operation() {
        kernel("wrong", 1, |k| {
            let _ = k.f32(1.0) + k.u32(1);
        });
    }
}
