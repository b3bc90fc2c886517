//! The state of an emission, and what each operation becomes.
//!
//! Words of values are registers or known constants ([`Word`]). Operations that only rename words (`vec2`,
//! `part`, `cast`) emit nothing: their result is the words of their operands.

use std::collections::BTreeMap;
use std::fmt::{Arguments, Write};

use unisonic_core::kir::kernel::{Inst, Kernel, ObjectId, Space, Value};
use unisonic_core::kir::{Op, Scalar, Type};

use super::address::{Addresses, Terms};
use super::registers::{File, Register, Word};
use super::target::{Target, Version};
use super::{
    ELEM_LEN_BYTES, MAX_STATIC_SHARED_LEN_BYTES, alu, division, dot, entry_name, flow, lanes, matrix, mem,
    shape, shared_offsets_bytes,
};

/// How an instruction reads an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `.u32`, `.b32`.
    Unsigned,
    /// `.s32`.
    Signed,
    /// `.f32`.
    Float,
}

/// An emission under way.
pub struct Emitter<'k> {
    pub kernel: &'k Kernel,
    pub target: Target,
    /// Version of PTX that what was emitted so far needs.
    version: Version,
    /// Words of each value that is defined.
    words: Vec<Vec<Word>>,
    /// Statements that come before the body.
    prologue: String,
    body: String,
    /// Registers that were handed out, by file: one more than the highest number.
    counts: BTreeMap<File, u32>,
    /// Objects whose address is in a register.
    addressed: Vec<bool>,
    /// What is known of indices.
    pub addresses: Addresses,
    /// Sums of terms that are in registers, in the blocks around the next statement.
    pub sums: Vec<(Terms, Word)>,
    /// Addresses of objects at sums of terms, likewise.
    pub bases: Vec<(ObjectId, Terms, Register)>,
    labels: u32,
    depth: usize,
    /// Lanes of the warp that exist, once somebody asked.
    lane_mask: Option<String>,
}

impl<'k> Emitter<'k> {
    pub fn new(kernel: &'k Kernel, target: Target) -> Self {
        Self {
            kernel,
            target,
            version: target.version(),
            words: vec![Vec::new(); kernel.types.len()],
            prologue: String::new(),
            body: String::new(),
            counts: BTreeMap::new(),
            addressed: vec![false; kernel.objects.len()],
            addresses: Addresses::new(kernel),
            sums: Vec::new(),
            bases: Vec::new(),
            labels: 0,
            depth: 1,
            lane_mask: None,
        }
    }

    /// Emits an operation, unless its result is known.
    pub fn inst(&mut self, inst: &Inst) {
        if !alu::is_known(self, inst) {
            self.emit(inst);
        }
        if let Some((result, terms)) =
            inst.result.and_then(|result| Some((result, self.addresses.terms(result)?)))
        {
            self.sums.push((terms.clone(), self.word(result, 0)));
        }
    }

    fn emit(&mut self, inst: &Inst) {
        match inst.op {
            Op::Const => alu::constant(self, inst),
            Op::Param => alu::param(self, inst),
            Op::LocalId => alu::special(self, inst, "%tid.x"),
            Op::GroupId => alu::special(self, inst, "%ctaid.x"),
            Op::IAdd => alu::by_word(self, inst, "add.s32", View::Signed),
            Op::ISub => alu::by_word(self, inst, "sub.s32", View::Signed),
            Op::IMul => alu::by_word(self, inst, "mul.lo.s32", View::Signed),
            Op::UDiv => alu::divide(self, inst, "div.u32", division::divide),
            Op::URem => alu::divide(self, inst, "rem.u32", division::remainder),
            Op::IMin => alu::by_sign(self, inst, "min"),
            Op::IMax => alu::by_sign(self, inst, "max"),
            Op::And => alu::bitwise(self, inst, "and"),
            Op::Or => alu::bitwise(self, inst, "or"),
            Op::Xor => alu::bitwise(self, inst, "xor"),
            Op::Shl => alu::by_word(self, inst, "shl.b32", View::Unsigned),
            Op::Shr => alu::by_sign(self, inst, "shr"),
            Op::IEq => alu::by_sign(self, inst, "setp.eq"),
            Op::ILt => alu::by_sign(self, inst, "setp.lt"),
            Op::Select => alu::select(self, inst),
            Op::FAdd => alu::by_word(self, inst, "add.rn.f32", View::Float),
            Op::FSub => alu::by_word(self, inst, "sub.rn.f32", View::Float),
            Op::FMul => alu::by_word(self, inst, "mul.rn.f32", View::Float),
            Op::I2F => alu::by_word(self, inst, "cvt.rn.f32.s32", View::Signed),
            Op::Cast => alu::cast(self, inst),
            Op::Vec2 | Op::Vec4 => shape::vector(self, inst),
            Op::Part => shape::part(self, inst),
            Op::Byte => shape::byte(self, inst),
            Op::Half => shape::half(self, inst),
            Op::Permute => shape::permute(self, inst),
            Op::PermuteBy => shape::permute_by(self, inst),
            Op::Pack => shape::pack(self, inst),
            Op::Load => mem::load(self, inst),
            Op::LoadStream => mem::load_stream(self, inst),
            Op::Store => mem::store(self, inst),
            Op::CopyAsync => mem::copy_async(self, inst),
            Op::CopyCommit => mem::copy_commit(self),
            Op::CopyWait => mem::copy_wait(self, inst),
            Op::Barrier => mem::barrier(self),
            Op::Prefetch => mem::prefetch(self, inst),
            Op::WaitLaunches => mem::wait_launches(self),
            Op::ShuffleXor => lanes::exchange(self, inst, "bfly"),
            Op::Broadcast => lanes::exchange(self, inst, "idx"),
            Op::Dot4 => dot::dot4(self, inst),
            Op::Mma16 => matrix::multiply(self, inst, "m16n8k16"),
            Op::Mma32 => matrix::multiply(self, inst, "m16n8k32"),
            Op::LoadB => unreachable!("`{}` is legalised away", self.kernel.inst_text(inst)),
        }
    }

