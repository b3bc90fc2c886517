//! Kernels that are made of others, as data.

use unisonic_core::kir::kernel::{Attr, Block, Inst, Kernel, Stmt, Value};
use unisonic_core::kir::{Op, Type, parse};

/// Types of the values of a kernel that is being changed.
pub struct Types(Vec<Type>);

impl Types {
    /// The type of a value.
    pub fn of(&self, value: Value) -> Type {
        self.0[value.index()]
    }

    /// An operation with a new result.
    pub fn push(&mut self, stmts: &mut Vec<Stmt>, op: Op, attr: Attr, operands: &[Value], ty: Type) -> Value {
        self.0.push(ty);
        let result = Value(self.0.len() as u32 - 1);
        stmts.push(Stmt::Inst(Inst { op, attr, operands: operands.to_vec(), result: Some(result) }));
        result
    }
}

/// Puts what `change` pushes in the place of each operation. Values may be new; each that was defined has to be defined still
/// where it is used.
pub fn rewrite(kernel: &Kernel, change: &mut dyn FnMut(&mut Types, &Inst, &mut Vec<Stmt>)) -> Kernel {
    let mut types = Types(kernel.types.clone());
    let body = block(&kernel.body, &mut types, change);
    renumbered(&Kernel { types: types.0, body, ..kernel.clone() })
}

fn block(old: &Block, types: &mut Types, change: &mut dyn FnMut(&mut Types, &Inst, &mut Vec<Stmt>)) -> Block {
    let mut stmts = vec![];
    for stmt in &old.stmts {
        match stmt {
            Stmt::Inst(inst) => change(types, inst, &mut stmts),
            Stmt::If { condition, then, otherwise, results } => {
                let (then, otherwise) = (block(then, types, change), block(otherwise, types, change));
                stmts.push(Stmt::If { condition: *condition, then, otherwise, results: results.clone() });
            }
            Stmt::Loop { index, start, end, step, carried, body } => {
                let (body, carried) = (block(body, types, change), carried.clone());
                let (index, start, end, step) = (*index, *start, *end, *step);
                stmts.push(Stmt::Loop { index, start, end, step, carried, body });
            }
        }
    }
    Block { stmts, yields: old.yields.clone() }
}

/// The same kernel with values in the order of their definitions: as its text is read. One that cannot be read comes back as it
/// is, and will not verify.
pub fn renumbered(kernel: &Kernel) -> Kernel {
    parse(&kernel.to_string()).unwrap_or_else(|_| kernel.clone())
}
