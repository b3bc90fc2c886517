//! Products of matrices: cooperative matrices, made of words and taken apart again.
//!
//! SPIR-V does not say which component of a matrix is which element. [`super::matrix_probe`] asks a device;
//! where it answers as this file takes for granted, components are the words of `mma32`, those of A in the
//! target's order.

use spirv::{
    Capability, CooperativeMatrixLayout, CooperativeMatrixOperands, CooperativeMatrixUse, MemoryAccess,
    MemorySemantics, Op, Scope, StorageClass, Word,
};
use unisonic_core::kir::kernel::{Attr, Inst, Value};
use unisonic_core::kir::op::{self, MATRIX_CLUSTER};
use unisonic_core::kir::{Scalar, Type};

use super::Emitter;
use super::known::Key;
use super::shape::Use;

const VEC4: Type = Type { scalar: Scalar::U32, width: 4 };
/// Distance of the rows of a staged A, in vectors of 16 bytes: two hold the row, one keeps rows of different
/// banks apart.
const ROW_VEC4S: u32 = 3;
const ROWS: u32 = 16;
/// Shared memory that a subgroup stages A in, in vectors.
const STAGE_VEC4S: u32 = ROWS * ROW_VEC4S;

/// One of the three matrices of a product.
#[derive(Clone, Copy)]
pub(super) enum Matrix {
    A,
    B,
    C,
}

impl Matrix {
    fn shape(self) -> (u32, u32, CooperativeMatrixUse) {
        match self {
            Matrix::A => (16, 32, CooperativeMatrixUse::MatrixAKHR),
            Matrix::B => (32, 8, CooperativeMatrixUse::MatrixBKHR),
            Matrix::C => (16, 8, CooperativeMatrixUse::MatrixAccumulatorKHR),
        }
    }
}

/// Where a subgroup stages A.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    /// Where an invocation writes each of its words.
    words: [Word; 4],
    /// Where the subgroup reads the matrix.
    rows: Word,
}

