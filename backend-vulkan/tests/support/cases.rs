//! A small kernel for each operation, type, width and attribute that the table allows, and what to feed it with.
//!
//! Invocation i loads its operands at i, applies the operation, and stores the result at i. Memory and exchanges between
//! invocations that need more than one line are written by hand in the table's order ([`by_hand`]).

use unisonic_core::kir::kernel::{Attr, Block, Inst, Object, ObjectId, Param, ParamId, Space, Stmt, Value};
use unisonic_core::kir::op::{AttrKind, CLUSTER_WIDTHS, Pattern};
use unisonic_core::kir::{Kernel, Op, Scalar, Type, parse, verify};

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 64;
/// Workgroups of a launch.
pub const GROUPS: u32 = 24;

/// An operation on types.
pub struct Case {
    pub op: Op,
    /// The statement that is tested.
    pub text: String,
    pub kernel: Kernel,
    /// What the buffers hold, in order.
    pub buffers: Vec<Contents>,
    pub params: Vec<u32>,
}

/// What a buffer holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Integers or bytes.
    Words,
    /// Floats whose sums and products are normal numbers or zero (docs/numerics.md, "Why flush-to-zero cannot matter").
    Floats,
    /// 0 and 1.
    Bools,
    /// What is no 0.
    Divisors,
    /// Below 32.
    ShiftAmounts,
    /// Pairs of halves, no infinity or NaN.
    Halves,
    /// What the kernel writes.
    Output,
}

const WORD_EDGES: &[u32] = &[
    0,
    1,
    2,
    0xFF,
    0x80,
    0x7F,
    0x8080_8080,
    0x7F7F_7F7F,
    0xFFFF_FFFF,
    0x8000_0000,
    0x7FFF_FFFF,
    0x0100_0001,
];
/// 0, -0, 1, -1, odd and even mantissas around ties, the range of the contract.
const FLOAT_EDGES: &[u32] = &[
    0,
    0x8000_0000,
    0x3F80_0000,
    0xBF80_0000,
    0x3F80_0001,
    0x3F7F_FFFF,
    0x3380_0000,
    0xB380_0000,
    0x33FF_FFFF,
    0x4B40_0000,
    0x4B40_0001,
    0x2180_0000,
    0xA1FF_FFFF,
    0x5D80_0000,
];
const HALF_EDGES: &[u32] = &[0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x3C00, 0x3555];

impl Contents {
    fn edges(self) -> Vec<u32> {
        match self {
            Contents::Words => WORD_EDGES.to_vec(),
            Contents::Floats => FLOAT_EDGES.to_vec(),
            Contents::Bools => vec![0, 1],
            Contents::Divisors => WORD_EDGES.iter().copied().filter(|&word| word != 0).collect(),
            Contents::ShiftAmounts => vec![0, 1, 16, 31],
            Contents::Halves => HALF_EDGES.iter().map(|&half| half << 16 | half).collect(),
            Contents::Output => vec![0xDEAD_BEEF],
        }
    }

    fn random(self, word: u64) -> u32 {
        let low = word as u32;
        match self {
            Contents::Words => low,
            // Exponents of 2^-60 to 2^60.
            Contents::Floats => (low & 0x807F_FFFF) | (67 + (word >> 32) as u32 % 121) << 23,
            Contents::Bools => low & 1,
            // Small ones too.
            Contents::Divisors => (low >> (word >> 32 & 31)).max(1),
            Contents::ShiftAmounts => low & 31,
            Contents::Halves => {
                let half = |half: u32| if half & 0x7C00 == 0x7C00 { half & !0x0400 } else { half };
                half(low & 0xFFFF) | half(low >> 16) << 16
            }
            Contents::Output => 0xDEAD_BEEF,
        }
    }
}

/// Words of the first buffers: each meets each edge of the others, then random ones. `seed` is any number.
pub fn fill(buffers: &[Contents], words_each: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    let mut turns = 1;
    let mut filled = Vec::new();
    for &contents in buffers {
        let edges = contents.edges();
        let all_met = (turns * edges.len()).min(words_each / 2);
        let words = (0..words_each).map(|i| match i < all_met {
            true => edges[i / turns % edges.len()],
            false => contents.random(next()),
        });
        filled.push(words.flat_map(u32::to_le_bytes).collect());
        turns = (turns * edges.len()).min(words_each);
    }
    filled
}

