//! A SPIR-V module that is being written: ids, types and constants that exist once, and the blocks of its one function.

use std::collections::HashMap;

use rspirv::dr::{self, Instruction, Operand};
use rspirv::spirv::{
    AddressingModel, Capability, Decoration, ExecutionMode, ExecutionModel, FunctionControl, MemoryModel, Op,
    StorageClass, Word,
};

/// The extended instructions that are used, all of them on integers or bits.
pub const EXTENDED: &str = "GLSL.std.450";

/// A module in the making.
#[derive(Default)]
pub struct Module {
    module: dr::Module,
    last_id: Word,
    /// What exists once: types and constants by what they say.
    once: HashMap<Instruction, Word>,
    variables: Vec<Word>,
    extended: Option<Word>,
    /// What the entry block begins with, whenever it turns out to be needed.
    prelude: Vec<Instruction>,
    blocks: Vec<dr::Block>,
}

impl Module {
    /// An id that nothing has.
    pub fn id(&mut self) -> Word {
        self.last_id += 1;
        self.last_id
    }

    /// Asks for a capability.
    pub fn capability(&mut self, capability: Capability) {
        let inst = Instruction::new(Op::Capability, None, None, vec![Operand::Capability(capability)]);
        if !self.module.capabilities.contains(&inst) {
            self.module.capabilities.push(inst);
        }
    }

    /// Asks for an extension that the version lacks.
    pub fn extension(&mut self, name: &str) {
        let inst = Instruction::new(Op::Extension, None, None, vec![Operand::from(name)]);
        if !self.module.extensions.contains(&inst) {
            self.module.extensions.push(inst);
        }
    }

    /// The set of extended instructions.
    pub fn extended(&mut self) -> Word {
        if let Some(id) = self.extended {
            return id;
        }
        let id = self.id();
        let inst = Instruction::new(Op::ExtInstImport, None, Some(id), vec![Operand::from(EXTENDED)]);
        self.module.ext_inst_imports.push(inst);
        self.extended = Some(id);
        id
    }

    /// Decorates an id.
    pub fn decorate(&mut self, id: Word, decoration: Decoration, rest: &[Operand]) {
        let mut operands = vec![Operand::IdRef(id), Operand::Decoration(decoration)];
        operands.extend_from_slice(rest);
        self.module.annotations.push(Instruction::new(Op::Decorate, None, None, operands));
    }

    /// Decorates a member of a struct.
    pub fn decorate_member(&mut self, id: Word, member: u32, decoration: Decoration, rest: &[Operand]) {
        let mut operands =
            vec![Operand::IdRef(id), Operand::LiteralBit32(member), Operand::Decoration(decoration)];
        operands.extend_from_slice(rest);
        self.module.annotations.push(Instruction::new(Op::MemberDecorate, None, None, operands));
    }

    /// A type or constant that exists once, and whether it is new.
    pub fn once(&mut self, op: Op, ty: Option<Word>, operands: Vec<Operand>) -> (Word, bool) {
        let mut inst = Instruction::new(op, ty, None, operands);
        if let Some(&id) = self.once.get(&inst) {
            return (id, false);
        }
        let id = self.id();
        self.once.insert(inst.clone(), id);
        inst.result_id = Some(id);
        self.module.types_global_values.push(inst);
        (id, true)
    }

    /// A type that is like no other, such as a struct with decorations.
    pub fn type_of_its_own(&mut self, op: Op, operands: Vec<Operand>) -> Word {
        let id = self.id();
        self.module.types_global_values.push(Instruction::new(op, None, Some(id), operands));
        id
    }

    /// A pointer type.
    pub fn pointer(&mut self, class: StorageClass, to: Word) -> Word {
        self.once(Op::TypePointer, None, vec![Operand::StorageClass(class), Operand::IdRef(to)]).0
    }

    /// A variable outside the function, of the type that a pointer type points to.
    pub fn variable(&mut self, class: StorageClass, to: Word) -> Word {
        let (pointer, id) = (self.pointer(class, to), self.id());
        let inst =
            Instruction::new(Op::Variable, Some(pointer), Some(id), vec![Operand::StorageClass(class)]);
        self.module.types_global_values.push(inst);
        self.variables.push(id);
        id
    }