    /// Writes a statement of the body.
    pub fn line(&mut self, text: Arguments<'_>) {
        for _ in 0..self.depth {
            self.body.push_str("  ");
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{text}");
    }

    /// Writes a label of the body.
    pub fn label(&mut self, name: &str) {
        let _ = writeln!(self.body, "{name}:");
    }

    /// Writes a statement that comes before the body.
    pub fn prologue_line(&mut self, text: Arguments<'_>) {
        let _ = writeln!(self.prologue, "  {text}");
    }

    /// Writes statements one level deeper.
    pub fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// A number that no label has yet.
    pub fn new_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    /// Says that a version of PTX is needed.
    pub fn need_version(&mut self, major: u8, minor: u8) {
        self.version = self.version.max(Version { major, minor });
    }

    pub fn ty(&self, value: Value) -> Type {
        self.kernel.types[value.index()]
    }

    /// The scalar of an operand.
    pub fn operand_scalar(&self, inst: &Inst, number: usize) -> Scalar {
        self.ty(inst.operands[number]).scalar
    }

    pub fn words(&self, value: Value) -> &[Word] {
        &self.words[value.index()]
    }

    pub fn word(&self, value: Value, index: usize) -> Word {
        self.words[value.index()][index]
    }

    /// Makes a value another name of words.
    pub fn rename(&mut self, value: Value, words: Vec<Word>) {
        debug_assert_eq!(words.len(), usize::from(self.ty(value).width));
        self.words[value.index()] = words;
    }

    /// Registers of its own for a value, which somebody writes from now on.
    pub fn define(&mut self, value: Value) -> Vec<Register> {
        let Type { scalar, width } = self.ty(value);
        let registers: Vec<Register> = (0..width)
            .map(|component| {
                let file = match (scalar == Scalar::Bool, width) {
                    (false, 1) => File::Scalar,
                    (false, _) => File::Component(component),
                    (true, 1) => File::Predicate,
                    (true, _) => File::PredicateComponent(component),
                };
                Register { file, number: value.0 }
            })
            .collect();
        for &register in &registers {
            self.declare(register);
        }
        self.words[value.index()] = registers.iter().map(|&register| Word::Register(register)).collect();
        registers
    }

    /// A register that no one else has.
    pub fn temporary(&mut self, file: File) -> Register {
        let register = Register { file, number: self.counts.get(&file).copied().unwrap_or_default() };
        self.declare(register);
        register
    }

    pub fn declare(&mut self, register: Register) {
        let count = self.counts.entry(register.file).or_default();
        *count = (*count).max(register.number + 1);
    }

    /// An operand as text: a register, or an immediate.
    pub fn text(&self, word: Word, view: View) -> String {
        match (word, view) {
            (Word::Register(register), _) => register.to_string(),
            (Word::Constant(word), View::Unsigned) => word.to_string(),
            (Word::Constant(word), View::Signed) => (word as i32).to_string(),
            (Word::Constant(word), View::Float) => format!("0f{word:08X}"),
        }
    }

    /// An operand that has to be a register.
    pub fn register(&mut self, word: Word) -> Register {
        match word {
            Word::Register(register) => register,
            Word::Constant(word) => {
                let register = self.temporary(File::Temporary);
                self.line(format_args!("mov.b32 {register}, {word};"));
                register
            }
        }
    }

    /// A `bool` operand, which has to be a predicate.
    pub fn predicate(&mut self, word: Word) -> Register {
        match word {
            Word::Register(register) => register,
            Word::Constant(word) => {
                let register = self.temporary(File::TemporaryPredicate);
                self.line(format_args!("mov.pred {register}, {word};"));
                register
            }
        }
    }

    /// Address of a buffer, from the entry's parameters.
    pub fn buffer(&mut self, id: ObjectId) -> Register {
        let register = Register { file: File::Buffer, number: id.0 };
        if !std::mem::replace(&mut self.addressed[id.index()], true) {
            self.declare(register);
            let name = &self.kernel.objects[id.index()].name;
            self.prologue_line(format_args!("ld.param.u64 {register}, [object_{name}];"));
        }
        register
    }

    /// Address of an object in shared memory.
    pub fn shared(&mut self, id: ObjectId) -> Register {
        let register = Register { file: File::Shared, number: id.0 };
        if !std::mem::replace(&mut self.addressed[id.index()], true) {
            self.declare(register);
            let (offsets, len_bytes) = shared_offsets_bytes(self.kernel);
            if len_bytes > MAX_STATIC_SHARED_LEN_BYTES {
                self.prologue_line(format_args!("mov.b32 {register}, shared_memory;"));
                let offset = offsets[id.index()];
                self.prologue_line(format_args!("add.u32 {register}, {register}, {offset};"));
            } else {
                let name = &self.kernel.objects[id.index()].name;
                self.prologue_line(format_args!("mov.b32 {register}, shared_{name};"));
            }
        }
        register
    }

    /// The lanes of a warp that exist, for instructions that name who takes part: the last warp of a
    /// workgroup may have fewer than 32.
    pub fn lane_mask(&mut self) -> String {
        if let Some(mask) = &self.lane_mask {
            return mask.clone();
        }
        let (whole, rest) = (self.kernel.workgroup / 32 * 32, self.kernel.workgroup % 32);
        let last = (1_u32 << rest).wrapping_sub(1);
        let mask = match (whole, rest) {
            (_, 0) => "0xffffffff".to_owned(),
            (0, _) => format!("{last:#x}"),
            _ => {
                let (lane, mask) = (self.temporary(File::Temporary), self.temporary(File::Temporary));
                let is_whole = self.temporary(File::TemporaryPredicate);
                self.prologue_line(format_args!("mov.b32 {lane}, %tid.x;"));
                self.prologue_line(format_args!("setp.lt.u32 {is_whole}, {lane}, {whole};"));
                self.prologue_line(format_args!("selp.b32 {mask}, 0xffffffff, {last:#x}, {is_whole};"));
                mask.to_string()
            }
        };
        self.lane_mask.insert(mask).clone()
    }

    /// The module around what was emitted.
    pub fn module(self) -> String {
        let (kernel, Version { major, minor }) = (self.kernel, self.version);
        let mut text = format!(".version {major}.{minor}\n.target {}\n", self.target.name());
        text += ".address_size 64\n\n";
        let shared = |space: Space| matches!(space, Space::Shared { .. });
        let is_dynamic = shared_offsets_bytes(kernel).1 > MAX_STATIC_SHARED_LEN_BYTES;
        if is_dynamic {
            text += ".extern .shared .align 16 .b8 shared_memory[];\n\n";
        }
        let buffers = kernel.objects.iter().filter(|object| !shared(object.space));
        let buffers = buffers.map(|object| format!("  .param .u64 object_{}", object.name));
        let params = kernel.params.iter().map(|param| format!("  .param .b32 param_{}", param.name));
        let record = buffers.chain(params).collect::<Vec<_>>().join(",\n");
        text += &format!(".visible .entry {}(\n{record}\n)\n", entry_name(kernel));
        text += &format!(".reqntid {}, 1, 1\n", kernel.workgroup);
        if let Some(resident) = kernel.resident {
            text += &format!(".minnctapersm {resident}\n");
        }
        text += "{\n";
        for (object, addressed) in kernel.objects.iter().zip(&self.addressed) {
            if let (Space::Shared { len }, true, false) = (object.space, addressed, is_dynamic) {
                let len_bytes = (len * ELEM_LEN_BYTES).next_multiple_of(16).max(16);
                text += &format!("  .shared .align 16 .b8 shared_{}[{len_bytes}];\n", object.name);
            }
        }
        for (file, count) in &self.counts {
            text += &format!("  .reg {} {}<{count}>;\n", file.ty(), file.prefix());
        }
        text + &self.prologue + &self.body + "  ret;\n}\n"
    }
}

impl Emitter<'_> {
    /// Emits what comes before the body.
    pub fn begin(&mut self) {
        mem::begin(self);
    }

    /// Emits the statements of a block.
    pub fn block(&mut self, block: &unisonic_core::kir::kernel::Block) {
        flow::block(self, block);
    }
}