impl Emitter<'_> {
    pub(super) fn matrix_product(&mut self, inst: &Inst) -> Word {
        let Some(order) = self.target.matrix.filter(|_| inst.op == op::Op::Mma32) else {
            self.legalised_away(inst)
        };
        let [a, b, c] = [0, 1, 2].map(|number| inst.operands[number]);
        let (a, b, c) = (self.matrix_a(a, order.words()), self.matrix_b(b), self.matrix_c(c));
        let ty = self.matrix_ty(Matrix::C);
        let signed = CooperativeMatrixOperands::MATRIX_A_SIGNED_COMPONENTS_KHR
            | CooperativeMatrixOperands::MATRIX_B_SIGNED_COMPONENTS_KHR
            | CooperativeMatrixOperands::MATRIX_C_SIGNED_COMPONENTS_KHR
            | CooperativeMatrixOperands::MATRIX_RESULT_SIGNED_COMPONENTS_KHR;
        let d = self.push(Op::CooperativeMatrixMulAddKHR, ty, &[a, b, c, signed.bits()]);
        let i32_ = self.spirv_ty(Scalar::I32.into());
        let words = [0, 1, 2, 3].map(|word| self.extract(i32_, d, word));
        // The next product of a sum takes it as it is.
        self.known.insert(Key::C(words.to_vec()), d);
        self.vector_of(inst, words.to_vec())
    }

    /// A matrix B from a shared array of vectors of 16 bytes. It is the value where only products use that;
    /// else its words are, and products find it by them.
    pub(super) fn load_b(&mut self, inst: &Inst) -> Word {
        let (Attr::Columns { of, stride }, Some(result)) = (inst.attr, inst.result) else {
            unreachable!("a matrix is loaded from columns")
        };
        if self.target.matrix.is_none() {
            self.legalised_away(inst)
        }
        let at = self.vec4_in_shared(of, inst.operands[0]);
        let b = self.load_matrix(Matrix::B, at, CooperativeMatrixLayout::ColumnMajorKHR, stride / 4);
        if self.uses[result.index()] == Use::MatrixB {
            self.known.insert(Key::B(vec![b]), b);
            return b;
        }
        let words = [0, 1].map(|word| self.word_of_bytes(b, word)).to_vec();
        self.known.insert(Key::B(words.clone()), b);
        self.vector_of(inst, words)
    }

    /// A word of four components.
    fn word_of_bytes(&mut self, matrix: Word, number: u32) -> Word {
        let (signed, u32_) = (self.byte_ty(true), self.u32_ty());
        let mut word = 0;
        for byte in 0..4 {
            let component = self.extract(signed, matrix, 4 * number + byte);
            let bits = self.push(Op::UConvert, u32_, &[component]);
            if byte == 0 {
                word = bits;
                continue;
            }
            let amount = self.u32_constant(8 * byte);
            let bits = self.push(Op::ShiftLeftLogical, u32_, &[bits, amount]);
            word = self.push(Op::BitwiseOr, u32_, &[word, bits]);
        }
        word
    }

    pub(super) fn matrix_ty(&mut self, matrix: Matrix) -> Word {
        self.module.capability(Capability::CooperativeMatrixKHR);
        self.module.extension("SPV_KHR_cooperative_matrix");
        let component = match matrix {
            Matrix::A | Matrix::B => self.byte_ty(true),
            Matrix::C => self.spirv_ty(Scalar::I32.into()),
        };
        let (rows, columns, use_) = matrix.shape();
        let words = [Scope::Subgroup as u32, rows, columns, use_ as u32];
        let [scope, rows, columns, use_] = words.map(|word| self.u32_constant(word));
        self.module.once(Op::TypeCooperativeMatrixKHR, None, &[component, scope, rows, columns, use_]).0
    }

    pub(super) fn byte_ty(&mut self, is_signed: bool) -> Word {
        self.module.capability(Capability::Int8);
        self.module.once(Op::TypeInt, None, &[8, is_signed.into()]).0
    }

    /// Components are needed in the target's order only where A is not staged.
    fn matrix_a(&mut self, value: Value, order: [u8; 4]) -> Word {
        let key = Key::A(self.ids_of(value));
        if let Some(known) = self.known.get(&key) {
            return known;
        }
        let words = self.words_of(value);
        let a = match self.stage() {
            Some(stage) => self.staged(stage, &words),
            None => {
                let words = order.map(|word| words[usize::from(word)]);
                self.matrix_of_bytes(Matrix::A, &words)
            }
        };
        self.known.insert(key, a);
        a
    }

    fn matrix_b(&mut self, value: Value) -> Word {
        let key = Key::B(self.ids_of(value));
        if let Some(known) = self.known.get(&key) {
            return known;
        }
        let words = self.words_of(value);
        let b = self.matrix_of_bytes(Matrix::B, &words);
        self.known.insert(key, b);
        b
    }

    fn matrix_c(&mut self, value: Value) -> Word {
        let key = Key::C(self.ids_of(value));
        if let Some(known) = self.known.get(&key) {
            return known;
        }
        let (words, zero) = (self.words_of(value), self.constant(Scalar::I32.into(), 0));
        let ty = self.matrix_ty(Matrix::C);
        if words.iter().all(|&word| word == zero) {
            // The device then reads no register.
            return self.module.once(Op::ConstantComposite, Some(ty), &[zero]).0;
        }
        let mut c = self.module.once(Op::Undef, Some(ty), &[]).0;
        for (number, &word) in (0..).zip(&words) {
            c = self.push(Op::CompositeInsert, ty, &[word, c, number]);
        }
        self.known.insert(key, c);
        c
    }

    /// A matrix whose components are the bytes of words. Of the ways to say this, NVIDIA's compiler makes
    /// least of this one.
    fn matrix_of_bytes(&mut self, matrix: Matrix, words: &[Word]) -> Word {
        let (ty, u32_, zero) = (self.matrix_ty(matrix), self.u32_ty(), self.u32_constant(0));
        let (unsigned, signed) = (self.byte_ty(false), self.byte_ty(true));
        let mut made = if words.contains(&zero) {
            let zero = self.module.once(Op::Constant, Some(signed), &[0]).0;
            self.module.once(Op::ConstantComposite, Some(ty), &[zero]).0
        } else {
            self.module.once(Op::Undef, Some(ty), &[]).0
        };
        for (number, &word) in (0..).zip(words).filter(|&(_, &word)| word != zero) {
            for byte in 0..4 {
                let mut bits = word;
                if byte > 0 {
                    let amount = self.u32_constant(8 * byte);
                    bits = self.push(Op::ShiftRightLogical, u32_, &[word, amount]);
                }
                let bits = self.push(Op::UConvert, unsigned, &[bits]);
                let component = self.push(Op::Bitcast, signed, &[bits]);
                made = self.push(Op::CompositeInsert, ty, &[component, made, 4 * number + byte]);
            }
        }
        made
    }

    /// A through shared memory: what its last reader read, and what is written, is waited for.
    fn staged(&mut self, stage: Stage, words: &[Word]) -> Word {
        self.subgroup_barrier();
        let access = MemoryAccess::NON_PRIVATE_POINTER.bits();
        for (place, &word) in stage.words.iter().zip(words) {
            self.module.push_effect(Op::Store, &[*place, word, access]);
        }
        self.subgroup_barrier();
        self.load_matrix(Matrix::A, stage.rows, CooperativeMatrixLayout::RowMajorKHR, ROW_VEC4S)
    }

    /// The distance of rows, or columns, is in vectors of 16 bytes, as the pointer's type.
    pub(super) fn load_matrix(
        &mut self,
        matrix: Matrix,
        at: Word,
        layout: CooperativeMatrixLayout,
        stride: u32,
    ) -> Word {
        let (ty, layout) = (self.matrix_ty(matrix), self.u32_constant(layout as u32));
        let (stride, access) = (self.u32_constant(stride), MemoryAccess::NON_PRIVATE_POINTER.bits());
        self.push(Op::CooperativeMatrixLoadKHR, ty, &[at, layout, stride, access])
    }

    pub(super) fn subgroup_barrier(&mut self) {
        let semantics = MemorySemantics::ACQUIRE_RELEASE
            | MemorySemantics::WORKGROUP_MEMORY
            | MemorySemantics::MAKE_AVAILABLE
            | MemorySemantics::MAKE_VISIBLE;
        let (scope, semantics) =
            (self.u32_constant(Scope::Subgroup as u32), self.u32_constant(semantics.bits()));
        self.module.push_effect(Op::ControlBarrier, &[scope, scope, semantics]);
    }

    /// The subgroup's place to stage A, if the workgroup's shared memory has room for it.
    fn stage(&mut self) -> Option<Stage> {
        if self.memory.stage.is_some() {
            return self.memory.stage;
        }
        // Beside a B that is loaded, an A that is inserted costs as little as a staged one, and no barriers.
        if self.memory.loads_b {
            return None;
        }
        let stages = self.kernel.workgroup / MATRIX_CLUSTER;
        let len_bytes = self.shared_len_bytes() + stages * STAGE_VEC4S * 16;
        if len_bytes > self.target.max_shared_len_bytes {
            return None;
        }
        let (vec4, u32_) = (self.spirv_ty(VEC4), self.u32_ty());
        let array = self.shared_array(stages * STAGE_VEC4S);
        let numbers = [2, 3, ROW_VEC4S, STAGE_VEC4S, 8 * ROW_VEC4S, 1];
        let [two, low, row_len, stage_len, lower, next] = numbers.map(|number| self.u32_constant(number));
        let (lane, subgroup) = (self.subgroup_lane(), self.subgroup_id());
        let mut first = |op, operands: [Word; 2]| self.module.push_first(op, u32_, &operands);
        let (g, t) = (first(Op::ShiftRightLogical, [lane, two]), first(Op::BitwiseAnd, [lane, low]));
        let rows = first(Op::IMul, [subgroup, stage_len]);
        let row = first(Op::IMul, [g, row_len]);
        let row = first(Op::IAdd, [rows, row]);
        let row_below = first(Op::IAdd, [row, lower]);
        let places = [row, row_below, first(Op::IAdd, [row, next]), first(Op::IAdd, [row_below, next])];
        let to_word = self.module.pointer(StorageClass::Workgroup, u32_);
        let to_vec4 = self.module.pointer(StorageClass::Workgroup, vec4);
        let words = places.map(|place| self.module.push_first(Op::AccessChain, to_word, &[array, place, t]));
        let rows = self.module.push_first(Op::AccessChain, to_vec4, &[array, rows]);
        self.memory.stage = Some(Stage { words, rows });
        self.memory.stage
    }

    /// A shared array of vectors of 16 bytes, so that it begins at a multiple of that.
    pub(super) fn shared_array(&mut self, vec4s: u32) -> Word {
        let (vec4, len) = (self.spirv_ty(VEC4), self.u32_constant(vec4s));
        let array = self.module.once(Op::TypeArray, None, &[vec4, len]).0;
        self.module.variable(StorageClass::Workgroup, array)
    }
}
