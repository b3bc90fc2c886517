//! A SPIR-V module that is being written, as words: ids, types and constants that exist once, and the blocks
//! of its one function.

use std::collections::HashMap;

use spirv::{
    AddressingModel, Capability, Decoration, ExecutionMode, ExecutionModel, FunctionControl, MemoryModel, Op,
    StorageClass, Word,
};

/// The extended instructions that are used, all of them on integers or bits.
pub const EXTENDED: &str = "GLSL.std.450";

const VERSION_1_5: Word = 0x0001_0500;

/// A module in the making.
#[derive(Default)]
pub struct Module {
    last_id: Word,
    asked: Vec<Capability>,
    extensions: Vec<&'static str>,
    /// Words of instructions, by the parts of a module that the specification names.
    annotations: Vec<Word>,
    globals: Vec<Word>,
    /// What exists once: types and constants by operation, type and operands.
    once: HashMap<Box<[Word]>, Word>,
    /// What [`Module::once`] looks for, kept for its memory.
    key: Vec<Word>,
    variables: Vec<Word>,
    extended: Option<Word>,
    /// What the entry block begins with, whenever it turns out to be needed.
    prelude: Vec<Word>,
    blocks: Vec<Block>,
}

struct Block {
    label: Word,
    words: Vec<Word>,
}

/// Appends an instruction; the first of its words says how many they are.
fn write(to: &mut Vec<Word>, op: Op, parts: &[&[Word]]) {
    let len = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    to.push((len as Word) << 16 | op as Word);
    for part in parts {
        to.extend_from_slice(part);
    }
}

