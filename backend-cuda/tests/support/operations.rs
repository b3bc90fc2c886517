//! Small kernels that hold each operation with every type that it takes, made from the table of operations.
//!
//! Each kernel computes one operation with operands that differ from invocation to invocation and with constants, in every
//! combination, and stores every result. [`launch`] has buffers for it, so that a device can be compared with the
//! interpreter.

use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::kernel::{
    Attr, Block, Inst, Kernel, Object, ObjectId, Param, ParamId, Space, Stmt, Value,
};
use unisonic_core::kir::op::{AttrKind, CLUSTER_WIDTHS, Family, Pattern, Row};
use unisonic_core::kir::{Op, Scalar, Type, verify};

/// Workgroups of a launch.
const GROUPS: u32 = 2;

/// All kernels: for each operation and each type of its operands and result one, and for exchanges one for each kind of
/// workgroup.
pub fn kernels() -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for &op in Op::ALL {
        for (operands, result) in signatures(op) {
            for &workgroup in workgroups(op) {
                kernels.extend(attrs(op, workgroup, &operands).chunks(4).enumerate().map(|(part, attrs)| {
                    let types: Vec<String> = operands.iter().chain(&result).map(Type::to_string).collect();
                    let name = format!("{}_{}_{workgroup}_{part}", op.row().mnemonic, types.join("_"));
                    let kernel = Writer::new(name, workgroup).kernel(op, attrs, &operands, result);
                    assert_eq!(verify(&kernel), [], "{kernel}");
                    kernel
                }));
            }
        }
    }
    kernels
}

/// A launch whose buffers hold values that differ, and none that an operation may not have.
pub fn launch(kernel: &Kernel) -> Launch {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as u32
    };
    let outside = |object: &&Object| !matches!(object.space, Space::Shared { .. });
    let buffer = |object: &Object| -> Vec<u8> {
        let len = if object.name.starts_with("in_") { elements(kernel) } else { OUT_LEN * elements(kernel) };
        let is_input = object.space.is_readable();
        (0..len)
            .flat_map(|_| {
                let word = if is_input { valid(object.elem, next()) } else { 0xEEEE_EEEE };
                word.to_le_bytes()
            })
            .collect()
    };
    let buffers = kernel.objects.iter().filter(outside).map(buffer).collect();
    let params = kernel.params.iter().map(|param| valid(param.scalar, 0x4123_4567)).collect();
    Launch { groups: GROUPS, params, buffers, fuel: u64::MAX }
}

/// Elements of an input: four for each invocation.
fn elements(kernel: &Kernel) -> u32 {
    4 * GROUPS * kernel.workgroup
}

/// Results that an output has room for, of four words and for each invocation.
const OUT_LEN: u32 = 64;

/// Bits made a value: no infinities and NaN, whose bits in a result are not promised.
fn valid(scalar: Scalar, bits: u32) -> u32 {
    match scalar {
        // Zeros and subnormals too.
        Scalar::F32 if bits.is_multiple_of(8) => bits & 0x807F_0000,
        Scalar::F32 if bits & 0x7F80_0000 == 0x7F80_0000 => bits ^ 0x4000_0000,
        Scalar::Bool => bits & 1,
        Scalar::U32 | Scalar::I32 | Scalar::F32 | Scalar::I8x4 | Scalar::U8x4 => bits,
    }
}

fn types() -> impl Iterator<Item = Type> {
    Scalar::ALL.into_iter().flat_map(|scalar| Type::WIDTHS.map(|width| Type { scalar, width }))
}

