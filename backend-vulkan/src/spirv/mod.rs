//! SPIR-V of kernels: version 1.5 for Vulkan 1.2, made by [`emit`].
//!
//! # What a launch gives
//!
//! - **Memory**: the push constants are the launch's record, or, where that is longer than the target takes
//!   ([`Target::pushes_record`]), its device address (8 bytes: two words, the low one first; a multiple of 8).
//!   The record is `core::kir::abi`'s: a 64-bit address for each object that is not shared, in the kernel's
//!   order, then a word for each parameter. No integer of 64 bits exists in
//!   the code: an address is two words until it becomes a pointer, and an index is one word, of which SPIR-V
//!   takes the top bit as a sign: an object has less than 2^31 elements.
//! - **Workgroups**: `group_id` = 32768*y + x of the workgroup's place. A launch of up to
//!   `maxComputeWorkGroupCount[0]` workgroups dispatches (n, 1, 1). A larger one dispatches
//!   ([`GROUPS_A_ROW`], n / 32768, 1) and then, with `vkCmdDispatchBase` at (0, n / 32768, 0), the n % 32768
//!   that are left.
//! - **Subgroups**: kernels that exchange values between invocations ([`uses_subgroups`]) need full subgroups
//!   of [`Target::subgroup_size`]: `VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT` and a
//!   required size. Their `local_id` is defined as subgroup number * size + number in the subgroup, so that
//!   nothing rests on how a driver spreads a workgroup.
//!
//! # What holds of the code
//!
//! Floats are added, subtracted, multiplied, each decorated `NoContraction`, and converted from i32; nothing
//! else. The rounding mode and the preservation of signed zeros are declared where the device offers them.
//! Equal kernels and targets give equal words.
//!
//! Start reading at [`emit`], then `flow.rs`. The other files are the families of the table of operations
//! (`core::kir::op`): `alu.rs`, `shape.rs` (with `permute.rs`), `mem.rs`, `lanes.rs`, `dot.rs`, `matrix.rs`
//! (with [`matrix_probe`]). `module.rs` writes SPIR-V.

mod alu;
mod dot;
mod flow;
mod known;
mod lanes;
mod matrix;
pub mod matrix_probe;
mod mem;
mod module;
mod permute;
mod shape;
mod target;

use std::collections::HashMap;

use spirv::{BuiltIn, Capability, Decoration, ExecutionMode, MemoryAccess, StorageClass, Word};
use unisonic_core::kir::kernel::{Attr, Block, Inst, Stmt, Value};
use unisonic_core::kir::{Kernel, Op, Scalar, Type};

use known::Known;
use module::Module;
pub use target::{MatrixOrder, Target};

/// Workgroups of a row of a launch that has several.
pub const GROUPS_A_ROW: u32 = 1 << GROUPS_A_ROW_LOG2;
const GROUPS_A_ROW_LOG2: u32 = 15;

/// The words of the module, whose entry point has the kernel's name.
///
/// The kernel verifies and is legal: what [`Target::caps`] lacks has been legalised away. Anything else
/// is a bug, and may panic.
pub fn emit(kernel: &Kernel, target: &Target) -> Vec<u32> {
    let mut emitter = Emitter::new(kernel, target);
    emitter.function();
    emitter.finish()
}

/// Whether a kernel exchanges values between invocations of a subgroup, so that its pipeline has to require
/// full subgroups of the target's size.
pub fn uses_subgroups(kernel: &Kernel) -> bool {
    fn of(block: &Block) -> bool {
        block.stmts.iter().any(|stmt| match stmt {
            Stmt::Inst(inst) => inst.op.row().effect.is_of_clusters(),
            Stmt::If { then, otherwise, .. } => of(then) || of(otherwise),
            Stmt::Loop { body, .. } => of(body),
        })
    }
    of(&kernel.body)
}

struct Emitter<'a> {
    kernel: &'a Kernel,
    target: &'a Target,
    module: Module,
    /// Id of each type that has been asked for, by scalar and the logarithm of the width.
    types: [[Option<Word>; Type::WIDTHS.len()]; Scalar::ALL.len()],
    /// Id of each value.
    values: Vec<Word>,
    /// The word of each value of one word that is a constant.
    constants: HashMap<Value, u32>,
    /// The components of each vector that was made of them.
    parts: HashMap<Value, Vec<Word>>,
    /// How each value is used: of vectors that are not used as such there are only components, or matrices.
    uses: Vec<shape::Use>,
    known: Known,
    memory: mem::Memory,
    places: Places,
}