/// Text as words: bytes, a zero, and zeros to the end of the word.
fn text(text: &str) -> Vec<Word> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes.chunks_exact(4).map(|bytes| Word::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

impl Module {
    /// An id that nothing has.
    pub fn id(&mut self) -> Word {
        self.last_id += 1;
        self.last_id
    }

    /// Asks for a capability.
    pub fn capability(&mut self, capability: Capability) {
        if !self.asked.contains(&capability) {
            self.asked.push(capability);
        }
    }

    /// Asks for an extension that the version lacks.
    pub fn extension(&mut self, name: &'static str) {
        if !self.extensions.contains(&name) {
            self.extensions.push(name);
        }
    }

    /// The set of extended instructions.
    pub fn extended(&mut self) -> Word {
        match self.extended {
            Some(id) => id,
            None => {
                let id = self.id();
                *self.extended.insert(id)
            }
        }
    }

    /// Decorates an id.
    pub fn decorate(&mut self, id: Word, decoration: Decoration, rest: &[Word]) {
        write(&mut self.annotations, Op::Decorate, &[&[id, decoration as Word], rest]);
    }

    /// Decorates a member of a struct.
    pub fn decorate_member(&mut self, id: Word, member: u32, decoration: Decoration, rest: &[Word]) {
        write(&mut self.annotations, Op::MemberDecorate, &[&[id, member, decoration as Word], rest]);
    }

    /// A type or constant that exists once, and whether it is new.
    pub fn once(&mut self, op: Op, ty: Option<Word>, operands: &[Word]) -> (Word, bool) {
        self.key.clear();
        self.key.push(op as Word);
        self.key.extend(ty);
        self.key.extend_from_slice(operands);
        if let Some(&id) = self.once.get(&self.key[..]) {
            return (id, false);
        }
        let id = self.id();
        self.once.insert(self.key.as_slice().into(), id);
        write(&mut self.globals, op, &[ty.as_slice(), &[id], operands]);
        (id, true)
    }

    /// A type that is like no other, such as a struct with decorations.
    pub fn type_of_its_own(&mut self, op: Op, operands: &[Word]) -> Word {
        let id = self.id();
        write(&mut self.globals, op, &[&[id], operands]);
        id
    }

    /// A pointer type.
    pub fn pointer(&mut self, class: StorageClass, to: Word) -> Word {
        self.once(Op::TypePointer, None, &[class as Word, to]).0
    }

    /// A variable outside the function, of the type that a pointer type points to.
    pub fn variable(&mut self, class: StorageClass, to: Word) -> Word {
        let (pointer, id) = (self.pointer(class, to), self.id());
        write(&mut self.globals, Op::Variable, &[&[pointer, id, class as Word]]);
        self.variables.push(id);
        id
    }

    /// An instruction with a result in the open block.
    pub fn push(&mut self, op: Op, ty: Word, operands: &[Word]) -> Word {
        let id = self.id();
        self.push_as(op, ty, id, operands);
        id
    }

    /// An instruction whose result has an id already.
    pub fn push_as(&mut self, op: Op, ty: Word, id: Word, operands: &[Word]) {
        if let Some(block) = self.blocks.last_mut() {
            write(&mut block.words, op, &[&[ty, id], operands]);
        }
    }

    /// An instruction without a result.
    pub fn push_effect(&mut self, op: Op, operands: &[Word]) {
        if let Some(block) = self.blocks.last_mut() {
            write(&mut block.words, op, &[operands]);
        }
    }

    /// An instruction that comes before all others of the function.
    pub fn push_first(&mut self, op: Op, ty: Word, operands: &[Word]) -> Word {
        let id = self.id();
        write(&mut self.prelude, op, &[&[ty, id], operands]);
        id
    }

    /// Begins a block; the one before it must have ended with a branch.
    pub fn begin_block(&mut self, label: Word) {
        self.blocks.push(Block { label, words: vec![] });
    }

    /// Blocks so far; the open one is the last.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Puts phis before all other instructions of a block, by its number: type, id and operands of each.
    pub fn begin_with_phis(&mut self, block: usize, phis: &[[Word; 6]]) {
        let mut words = Vec::new();
        for phi in phis {
            write(&mut words, Op::Phi, &[phi]);
        }
        self.blocks[block].words.splice(0..0, words);
    }

    /// The label of the open block.
    pub fn open_label(&self) -> Word {
        self.blocks.last().map_or(0, |block| block.label)
    }

    /// The words of the module, with the blocks as its entry point.
    pub fn finish(mut self, name: &str, workgroup: u32, modes: &[ExecutionMode]) -> Vec<Word> {
        let void = self.once(Op::TypeVoid, None, &[]).0;
        let signature = self.once(Op::TypeFunction, None, &[void]).0;
        let function = self.id();
        let mut words = vec![spirv::MAGIC_NUMBER, VERSION_1_5, 0, self.last_id + 1, 0];
        for &capability in &self.asked {
            write(&mut words, Op::Capability, &[&[capability as Word]]);
        }
        for name in &self.extensions {
            write(&mut words, Op::Extension, &[&text(name)]);
        }
        if let Some(id) = self.extended {
            write(&mut words, Op::ExtInstImport, &[&[id], &text(EXTENDED)]);
        }
        let models = [AddressingModel::PhysicalStorageBuffer64 as Word, MemoryModel::Vulkan as Word];
        write(&mut words, Op::MemoryModel, &[&models]);
        let model = ExecutionModel::GLCompute as Word;
        write(&mut words, Op::EntryPoint, &[&[model, function], &text(name), &self.variables]);
        let size = ExecutionMode::LocalSize as Word;
        write(&mut words, Op::ExecutionMode, &[&[function, size, workgroup, 1, 1]]);
        for &mode in modes {
            write(&mut words, Op::ExecutionMode, &[&[function, mode as Word, 32]]);
        }
        words.append(&mut self.annotations);
        words.append(&mut self.globals);

        let control = FunctionControl::NONE.bits();
        write(&mut words, Op::Function, &[&[void, function, control, signature]]);
        for block in &mut self.blocks {
            write(&mut words, Op::Label, &[&[block.label]]);
            // The first block alone; there is nothing left of it after.
            words.append(&mut self.prelude);
            words.append(&mut block.words);
        }
        write(&mut words, Op::FunctionEnd, &[]);
        words
    }
}