/// Types of operands and result that an operation takes.
fn signatures(op: Op) -> Vec<(Vec<Type>, Option<Type>)> {
    let row = op.row();
    let mut found = Vec::new();
    for variable in types() {
        let operands: Vec<Type> =
            row.operands.iter().map(|&pattern| operand(row, pattern, variable)).collect();
        let stated: Vec<Option<Type>> = match row.result {
            Some(Pattern::Stated) => types().map(Some).collect(),
            _ => vec![None],
        };
        for stated in stated {
            let allowed = match (op, stated) {
                (Op::Param, Some(ty)) => {
                    ty.width == 1 && matches!(ty.scalar, Scalar::U32 | Scalar::I32 | Scalar::F32)
                }
                (Op::Load | Op::LoadStream, Some(ty)) => ty.scalar != Scalar::Bool,
                (Op::Store, _) => variable.scalar != Scalar::Bool,
                (Op::Byte, _) => variable.width == 1,
                _ => true,
            };
            if let (true, Ok(result)) = (allowed, row.check(&operands, stated)) {
                found.push((operands.clone(), result));
            }
        }
    }
    let mut unique = Vec::new();
    for signature in found {
        if !unique.contains(&signature) {
            unique.push(signature);
        }
    }
    assert!(!unique.is_empty(), "{op:?}");
    unique
}

fn operand(row: &Row, pattern: Pattern, variable: Type) -> Type {
    match pattern {
        Pattern::Is(scalar) => Type { scalar, width: if row.by_word { variable.width } else { 1 } },
        Pattern::OneT => Type::one(variable.scalar),
        Pattern::Words(width) => Type { width, ..variable },
        Pattern::Many(scalar, width) => Type { scalar, width },
        Pattern::T | Pattern::Stated => variable,
    }
}

/// Workgroups that matter to an operation: exchanges have to know which lanes of a warp exist.
fn workgroups(op: Op) -> &'static [u32] {
    match (op.row().family, op.row().attr) {
        (_, AttrKind::Cluster) => &[8, 32, 48, 64],
        (Family::Matrix, _) => &[64],
        _ => &[32],
    }
}

fn attrs(op: Op, workgroup: u32, operands: &[Type]) -> Vec<Attr> {
    match op.row().attr {
        AttrKind::None => vec![Attr::None],
        AttrKind::Word => vec![Attr::Word(1)],
        AttrKind::Param => vec![Attr::Param(ParamId(0))],
        // Which one, the writer knows.
        AttrKind::Object | AttrKind::Copy => vec![Attr::None],
        AttrKind::Index => {
            let len = match op {
                Op::Byte => 4,
                Op::Half => 2,
                Op::CopyWait => 1,
                _ => u32::from(operands[0].width),
            };
            (0..len).map(Attr::Index).collect()
        }
        AttrKind::Selector => [0x3210, 0x7531, 0x0246, 0x4444].map(Attr::Selector).to_vec(),
        AttrKind::Cluster => CLUSTER_WIDTHS
            .into_iter()
            .filter(|&width| workgroup.is_multiple_of(width))
            .flat_map(|width| [1, width - 1].map(|lane| Attr::Cluster { width, lane }))
            .collect(),
    }
}

/// A kernel that is being written.
struct Writer {
    kernel: Kernel,
    /// Number of the invocation among all.
    id: Value,
    results: u32,
}

impl Writer {
    fn new(name: String, workgroup: u32) -> Self {
        let (params, objects, types) = (vec![], vec![], vec![]);
        let (resident, body) = (None, Block::default());
        let kernel = Kernel { name, workgroup, resident, params, objects, types, body };
        let mut writer = Self { kernel, id: Value(0), results: 0 };
        let [group, local] = [Op::GroupId, Op::LocalId].map(|op| writer.index(op, Attr::None, &[]));
        let size = writer.index(Op::Const, Attr::Word(workgroup), &[]);
        let first = writer.index(Op::IMul, Attr::None, &[group, size]);
        writer.id = writer.index(Op::IAdd, Attr::None, &[first, local]);
        writer
    }

    /// The operation with each attribute and each choice of constants among its operands.
    fn kernel(mut self, op: Op, attrs: &[Attr], operands: &[Type], result: Option<Type>) -> Kernel {
        match op {
            Op::Param => {
                let scalar = result.unwrap().scalar;
                self.kernel.params.push(Param { name: "parameter".to_owned(), scalar });
            }
            Op::Load | Op::LoadStream => return self.loads(op, result.unwrap()),
            Op::CopyAsync | Op::CopyCommit | Op::CopyWait => return self.copies(),
            Op::Store => return self.stores(operands[1]),
            _ => {}
        }
        for &attr in attrs {
            for constants in 0..1 << operands.len() {
                let values = operands.iter().enumerate().map(|(number, &ty)| {
                    let value = self.operand(ty, constants >> number & 1 == 1, number as u32);
                    self.in_range(op, number, value)
                });
                let values: Vec<Value> = values.collect();
                if let Some(value) = self.push(op, attr, &values, result) {
                    self.keep(value);
                }
            }
        }
        self.kernel
    }