/// Every operation of the table, in its order.
pub fn all() -> Vec<Case> {
    let cases: Vec<Case> = Op::ALL.iter().flat_map(|&op| of(op)).collect();
    for case in &cases {
        assert_eq!(verify(&case.kernel), [], "{}", case.kernel);
    }
    for op in Op::ALL {
        let mnemonic = op.row().mnemonic;
        assert!(cases.iter().any(|case| case.op == *op), "no case of `{mnemonic}`");
    }
    cases
}

fn of(op: Op) -> Vec<Case> {
    let by_hand = by_hand(op);
    if !by_hand.is_empty() {
        return by_hand.iter().map(|text| from_text(op, text)).collect();
    }
    let row = op.row();
    let mut cases: Vec<Case> = Vec::new();
    for scalar in Scalar::ALL {
        for width in Type::WIDTHS {
            let operands: Vec<Type> = row
                .operands
                .iter()
                .map(|&pattern| match pattern {
                    Pattern::Is(is) => Type { scalar: is, width: if row.by_word { width } else { 1 } },
                    Pattern::T => Type { scalar, width },
                    Pattern::OneT => Type::one(scalar),
                    Pattern::Words(width) => Type { scalar, width },
                    Pattern::Many(scalar, width) => Type { scalar, width },
                    Pattern::Stated => unreachable!("no operand is stated"),
                })
                .collect();
            for stated in stated_types(op, width) {
                let Ok(Some(result)) = row.check(&operands, stated) else { continue };
                for attr in attributes(op, result) {
                    let case = case(op, &operands, result, attr);
                    let is_new = cases.iter().all(|other| other.kernel != case.kernel);
                    if is_new && verify(&case.kernel).is_empty() {
                        cases.push(case);
                    }
                }
            }
        }
    }
    cases
}

fn stated_types(op: Op, width: u8) -> Vec<Option<Type>> {
    if op.row().result != Some(Pattern::Stated) {
        return vec![None];
    }
    Scalar::ALL.iter().map(|&scalar| Some(Type { scalar, width })).collect()
}

/// Each mask and lane of a cluster on u32, and some on other types.
fn attributes(op: Op, ty: Type) -> Vec<Attr> {
    match op.row().attr {
        AttrKind::None => vec![Attr::None],
        AttrKind::Word => [0, 1, 0x3FC0_0000, 0x8000_0000, u32::MAX].map(Attr::Word).to_vec(),
        AttrKind::Param => vec![Attr::Param(ParamId(0))],
        AttrKind::Index => (0..4).map(Attr::Index).collect(),
        AttrKind::Selector => [
            0x3210, 0x7654, 0x0123, 0x4321, 0x5432, 0x6543, 0x0000, 0x7777, 0x1010, 0x5410, 0x7632, 0x0321,
            0x6240, 0x7351, 0x2104, 0x4567,
        ]
        .map(Attr::Selector)
        .to_vec(),
        AttrKind::Cluster => CLUSTER_WIDTHS
            .into_iter()
            .flat_map(|width| (0..width).map(move |lane| (width, lane)))
            .filter(|&(width, lane)| {
                ty == Type::one(Scalar::U32) || [1, width / 2, width - 1].contains(&lane)
            })
            .map(|(width, lane)| Attr::Cluster { width, lane })
            .collect(),
        AttrKind::Object | AttrKind::Copy => unreachable!("accesses are written by hand"),
    }
}

fn contents(op: Op, number: usize, ty: Type) -> Contents {
    match (op, number, ty.scalar) {
        (Op::UDiv | Op::URem, 1, _) => Contents::Divisors,
        (Op::Shl | Op::Shr, 1, _) => Contents::ShiftAmounts,
        (Op::Half, ..) => Contents::Halves,
        (_, _, Scalar::F32) => Contents::Floats,
        (_, _, Scalar::Bool) => Contents::Bools,
        _ => Contents::Words,
    }
}