/// Where an invocation is, once something asks.
#[derive(Default)]
struct Places {
    local_id: Option<Word>,
    group_id: Option<Word>,
    /// The three numbers of its workgroup.
    workgroup: Option<Word>,
    /// Constants that come about at run time, by their bits.
    hidden: HashMap<u32, Word>,
    subgroup_lane: Option<Word>,
    subgroup_id: Option<Word>,
}

impl<'a> Emitter<'a> {
    fn new(kernel: &'a Kernel, target: &'a Target) -> Self {
        let mut module = Module::default();
        module.capability(Capability::Shader);
        module.capability(Capability::VulkanMemoryModel);
        module.capability(Capability::PhysicalStorageBufferAddresses);
        Self {
            kernel,
            target,
            module,
            types: Default::default(),
            values: vec![0; kernel.types.len()],
            constants: HashMap::new(),
            parts: HashMap::new(),
            uses: shape::uses(kernel),
            known: Known::default(),
            memory: mem::Memory::of(kernel),
            places: Places::default(),
        }
    }

    /// The words of the module, once the function has been written.
    fn finish(mut self) -> Vec<Word> {
        let mut modes = vec![];
        if self.target.rounds_to_even {
            self.module.capability(Capability::RoundingModeRTE);
            modes.push(ExecutionMode::RoundingModeRTE);
        }
        if self.target.preserves_signed_zeros {
            self.module.capability(Capability::SignedZeroInfNanPreserve);
            modes.push(ExecutionMode::SignedZeroInfNanPreserve);
        }
        self.module.finish(&self.kernel.name, self.kernel.workgroup, &modes)
    }
}