    /// Reads from each kind of memory, by an index that differs and by one that is known.
    fn loads(mut self, op: Op, ty: Type) -> Kernel {
        let elem = ty.scalar;
        let spaces = [(Space::Read, "in_read"), (Space::ReadWrite, "in_read_write")];
        let shared_len = 4 * self.kernel.workgroup;
        let shared = self.object("filled", elem, Space::Shared { len: shared_len });
        let four = self.operand(Type { scalar: elem, width: 4 }, false, 0);
        let local = self.index(Op::LocalId, Attr::None, &[]);
        let at = self.times(local, 4);
        self.push(Op::Store, Attr::Object(shared), &[at, four], None);
        self.push(Op::Barrier, Attr::None, &[], None);
        let constant = self.index(Op::Const, Attr::Word(8), &[]);
        for id in spaces.map(|(space, name)| self.object(name, elem, space)) {
            let at = self.times(self.id, u32::from(ty.width));
            for at in [at, constant] {
                let loaded = self.push(op, Attr::Object(id), &[at], Some(ty)).unwrap();
                self.keep(loaded);
            }
        }
        let at = self.times(local, u32::from(ty.width));
        for at in [at, constant] {
            let loaded = self.push(op, Attr::Object(shared), &[at], Some(ty)).unwrap();
            self.keep(loaded);
        }
        self.kernel
    }

    /// Copies in two groups; the first is waited for and read by others, then the second.
    fn copies(mut self) -> Kernel {
        let workgroup = self.kernel.workgroup;
        let shared = self.object("filled", Scalar::F32, Space::Shared { len: 8 * workgroup });
        let [x, y] = ["in_first", "in_second"].map(|name| self.object(name, Scalar::F32, Space::Read));
        let local = self.index(Op::LocalId, Attr::None, &[]);
        let (from, first) = (self.times(self.id, 4), self.times(local, 4));
        let half = self.index(Op::Const, Attr::Word(4 * workgroup), &[]);
        let second = self.index(Op::IAdd, Attr::None, &[first, half]);
        for (object, to) in [(x, first), (y, second)] {
            self.push(Op::CopyAsync, Attr::Copy { to: shared, from: object }, &[to, from], None);
            self.push(Op::CopyCommit, Attr::None, &[], None);
        }
        let last = self.index(Op::Const, Attr::Word(4 * workgroup - 4), &[]);
        let mirrored = self.index(Op::ISub, Attr::None, &[last, first]);
        for (groups, from) in [(1, mirrored), (0, second)] {
            self.push(Op::CopyWait, Attr::Index(groups), &[], None);
            self.push(Op::Barrier, Attr::None, &[], None);
            let ty = Type { scalar: Scalar::F32, width: 4 };
            let loaded = self.push(Op::Load, Attr::Object(shared), &[from], Some(ty)).unwrap();
            self.keep(loaded);
        }
        self.kernel
    }

    /// Writes to each kind of memory what differs and what is known.
    fn stores(mut self, ty: Type) -> Kernel {
        let elem = ty.scalar;
        let shared_len = 4 * self.kernel.workgroup;
        for (space, name) in [
            (Space::Write, "out_write"),
            (Space::ReadWrite, "out_read_write"),
            (Space::Shared { len: shared_len }, "filled"),
        ] {
            let id = self.object(name, elem, space);
            let local = self.index(Op::LocalId, Attr::None, &[]);
            let of = if matches!(space, Space::Shared { .. }) { local } else { self.id };
            let at = self.times(of, u32::from(ty.width));
            for is_constant in [true, false] {
                let value = self.operand(ty, is_constant, 0);
                self.push(Op::Store, Attr::Object(id), &[at, value], None);
                self.push(Op::Barrier, Attr::None, &[], None);
                if space.is_readable() {
                    let loaded = self.push(Op::Load, Attr::Object(id), &[at], Some(ty)).unwrap();
                    self.keep(loaded);
                }
            }
        }
        self.kernel
    }