/// The kernel of one operation.
fn case(op: Op, operands: &[Type], result: Type, attr: Attr) -> Case {
    let mut writer = Writer::new();
    let i = writer.invocation();
    let mut buffers = vec![];
    let mut values = vec![];
    for (number, &ty) in operands.iter().enumerate() {
        buffers.push(contents(op, number, ty));
        let object = writer.object(&format!("in{number}"), ty, Space::Read);
        values.push(writer.load(object, i, ty));
    }
    let mut params = vec![];
    if let Attr::Param(_) = attr {
        writer.kernel.params.push(Param { name: "p".to_owned(), scalar: result.scalar });
        params.push(0x4049_0FDB);
    }
    let applied = writer.inst(op, attr, &values, Some(result));
    let inst = writer.last_inst_text();
    let out = writer.object("out", result, Space::Write);
    writer.store(out, i, applied, result);
    buffers.push(Contents::Output);
    Case { op, text: format!("{inst} -> {result}"), kernel: writer.kernel, buffers, params }
}

struct Writer {
    kernel: Kernel,
}

impl Writer {
    fn new() -> Self {
        let kernel = Kernel {
            name: "case".to_owned(),
            workgroup: WORKGROUP,
            resident: None,
            params: vec![],
            objects: vec![],
            types: vec![],
            body: Block::default(),
        };
        Self { kernel }
    }

    fn inst(&mut self, op: Op, attr: Attr, operands: &[Value], result: Option<Type>) -> Value {
        let value = Value(self.kernel.types.len() as u32);
        self.kernel.types.extend(result);
        let inst = Inst { op, attr, operands: operands.to_vec(), result: result.map(|_| value) };
        self.kernel.body.stmts.push(Stmt::Inst(inst));
        value
    }

    fn last_inst_text(&self) -> String {
        let Some(Stmt::Inst(inst)) = self.kernel.body.stmts.last() else { return String::new() };
        self.kernel.inst_text(inst)
    }

    fn constant(&mut self, ty: Type, word: u32) -> Value {
        self.inst(Op::Const, Attr::Word(word), &[], Some(ty))
    }

    /// The number of the invocation in the launch.
    fn invocation(&mut self) -> Value {
        let u32_ = Some(Type::one(Scalar::U32));
        let (group, lane) =
            (self.inst(Op::GroupId, Attr::None, &[], u32_), self.inst(Op::LocalId, Attr::None, &[], u32_));
        let size = self.constant(Scalar::U32.into(), WORKGROUP);
        let first = self.inst(Op::IMul, Attr::None, &[group, size], u32_);
        self.inst(Op::IAdd, Attr::None, &[first, lane], u32_)
    }

    /// Bools are kept as u32.
    fn object(&mut self, name: &str, ty: Type, space: Space) -> ObjectId {
        let elem = if ty.scalar == Scalar::Bool { Scalar::U32 } else { ty.scalar };
        self.kernel.objects.push(Object { name: name.to_owned(), elem, space });
        ObjectId(self.kernel.objects.len() as u32 - 1)
    }

    fn at(&mut self, i: Value, ty: Type) -> Value {
        let width = self.constant(Scalar::U32.into(), ty.width.into());
        self.inst(Op::IMul, Attr::None, &[i, width], Some(Scalar::U32.into()))
    }

    fn load(&mut self, object: ObjectId, i: Value, ty: Type) -> Value {
        let at = self.at(i, ty);
        if ty.scalar != Scalar::Bool {
            return self.inst(Op::Load, Attr::Object(object), &[at], Some(ty));
        }
        let word = self.inst(Op::Load, Attr::Object(object), &[at], Some(ty.with(Scalar::U32)));
        let zero = self.constant(ty.with(Scalar::U32), 0);
        self.inst(Op::ILt, Attr::None, &[zero, word], Some(ty))
    }

    fn store(&mut self, object: ObjectId, i: Value, value: Value, ty: Type) {
        let at = self.at(i, ty);
        let mut value = value;
        if ty.scalar == Scalar::Bool {
            let words = ty.with(Scalar::U32);
            let (one, zero) = (self.constant(words, 1), self.constant(words, 0));
            value = self.inst(Op::Select, Attr::None, &[value, one, zero], Some(words));
        }
        self.inst(Op::Store, Attr::Object(object), &[at, value], None);
    }
}

const STORED: [Scalar; 5] = [Scalar::U32, Scalar::I32, Scalar::F32, Scalar::I8x4, Scalar::U8x4];