    /// An instruction with a result in the open block.
    pub fn push(&mut self, op: Op, ty: Word, operands: Vec<Operand>) -> Word {
        let id = self.id();
        self.push_as(op, ty, id, operands);
        id
    }

    /// An instruction whose result has an id already.
    pub fn push_as(&mut self, op: Op, ty: Word, id: Word, operands: Vec<Operand>) {
        self.append(Instruction::new(op, Some(ty), Some(id), operands));
    }

    /// An instruction without a result.
    pub fn push_effect(&mut self, op: Op, operands: Vec<Operand>) {
        self.append(Instruction::new(op, None, None, operands));
    }

    fn append(&mut self, inst: Instruction) {
        if let Some(block) = self.blocks.last_mut() {
            block.instructions.push(inst);
        }
    }

    /// An instruction that comes before all others of the function.
    pub fn push_first(&mut self, op: Op, ty: Word, operands: Vec<Operand>) -> Word {
        let id = self.id();
        self.prelude.push(Instruction::new(op, Some(ty), Some(id), operands));
        id
    }

    /// Begins a block; the one before it must have ended with a branch.
    pub fn begin_block(&mut self, label: Word) {
        let label = Instruction::new(Op::Label, None, Some(label), vec![]);
        self.blocks.push(dr::Block { label: Some(label), instructions: vec![] });
    }

    /// Puts instructions before all others of a block.
    pub fn begin_with(&mut self, label: Word, insts: Vec<Instruction>) {
        if let Some(block) = self.blocks.iter_mut().find(|block| block.label_id() == Some(label)) {
            block.instructions.splice(0..0, insts);
        }
    }

    /// The label of the open block.
    pub fn open_label(&self) -> Word {
        self.blocks.last().and_then(dr::Block::label_id).unwrap_or_default()
    }

    /// The module, with the blocks as its entry point.
    pub fn finish(mut self, name: &str, workgroup: u32, modes: &[ExecutionMode]) -> dr::Module {
        let void = self.once(Op::TypeVoid, None, vec![]).0;
        let signature = self.once(Op::TypeFunction, None, vec![Operand::IdRef(void)]).0;
        let function = self.id();
        let mut blocks = std::mem::take(&mut self.blocks);
        if let Some(entry) = blocks.first_mut() {
            entry.instructions.splice(0..0, std::mem::take(&mut self.prelude));
        }
        let control = vec![Operand::FunctionControl(FunctionControl::NONE), Operand::IdRef(signature)];
        self.module.functions.push(dr::Function {
            def: Some(Instruction::new(Op::Function, Some(void), Some(function), control)),
            end: Some(Instruction::new(Op::FunctionEnd, None, None, vec![])),
            parameters: vec![],
            blocks,
        });
        let models = vec![
            Operand::AddressingModel(AddressingModel::PhysicalStorageBuffer64),
            Operand::MemoryModel(MemoryModel::Vulkan),
        ];
        self.module.memory_model = Some(Instruction::new(Op::MemoryModel, None, None, models));
        let mut entry = vec![
            Operand::ExecutionModel(ExecutionModel::GLCompute),
            Operand::IdRef(function),
            Operand::from(name),
        ];
        entry.extend(self.variables.iter().map(|&id| Operand::IdRef(id)));
        self.module.entry_points.push(Instruction::new(Op::EntryPoint, None, None, entry));
        let mut mode = |mode, rest: &[u32]| {
            let mut operands = vec![Operand::IdRef(function), Operand::ExecutionMode(mode)];
            operands.extend(rest.iter().map(|&word| Operand::LiteralBit32(word)));
            self.module.execution_modes.push(Instruction::new(Op::ExecutionMode, None, None, operands));
        };
        mode(ExecutionMode::LocalSize, &[workgroup, 1, 1]);
        modes.iter().for_each(|&float| mode(float, &[32]));
        let mut header = dr::ModuleHeader::new(self.last_id + 1);
        header.set_version(1, 5);
        self.module.header = Some(header);
        self.module
    }
}