impl Emitter<'_> {
    /// Emits an operation. One line each: which file knows how.
    fn inst(&mut self, inst: &Inst) {
        let result = match inst.op {
            Op::Const => self.constant_inst(inst),
            Op::Param => self.param(inst),
            Op::LocalId => self.local_id(),
            Op::GroupId => self.group_id(),

            Op::IAdd => self.word_by_word(inst, spirv::Op::IAdd),
            Op::ISub => self.word_by_word(inst, spirv::Op::ISub),
            Op::IMul => self.word_by_word(inst, spirv::Op::IMul),
            Op::UDiv => self.word_by_word(inst, spirv::Op::UDiv),
            Op::URem => self.word_by_word(inst, spirv::Op::UMod),
            Op::IMin => self.minimum(inst),
            Op::IMax => self.maximum(inst),
            Op::And => self.bits(inst, spirv::Op::BitwiseAnd, spirv::Op::LogicalAnd),
            Op::Or => self.bits(inst, spirv::Op::BitwiseOr, spirv::Op::LogicalOr),
            Op::Xor => self.bits(inst, spirv::Op::BitwiseXor, spirv::Op::LogicalNotEqual),
            Op::Shl => self.word_by_word(inst, spirv::Op::ShiftLeftLogical),
            Op::Shr => self.by_sign(inst, spirv::Op::ShiftRightArithmetic, spirv::Op::ShiftRightLogical),
            Op::IEq => self.word_by_word(inst, spirv::Op::IEqual),
            Op::ILt => self.by_sign(inst, spirv::Op::SLessThan, spirv::Op::ULessThan),
            Op::Select => self.word_by_word(inst, spirv::Op::Select),
            Op::FAdd => self.float(inst, spirv::Op::FAdd),
            Op::FSub => self.float(inst, spirv::Op::FSub),
            Op::FMul => self.float(inst, spirv::Op::FMul),
            Op::I2F => self.word_by_word(inst, spirv::Op::ConvertSToF),
            Op::Cast => self.cast(inst),

            Op::Vec2 | Op::Vec4 => self.vector(inst),
            Op::Part => self.part(inst),
            Op::Byte => self.byte(inst),
            Op::Permute => self.permute(inst),
            Op::PermuteBy => self.permute_by(inst),
            Op::Pack => self.pack(inst),

            Op::Load => self.load(inst, MemoryAccess::NONE),
            Op::LoadStream => self.load(inst, MemoryAccess::NONTEMPORAL),
            Op::Store => return self.store(inst),
            Op::Half | Op::CopyAsync | Op::CopyCommit | Op::CopyWait => self.legalised_away(inst),
            Op::Barrier => return self.barrier(),
            // Barriers between dispatches have waited, so that a load that is as early as this follows at once.
            Op::WaitLaunches | Op::Prefetch => return,

            Op::ShuffleXor => self.shuffle_xor(inst),
            Op::Broadcast => self.broadcast(inst),

            Op::Dot4 => self.dot4(inst),

            Op::Mma16 | Op::Mma32 => self.matrix_product(inst),
            Op::LoadB => self.load_b(inst),
        };
        if let Some(value) = inst.result {
            self.values[value.index()] = result;
        }
    }

    /// What no SPIR-V is made for.
    fn legalised_away(&self, inst: &Inst) -> ! {
        panic!("`{}` should have been legalised away", self.kernel.inst_text(inst))
    }

    fn ty_of(&self, value: Value) -> Type {
        self.kernel.types[value.index()]
    }

    fn id_of(&self, value: Value) -> Word {
        let id = self.values[value.index()];
        debug_assert_ne!(id, 0, "a vector of which there are only components");
        id
    }

    fn operand(&self, inst: &Inst, number: usize) -> Word {
        self.id_of(inst.operands[number])
    }

    fn result_ty(&self, inst: &Inst) -> Type {
        inst.result.map_or(Type::one(Scalar::U32), |value| self.ty_of(value))
    }

    /// The SPIR-V type: `i32` is signed, and every other word that is not a float or bool unsigned.
    fn spirv_ty(&mut self, ty: Type) -> Word {
        let (scalar, width) = (ty.scalar as usize, ty.width.trailing_zeros() as usize);
        if let Some(id) = self.types[scalar][width] {
            return id;
        }
        let id = self.new_spirv_ty(ty);
        *self.types[scalar][width].insert(id)
    }

    fn new_spirv_ty(&mut self, ty: Type) -> Word {
        let (op, operands): (_, &[Word]) = match ty.scalar {
            Scalar::Bool => (spirv::Op::TypeBool, &[]),
            Scalar::F32 => (spirv::Op::TypeFloat, &[32]),
            Scalar::I32 => (spirv::Op::TypeInt, &[32, 1]),
            Scalar::U32 | Scalar::I8x4 | Scalar::U8x4 => (spirv::Op::TypeInt, &[32, 0]),
        };
        let scalar = self.module.once(op, None, operands).0;
        self.vector_ty(scalar, ty.width)
    }

    fn vector_ty(&mut self, scalar: Word, width: u8) -> Word {
        if width == 1 {
            return scalar;
        }
        self.module.once(spirv::Op::TypeVector, None, &[scalar, width.into()]).0
    }

    fn u32_ty(&mut self) -> Word {
        self.spirv_ty(Scalar::U32.into())
    }

    /// A constant, in each word.
    fn constant(&mut self, ty: Type, word: u32) -> Word {
        let one = self.spirv_ty(Type::one(ty.scalar));
        let scalar = match (ty.scalar, word) {
            (Scalar::Bool, 0) => self.module.once(spirv::Op::ConstantFalse, Some(one), &[]),
            (Scalar::Bool, _) => self.module.once(spirv::Op::ConstantTrue, Some(one), &[]),
            _ => self.module.once(spirv::Op::Constant, Some(one), &[word]),
        };
        if ty.width == 1 {
            return scalar.0;
        }
        let vector = self.spirv_ty(ty);
        let parts = vec![scalar.0; ty.width.into()];
        self.module.once(spirv::Op::ConstantComposite, Some(vector), &parts).0
    }

    fn u32_constant(&mut self, word: u32) -> Word {
        self.constant(Scalar::U32.into(), word)
    }

    fn constants_of(&mut self, words: [u32; 4]) -> Word {
        let ty = self.spirv_ty(Type { scalar: Scalar::U32, width: 4 });
        let parts = words.map(|word| self.u32_constant(word));
        self.module.once(spirv::Op::ConstantComposite, Some(ty), &parts).0
    }

    fn constant_inst(&mut self, inst: &Inst) -> Word {
        let (Attr::Word(word), Some(result)) = (inst.attr, inst.result) else {
            unreachable!("a constant has a word");
        };
        let ty = self.ty_of(result);
        let is_hidden = ty.scalar == Scalar::F32 && !self.target.knows_constants;
        let one = if is_hidden { self.hidden_constant(word) } else { self.constant(ty.scalar.into(), word) };
        if ty.width == 1 {
            self.constants.insert(result, word);
            return one;
        }
        let parts = vec![one; ty.width.into()];
        let whole = match (self.uses[result.index()] == shape::Use::Vector, is_hidden) {
            (false, _) => 0,
            (true, false) => self.constant(ty, word),
            (true, true) => {
                let ty = self.spirv_ty(ty);
                self.push(spirv::Op::CompositeConstruct, ty, &parts)
            }
        };
        self.parts.insert(result, parts);
        whole
    }

    /// A constant of f32 that no compiler knows: the workgroups of a launch lie in a plane, so that their third number is 0.
    fn hidden_constant(&mut self, word: u32) -> Word {
        if let Some(&id) = self.places.hidden.get(&word) {
            return id;
        }
        let (place, u32_, f32_) = (self.workgroup(), self.u32_ty(), self.spirv_ty(Scalar::F32.into()));
        let zero = self.module.push_first(spirv::Op::CompositeExtract, u32_, &[place, 2]);
        let constant = self.u32_constant(word);
        let bits = self.module.push_first(spirv::Op::IAdd, u32_, &[constant, zero]);
        let id = self.module.push_first(spirv::Op::Bitcast, f32_, &[bits]);
        self.places.hidden.insert(word, id);
        id
    }

    /// An instruction with a result.
    fn push(&mut self, op: spirv::Op, ty: Word, operands: &[Word]) -> Word {
        self.module.push(op, ty, operands)
    }

    fn local_id(&mut self) -> Word {
        if let Some(id) = self.places.local_id {
            return id;
        }
        let id = if self.target.subgroup_size > 1 && uses_subgroups(self.kernel) {
            let (number, lane) = (self.subgroup_id(), self.subgroup_lane());
            let (u32_, size) = (self.u32_ty(), self.u32_constant(self.target.subgroup_size));
            let first = self.module.push_first(spirv::Op::IMul, u32_, &[number, size]);
            self.module.push_first(spirv::Op::IAdd, u32_, &[first, lane])
        } else {
            self.built_in(BuiltIn::LocalInvocationIndex, 1)
        };
        *self.places.local_id.insert(id)
    }

    fn group_id(&mut self) -> Word {
        if let Some(id) = self.places.group_id {
            return id;
        }
        let (place, u32_) = (self.workgroup(), self.u32_ty());
        let [x, y] =
            [0, 1].map(|axis| self.module.push_first(spirv::Op::CompositeExtract, u32_, &[place, axis]));
        let shift = self.u32_constant(GROUPS_A_ROW_LOG2);
        let row = self.module.push_first(spirv::Op::ShiftLeftLogical, u32_, &[y, shift]);
        let id = self.module.push_first(spirv::Op::IAdd, u32_, &[row, x]);
        *self.places.group_id.insert(id)
    }

    /// Which workgroup of the launch it is, as three numbers.
    fn workgroup(&mut self) -> Word {
        if let Some(id) = self.places.workgroup {
            return id;
        }
        let id = self.built_in(BuiltIn::WorkgroupId, 3);
        *self.places.workgroup.insert(id)
    }

    /// The number of an invocation in its subgroup.
    fn subgroup_lane(&mut self) -> Word {
        if let Some(id) = self.places.subgroup_lane {
            return id;
        }
        self.module.capability(Capability::GroupNonUniform);
        let id = self.built_in(BuiltIn::SubgroupLocalInvocationId, 1);
        *self.places.subgroup_lane.insert(id)
    }

    /// The number of an invocation's subgroup in the workgroup.
    fn subgroup_id(&mut self) -> Word {
        if let Some(id) = self.places.subgroup_id {
            return id;
        }
        self.module.capability(Capability::GroupNonUniform);
        let id = self.built_in(BuiltIn::SubgroupId, 1);
        *self.places.subgroup_id.insert(id)
    }

    fn built_in(&mut self, which: BuiltIn, width: u8) -> Word {
        let u32_ = self.u32_ty();
        let ty = self.vector_ty(u32_, width);
        let variable = self.module.variable(StorageClass::Input, ty);
        self.module.decorate(variable, Decoration::BuiltIn, &[which as u32]);
        self.module.push_first(spirv::Op::Load, ty, &[variable])
    }
}
