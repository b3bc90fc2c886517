//! Memory: the launch's record, buffers behind addresses, shared arrays, barriers.
//!
//! An address becomes a pointer to an array of the words, or of the vectors, that an access wants; so a
//! vector's access is one aligned access of 8 or 16 bytes. Shared arrays have one type each: vectors of the
//! widest access.

use std::collections::HashMap;

use spirv::{Decoration, MemoryAccess, MemorySemantics, Op, Scope, StorageClass, Word};
use unisonic_core::kir::abi;
use unisonic_core::kir::kernel::{Attr, Block, Inst, ObjectId, ParamId, Space, Stmt, Value};
use unisonic_core::kir::verify::WORD_LEN_BYTES;
use unisonic_core::kir::{Kernel, Scalar, Type};

use super::Emitter;
use super::matrix::Stage;

/// What is known of a kernel's memory, and what has been emitted of it.
pub(super) struct Memory {
    /// Of each shared object, the widest access.
    shared_widths: Vec<u8>,
    /// Whether matrices B are loaded from shared memory.
    pub(super) loads_b: bool,
    /// Pointer to the launch's record.
    record: Option<(StorageClass, Word)>,
    params: HashMap<usize, Word>,
    addresses: HashMap<ObjectId, Word>,
    pointers: HashMap<(ObjectId, u8), Word>,
    /// Pointer types, by element, width, and whether it is only read.
    arrays: HashMap<(Scalar, u8, bool), Word>,
    shared: HashMap<ObjectId, Word>,
    /// Where the subgroup stages matrices.
    pub(super) stage: Option<Stage>,
}

impl Memory {
    pub(super) fn of(kernel: &Kernel) -> Self {
        let mut shared_widths = vec![1; kernel.objects.len()];
        let loads_b = widths(kernel, &kernel.body, &mut shared_widths);
        Self {
            shared_widths,
            loads_b,
            record: None,
            params: HashMap::new(),
            addresses: HashMap::new(),
            pointers: HashMap::new(),
            arrays: HashMap::new(),
            shared: HashMap::new(),
            stage: None,
        }
    }
}

/// The widest access to each object, and whether any is the load of a matrix.
fn widths(kernel: &Kernel, block: &Block, found: &mut [u8]) -> bool {
    let mut loads_b = false;
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(Inst { attr: Attr::Object(id), operands, result, .. }) => {
                let value = result.as_ref().or(operands.get(1));
                let width = value.map_or(1, |value| kernel.types[value.index()].width);
                found[id.index()] = found[id.index()].max(width);
            }
            // Columns of matrices are of 16 bytes.
            Stmt::Inst(Inst { attr: Attr::Columns { of, .. }, .. }) => {
                found[of.index()] = 4;
                loads_b = true;
            }
            Stmt::Inst(_) => {}
            Stmt::If { then, otherwise, .. } => {
                loads_b |= widths(kernel, then, found);
                loads_b |= widths(kernel, otherwise, found);
            }
            Stmt::Loop { body, .. } => loads_b |= widths(kernel, body, found),
        }
    }
    loads_b
}

/// Of a vector.
fn len_bytes(width: u8) -> u32 {
    u32::from(width) * WORD_LEN_BYTES as u32
}

/// Where elements lie, and how they are accessed.
struct Place {
    /// Pointers to the words or vectors that make the value.
    pointers: Vec<Word>,
    /// Type of what one of them points to.
    ty: Word,
    access: Vec<Word>,
}

