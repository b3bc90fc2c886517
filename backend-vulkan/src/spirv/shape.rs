//! Vectors and packed bytes.

use spirv::{Op, Word};
use unisonic_core::kir::kernel::{Attr, Block, Inst, Stmt, Value};
use unisonic_core::kir::{Kernel, Op as Kir, Scalar, Type};

use super::Emitter;
use super::known::Key;

const U32: Type = Type::one(Scalar::U32);
const I32: Type = Type::one(Scalar::I32);

/// The most that any of a value's uses asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Nothing, or the matrix B of products.
    MatrixB,
    /// Components, or words of other matrices.
    Parts,
    /// A vector.
    Vector,
}

impl Use {
    fn of_operand(op: Kir, number: usize) -> Self {
        match (op, number) {
            (Kir::Mma32, 1) => Use::MatrixB,
            (Kir::Part | Kir::Mma16 | Kir::Mma32, _) => Use::Parts,
            _ => Use::Vector,
        }
    }
}

/// How each value is used.
pub(super) fn uses(kernel: &Kernel) -> Vec<Use> {
    fn mark(block: &Block, uses: &mut [Use]) {
        block.yields.iter().for_each(|value| uses[value.index()] = Use::Vector);
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => {
                    for (number, value) in inst.operands.iter().enumerate() {
                        let of = &mut uses[value.index()];
                        *of = Use::of_operand(inst.op, number).max(*of);
                    }
                }
                Stmt::If { then, otherwise, .. } => {
                    mark(then, uses);
                    mark(otherwise, uses);
                }
                Stmt::Loop { carried, body, .. } => {
                    carried.iter().for_each(|carried| uses[carried.first.index()] = Use::Vector);
                    mark(body, uses);
                }
            }
        }
    }
    let mut uses = vec![Use::MatrixB; kernel.types.len()];
    mark(&kernel.body, &mut uses);
    uses
}

impl Emitter<'_> {
    /// A vector of components.
    pub(super) fn vector(&mut self, inst: &Inst) -> Word {
        let words = inst.operands.iter().map(|&operand| self.id_of(operand)).collect();
        self.vector_of(inst, words)
    }

    /// A vector of components: a result of its own only where something uses it as a vector.
    pub(super) fn vector_of(&mut self, inst: &Inst, words: Vec<Word>) -> Word {
        let Some(result) = inst.result else { return 0 };
        let mut id = 0;
        if self.uses[result.index()] == Use::Vector {
            let ty = self.spirv_ty(self.ty_of(result));
            id = self.push(Op::CompositeConstruct, ty, &words);
        }
        self.parts.insert(result, words);
        id
    }

    /// A component; a vector of one is its component.
    pub(super) fn part(&mut self, inst: &Inst) -> Word {
        let Attr::Index(index) = inst.attr else { unreachable!("a part has an index") };
        self.part_of(inst.operands[0], index)
    }

    fn part_of(&mut self, value: Value, index: u32) -> Word {
        if let Some(parts) = self.parts.get(&value) {
            return parts[index as usize];
        }
        let (vector, ty) = (self.id_of(value), self.ty_of(value));
        if ty.width == 1 {
            return vector;
        }
        let key = Key::Part(vector, index);
        if let Some(known) = self.known.get(&key) {
            return known;
        }
        let ty = self.spirv_ty(ty.scalar.into());
        let part = self.extract(ty, vector, index);
        self.known.insert(key, part);
        part
    }

    /// The components of a vector.
    pub(super) fn words_of(&mut self, value: Value) -> Vec<Word> {
        (0..self.ty_of(value).width.into()).map(|index| self.part_of(value, index)).collect()
    }

    /// What tells a vector from others: its components, or its id.
    pub(super) fn ids_of(&self, value: Value) -> Vec<Word> {
        self.parts.get(&value).cloned().unwrap_or_else(|| vec![self.id_of(value)])
    }

    pub(super) fn extract(&mut self, ty: Word, vector: Word, index: u32) -> Word {
        self.push(Op::CompositeExtract, ty, &[vector, index])
    }

    pub(super) fn byte(&mut self, inst: &Inst) -> Word {
        let Attr::Index(index) = inst.attr else { unreachable!("a byte has an index") };
        let word = self.operand(inst, 0);
        let (offset, len) = (self.u32_constant(8 * index), self.u32_constant(8));
        if self.ty_of(inst.operands[0]).scalar == Scalar::I8x4 {
            let (word, i32_) = (self.bitcast(word, U32, I32), self.spirv_ty(I32));
            return match index {
                3 => self.push(Op::ShiftRightArithmetic, i32_, &[word, offset]),
                _ => self.push(Op::BitFieldSExtract, i32_, &[word, offset, len]),
            };
        }
        let u32_ = self.u32_ty();
        let byte = match index {
            3 => self.push(Op::ShiftRightLogical, u32_, &[word, offset]),
            _ => self.push(Op::BitFieldUExtract, u32_, &[word, offset, len]),
        };
        self.bitcast(byte, U32, I32)
    }

    pub(super) fn pack(&mut self, inst: &Inst) -> Word {
        let (i32_, len) = (self.spirv_ty(I32), self.u32_constant(8));
        let mut word = self.operand(inst, 0);
        for byte in 1..4 {
            let offset = self.u32_constant(8 * byte);
            word =
                self.push(Op::BitFieldInsert, i32_, &[word, self.operand(inst, byte as usize), offset, len]);
        }
        self.bitcast(word, I32, U32)
    }
}