fn from_text(op: Op, text: &str) -> Case {
    let kernel = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let buffers = kernel.objects.iter().filter_map(|object| match object.space {
        Space::Shared { .. } => None,
        Space::Write => Some(Contents::Output),
        Space::Read | Space::ReadWrite if object.elem == Scalar::F32 => Some(Contents::Floats),
        Space::Read | Space::ReadWrite => Some(Contents::Words),
    });
    let buffers = buffers.collect();
    Case { op, text: text.to_owned(), kernel, buffers, params: vec![] }
}

/// Kernels of operations that touch memory or wait; none for those that the table tells all of.
fn by_hand(op: Op) -> Vec<String> {
    match op {
        Op::Load | Op::LoadStream | Op::Store => STORED
            .iter()
            .flat_map(|&elem| Type::WIDTHS.map(|width| Type { scalar: elem, width }))
            .flat_map(|ty| accesses(op, ty))
            .collect(),
        Op::Barrier => vec![barriers()],
        Op::CopyAsync | Op::CopyCommit | Op::CopyWait => vec![copies()],
        _ => vec![],
    }
}

/// The beginning of a kernel: `%i` is the number of the invocation.
fn head(objects: &str) -> String {
    format!(
        "kernel case workgroup {WORKGROUP} {{\n{objects}\n%g = group_id\n%lane = local_id\n\
         %size = const.u32 {WORKGROUP}\n%first = imul %g, %size\n%i = iadd %first, %lane\n"
    )
}

/// A vector from a buffer and to one; and through shared memory, written as vectors and read as words and the other way.
fn accesses(op: Op, ty: Type) -> Vec<String> {
    let (elem, width, load) = (ty.scalar.name(), ty.width, op.row().mnemonic);
    if op == Op::LoadStream {
        return vec![format!(
            "{}%w = const.u32 {width}\n%at = imul %i, %w\n%v = {load}.{ty} x[%at]\nstore y[%at], %v\n}}",
            head(&format!("read x: {elem}\nwrite y: {elem}"))
        )];
    }
    let space = if op == Op::Load { "read" } else { "readwrite" };
    let len = WORKGROUP * u32::from(width);
    vec![
        format!(
            "{}%w = const.u32 {width}\n%at = imul %i, %w\n%v = load.{ty} x[%at]\nstore y[%at], %v\n}}",
            head(&format!("{space} x: {elem}\nwrite y: {elem}"))
        ),
        format!(
            "{}%w = const.u32 {width}\n%at = imul %i, %w\n%v = load.{ty} x[%at]\n%in = imul %lane, %w\n\
             store s[%in], %v\nbarrier\n%r = load.{elem} s[%lane]\nstore y[%i], %r\n\
             store t[%lane], %r\nbarrier\n%zero = const.u32 0\n%q = load.{ty} t[%zero]\n\
             %u = load.{ty} s[%in]\nstore z[%at], %u\nstore q[%at], %q\n}}",
            head(&format!(
                "{space} x: {elem}\nwrite y: {elem}\nwrite z: {elem}\nwrite q: {elem}\nshared s: {elem}[{len}]\n\
                 shared t: {elem}[{WORKGROUP}]"
            ))
        ),
    ]
}

/// What others wrote before a barrier, to a buffer and to shared memory, in a loop.
fn barriers() -> String {
    format!(
        "{}%63 = const.u32 63\n%other = isub %63, %lane\n%far = iadd %first, %other\n%a = load.u32 x[%i]\n\
         %0 = const.u32 0\n%5 = const.u32 5\n\
         %e = loop %j = %0 to %5 step 1 carry %c = %a {{\nstore s[%lane], %c\nstore y[%i], %c\nbarrier\n\
         %d = load.u32 s[%other]\n%f = load.u32 y[%far]\n%h = iadd %d, %f\nbarrier\nyield %h\n}}\n\
         store y[%i], %e\n}}",
        head(&format!("read x: u32\nreadwrite y: u32\nshared s: u32[{WORKGROUP}]"))
    )
}

fn copies() -> String {
    let len = 4 * WORKGROUP;
    format!(
        "{}%4 = const.u32 4\n%to = imul %lane, %4\n%from = imul %i, %4\ncopy_async s[%to], x[%from]\ncopy_commit\n\
         copy_wait 0\nbarrier\n%63 = const.u32 63\n%other = isub %63, %lane\n%v = load.u32 s[%other]\n\
         store y[%i], %v\n}}",
        head(&format!("read x: u32\nwrite y: u32\nshared s: u32[{len}]"))
    )
}