    fn operand(&mut self, ty: Type, is_constant: bool, number: u32) -> Value {
        if is_constant {
            return self.constant(ty, valid(ty.scalar, 0x3F81_0203 + number));
        }
        if ty.scalar == Scalar::Bool {
            let word = ty.with(Scalar::U32);
            let (value, seven) = (self.operand(word, false, number), self.constant(word, 7));
            let (bits, zero) = (self.push(Op::And, Attr::None, &[value, seven], Some(word)), 0);
            let some = self.constant(word, zero + number);
            return self.push(Op::ILt, Attr::None, &[some, bits.unwrap()], Some(ty)).unwrap();
        }
        // Other elements for each operand.
        let id = self.object(&format!("in_{}_{number}", ty.scalar.name()), ty.scalar, Space::Read);
        let at = self.times(self.id, u32::from(ty.width));
        self.push(Op::Load, Attr::Object(id), &[at], Some(ty)).unwrap()
    }

    /// The operand as the operation may have it.
    fn in_range(&mut self, op: Op, number: usize, value: Value) -> Value {
        let (join, word) = match (op, number) {
            (Op::Shl | Op::Shr, 1) => (Op::And, 31),
            (Op::UDiv | Op::URem, 1) => (Op::Or, 1),
            // No exponent of infinities and NaN.
            (Op::Half, _) => (Op::And, 0xFBFF_FBFF),
            _ => return value,
        };
        let ty = self.kernel.types[value.index()];
        let word = self.constant(ty, word);
        self.push(join, Attr::None, &[value, word], Some(ty)).unwrap()
    }

    /// Stores a result where nobody else does.
    fn keep(&mut self, value: Value) {
        let ty = self.kernel.types[value.index()];
        let value = match ty.scalar {
            Scalar::Bool => {
                let word = ty.with(Scalar::U32);
                let (yes, no) = (self.constant(word, 1), self.constant(word, 0));
                self.push(Op::Select, Attr::None, &[value, yes, no], Some(word)).unwrap()
            }
            _ => value,
        };
        let ty = self.kernel.types[value.index()];
        let id = self.object(&format!("out_{}", ty.scalar.name()), ty.scalar, Space::Write);
        let invocations = GROUPS * self.kernel.workgroup;
        assert!(self.results < OUT_LEN, "{}", self.kernel.name);
        let slot = self.index(Op::Const, Attr::Word(self.results * invocations), &[]);
        let at = self.index(Op::IAdd, Attr::None, &[slot, self.id]);
        let at = self.times(at, 4);
        self.push(Op::Store, Attr::Object(id), &[at, value], None);
        self.results += 1;
    }

    fn object(&mut self, name: &str, elem: Scalar, space: Space) -> ObjectId {
        let objects = &mut self.kernel.objects;
        let at = objects.iter().position(|object| object.name == name).unwrap_or_else(|| {
            objects.push(Object { name: name.to_owned(), elem, space });
            objects.len() - 1
        });
        ObjectId(at as u32)
    }

    fn times(&mut self, value: Value, factor: u32) -> Value {
        let factor = self.index(Op::Const, Attr::Word(factor), &[]);
        self.index(Op::IMul, Attr::None, &[value, factor])
    }

    fn constant(&mut self, ty: Type, word: u32) -> Value {
        self.push(Op::Const, Attr::Word(word), &[], Some(ty)).unwrap()
    }

    fn index(&mut self, op: Op, attr: Attr, operands: &[Value]) -> Value {
        self.push(op, attr, operands, Some(Scalar::U32.into())).unwrap()
    }

    fn push(&mut self, op: Op, attr: Attr, operands: &[Value], result: Option<Type>) -> Option<Value> {
        let result = result.map(|ty| {
            self.kernel.types.push(ty);
            Value(self.kernel.types.len() as u32 - 1)
        });
        self.kernel.body.stmts.push(Stmt::Inst(Inst { op, attr, operands: operands.to_vec(), result }));
        result
    }
}