impl Emitter<'_> {
    pub(super) fn load(&mut self, inst: &Inst, hint: MemoryAccess) -> Word {
        let ty = self.result_ty(inst);
        let place = self.place(inst, ty.width, hint);
        let words: Vec<Word> = (place.pointers.iter())
            .map(|&pointer| {
                let mut operands = vec![pointer];
                operands.extend_from_slice(&place.access);
                self.push(Op::Load, place.ty, &operands)
            })
            .collect();
        let to = self.spirv_ty(ty);
        match words[..] {
            [whole] => whole,
            _ => self.push(Op::CompositeConstruct, to, &words),
        }
    }

    pub(super) fn store(&mut self, inst: &Inst) {
        let ty = self.ty_of(inst.operands[1]);
        let place = self.place(inst, ty.width, MemoryAccess::NONE);
        let value = self.operand(inst, 1);
        let one = self.spirv_ty(Type::one(ty.scalar));
        for (part, &pointer) in (0..).zip(&place.pointers) {
            let value = match place.pointers.len() {
                1 => value,
                _ => self.extract(one, value, part),
            };
            let mut operands = vec![pointer, value];
            operands.extend_from_slice(&place.access);
            self.module.push_effect(Op::Store, &operands);
        }
    }

    fn place(&mut self, inst: &Inst, width: u8, hint: MemoryAccess) -> Place {
        let Attr::Object(id) = inst.attr else { unreachable!("an access has an object") };
        let index = inst.operands[0];
        match self.kernel.objects[id.index()].space {
            Space::Shared { len } => self.place_in_shared(id, len, index, width),
            Space::Read | Space::Write | Space::ReadWrite => self.place_in_buffer(id, index, width, hint),
        }
    }

    fn place_in_buffer(&mut self, id: ObjectId, index: Value, width: u8, hint: MemoryAccess) -> Place {
        let kernel = self.kernel;
        let object = &kernel.objects[id.index()];
        let (base, ty) = (self.pointer(id, width), self.spirv_ty(Type { scalar: object.elem, width }));
        let (first, index) = (self.u32_constant(0), self.shifted_index(index, width));
        let pointer = self.module.pointer(StorageClass::PhysicalStorageBuffer, ty);
        let pointer = self.push(Op::AccessChain, pointer, &[base, first, index]);
        let mut access = MemoryAccess::ALIGNED | hint;
        // What is not written is private; everything else takes part in barriers.
        if object.space.is_writable() {
            access |= MemoryAccess::NON_PRIVATE_POINTER;
        }
        let access = vec![access.bits(), len_bytes(width)];
        Place { pointers: vec![pointer], ty, access }
    }

    /// The index of a vector.
    fn shifted_index(&mut self, index: Value, width: u8) -> Word {
        let shift = width.trailing_zeros();
        if shift == 0 {
            return self.id_of(index);
        }
        if let Some(known) = self.constants.get(&index) {
            return self.u32_constant(known >> shift);
        }
        let (u32_, shift) = (self.u32_ty(), self.u32_constant(shift));
        self.push(Op::ShiftRightLogical, u32_, &[self.id_of(index), shift])
    }

    /// An object's address as a pointer to an array of vectors, made at the beginning of the function.
    pub(super) fn pointer(&mut self, id: ObjectId, width: u8) -> Word {
        if let Some(&pointer) = self.memory.pointers.get(&(id, width)) {
            return pointer;
        }
        let object = &self.kernel.objects[id.index()];
        let ty = self.array_pointer_ty(object.elem, width, !object.space.is_writable());
        let address = self.address(id);
        let pointer = self.module.push_first(Op::Bitcast, ty, &[address]);
        self.memory.pointers.insert((id, width), pointer);
        pointer
    }

    fn array_pointer_ty(&mut self, elem: Scalar, width: u8, is_read: bool) -> Word {
        if let Some(&ty) = self.memory.arrays.get(&(elem, width, is_read)) {
            return ty;
        }
        let ty = self.spirv_ty(Type { scalar: elem, width });
        let (array, is_new) = self.module.once(Op::TypeRuntimeArray, None, &[ty]);
        if is_new {
            self.module.decorate(array, Decoration::ArrayStride, &[len_bytes(width)]);
        }
        let holder = self.module.type_of_its_own(Op::TypeStruct, &[array]);
        self.module.decorate(holder, Decoration::Block, &[]);
        self.module.decorate_member(holder, 0, Decoration::Offset, &[0]);
        if is_read {
            self.module.decorate_member(holder, 0, Decoration::NonWritable, &[]);
        }
        let pointer = self.module.pointer(StorageClass::PhysicalStorageBuffer, holder);
        self.memory.arrays.insert((elem, width, is_read), pointer);
        pointer
    }

    fn address(&mut self, id: ObjectId) -> Word {
        if let Some(&address) = self.memory.addresses.get(&id) {
            return address;
        }
        let member = abi::addressed(self.kernel).take_while(|&other| other != id).count();
        let two = Type { scalar: Scalar::U32, width: 2 };
        let address = self.record_member(member, two, abi::ADDRESS_LEN_BYTES);
        self.memory.addresses.insert(id, address);
        address
    }

    pub(super) fn param(&mut self, inst: &Inst) -> Word {
        let Attr::Param(id) = inst.attr else { unreachable!("a parameter has a number") };
        if let Some(&param) = self.memory.params.get(&id.index()) {
            return param;
        }
        let param =
            self.record_member(self.address_count() + id.index(), self.result_ty(inst), abi::PARAM_LEN_BYTES);
        self.memory.params.insert(id.index(), param);
        param
    }

    fn address_count(&self) -> usize {
        abi::addressed(self.kernel).count()
    }

    /// A member of the launch's record, loaded at the beginning of the function.
    fn record_member(&mut self, member: usize, ty: Type, align: u32) -> Word {
        let ((class, record), member) = (self.record(), self.u32_constant(member as u32));
        let ty = self.spirv_ty(ty);
        let pointer = self.module.pointer(class, ty);
        let pointer = self.module.push_first(Op::AccessChain, pointer, &[record, member]);
        match class {
            StorageClass::PushConstant => self.module.push_first(Op::Load, ty, &[pointer]),
            _ => self.module.push_first(Op::Load, ty, &[pointer, MemoryAccess::ALIGNED.bits(), align]),
        }
    }

    /// Pointer to the launch's record: the push constants are the record, or its address.
    fn record(&mut self) -> (StorageClass, Word) {
        if let Some(record) = self.memory.record {
            return record;
        }
        let ty = self.record_ty();
        let record = if self.target.pushes_record(self.kernel) {
            (StorageClass::PushConstant, self.module.variable(StorageClass::PushConstant, ty))
        } else {
            (StorageClass::PhysicalStorageBuffer, self.record_by_address(ty))
        };
        *self.memory.record.insert(record)
    }

    fn record_ty(&mut self) -> Word {
        let two = self.spirv_ty(Type { scalar: Scalar::U32, width: 2 });
        let mut members = vec![two; self.address_count()];
        for param in &self.kernel.params {
            members.push(self.spirv_ty(param.scalar.into()));
        }
        let ty = self.module.type_of_its_own(Op::TypeStruct, &members);
        self.module.decorate(ty, Decoration::Block, &[]);
        let kernel = self.kernel;
        let addresses = abi::addressed(kernel).filter_map(|id| abi::address_offset_bytes(kernel, id));
        let params = (0..kernel.params.len() as u32).map(|id| abi::param_offset_bytes(kernel, ParamId(id)));
        let offsets: Vec<u32> = addresses.chain(params).collect();
        for (member, offset) in (0..).zip(offsets) {
            self.module.decorate_member(ty, member, Decoration::Offset, &[offset]);
            self.module.decorate_member(ty, member, Decoration::NonWritable, &[]);
        }
        ty
    }

    fn record_by_address(&mut self, ty: Word) -> Word {
        let two = self.spirv_ty(Type { scalar: Scalar::U32, width: 2 });
        let record_pointer = self.module.pointer(StorageClass::PhysicalStorageBuffer, ty);
        let holder = self.module.type_of_its_own(Op::TypeStruct, &[two]);
        self.module.decorate(holder, Decoration::Block, &[]);
        self.module.decorate_member(holder, 0, Decoration::Offset, &[0]);
        let variable = self.module.variable(StorageClass::PushConstant, holder);
        let (pointer, first) = (self.module.pointer(StorageClass::PushConstant, two), self.u32_constant(0));
        let pointer = self.module.push_first(Op::AccessChain, pointer, &[variable, first]);
        let address = self.module.push_first(Op::Load, two, &[pointer]);
        self.module.push_first(Op::Bitcast, record_pointer, &[address])
    }

    /// An access as wide as the array's vectors is one; a narrower one goes word by word.
    fn place_in_shared(&mut self, id: ObjectId, len: u32, index: Value, width: u8) -> Place {
        let elem = self.kernel.objects[id.index()].elem;
        let widest = self.memory.shared_widths[id.index()];
        let variable = self.shared(id, elem, len, widest);
        let access = vec![MemoryAccess::NON_PRIVATE_POINTER.bits()];
        let vector = self.shifted_index(index, widest);
        if width == widest {
            let ty = self.spirv_ty(Type { scalar: elem, width });
            let pointer = self.module.pointer(StorageClass::Workgroup, ty);
            let pointer = self.push(Op::AccessChain, pointer, &[variable, vector]);
            return Place { pointers: vec![pointer], ty, access };
        }
        let (ty, u32_) = (self.spirv_ty(elem.into()), self.u32_ty());
        let pointer_ty = self.module.pointer(StorageClass::Workgroup, ty);
        let low = self.u32_constant(u32::from(widest) - 1);
        let first = self.push(Op::BitwiseAnd, u32_, &[self.id_of(index), low]);
        let pointers = (0..u32::from(width)).map(|part| {
            let mut within = first;
            if part > 0 {
                let part = self.u32_constant(part);
                within = self.push(Op::BitwiseOr, u32_, &[first, part]);
            }
            self.push(Op::AccessChain, pointer_ty, &[variable, vector, within])
        });
        Place { pointers: pointers.collect(), ty, access }
    }

    /// The vector of four that begins at an index, in an array of such.
    pub(super) fn vec4_in_shared(&mut self, id: ObjectId, index: Value) -> Word {
        let object = &self.kernel.objects[id.index()];
        let Space::Shared { len } = object.space else { unreachable!("matrices are in shared memory") };
        self.place_in_shared(id, len, index, 4).pointers[0]
    }

    fn shared(&mut self, id: ObjectId, elem: Scalar, len: u32, width: u8) -> Word {
        if let Some(&variable) = self.memory.shared.get(&id) {
            return variable;
        }
        let vector = self.spirv_ty(Type { scalar: elem, width });
        let len = self.u32_constant(len.div_ceil(width.into()).max(1));
        let array = self.module.once(Op::TypeArray, None, &[vector, len]).0;
        let variable = self.module.variable(StorageClass::Workgroup, array);
        self.memory.shared.insert(id, variable);
        variable
    }

    /// What the kernel's shared arrays take, each at a multiple of 16 bytes.
    pub(super) fn shared_len_bytes(&self) -> u32 {
        let lens = self.kernel.objects.iter().map(|object| match object.space {
            Space::Shared { len } => len.next_multiple_of(4) * WORD_LEN_BYTES as u32,
            Space::Read | Space::Write | Space::ReadWrite => 0,
        });
        lens.sum()
    }

    /// Waits for the workgroup, and shows it what any of it wrote: shared memory, and buffers where the
    /// kernel writes any.
    pub(super) fn barrier(&mut self) {
        let mut semantics = MemorySemantics::ACQUIRE_RELEASE
            | MemorySemantics::WORKGROUP_MEMORY
            | MemorySemantics::MAKE_AVAILABLE
            | MemorySemantics::MAKE_VISIBLE;
        if self.kernel.objects.iter().any(|object| matches!(object.space, Space::Write | Space::ReadWrite)) {
            semantics |= MemorySemantics::UNIFORM_MEMORY;
        }
        let (scope, semantics) =
            (self.u32_constant(Scope::Workgroup as u32), self.u32_constant(semantics.bits()));
        self.module.push_effect(Op::ControlBarrier, &[scope, scope, semantics]);
    }
}
