//! Faults that are planted: a kernel is changed before it is emitted, as if a compiler had a fault. Each has to be found on any
//! device, or the tool is worth nothing.

use std::collections::HashMap;

use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::kernel::{Attr, Block, Inst, Kernel, Space, Stmt, Value};
use unisonic_core::kir::{Op, Scalar};
use unisonic_gpu::machine::MachineError;

use crate::kernels::{Code, Facts, Kernels, Shaders};
use crate::rewrite::{Types, rewrite};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Exchanges give the value of the invocation beside the right one.
    WrongLane,
    /// A product that is added is not rounded first.
    FusedMultiplyAdd,
    /// Barriers are left out.
    DroppedBarrier,
    /// Sums are one unit in the last place too far from 0.
    AddByOneUlp,
    /// Loads of shared memory forget what is added to their index.
    IgnoredOffset,
}

impl Planted {
    /// All.
    pub const ALL: [Planted; 5] = [
        Planted::WrongLane,
        Planted::FusedMultiplyAdd,
        Planted::DroppedBarrier,
        Planted::AddByOneUlp,
        Planted::IgnoredOffset,
    ];

    /// As in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::WrongLane => "wrong-lane",
            Self::FusedMultiplyAdd => "fused-multiply-add",
            Self::DroppedBarrier => "dropped-barrier",
            Self::AddByOneUlp => "add-by-one-ulp",
            Self::IgnoredOffset => "ignored-offset",
        }
    }

    /// The fault of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// A kernel with the fault.
    pub fn plant(self, kernel: &Kernel) -> Kernel {
        let definitions = definitions(kernel);
        rewrite(kernel, &mut |types, inst, stmts| match self {
            Self::WrongLane => stmts.push(Stmt::Inst(wrong_lane(inst))),
            Self::FusedMultiplyAdd => fused(types, inst, &definitions, stmts),
            Self::DroppedBarrier if inst.op == Op::Barrier => {}
            Self::AddByOneUlp if inst.op == Op::FAdd => by_one_ulp(types, inst, stmts),
            Self::IgnoredOffset => stmts.push(Stmt::Inst(without_offset(kernel, inst, &definitions))),
            Self::DroppedBarrier | Self::AddByOneUlp => stmts.push(Stmt::Inst(inst.clone())),
        })
    }
}

/// The operation that makes each value.
type Definitions = HashMap<Value, Inst>;

fn definitions(kernel: &Kernel) -> Definitions {
    fn of(block: &Block, found: &mut Definitions) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => found.extend(inst.result.map(|result| (result, inst.clone()))),
                Stmt::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|b| of(b, found)),
                Stmt::Loop { body, .. } => of(body, found),
            }
        }
    }
    let mut found = HashMap::new();
    of(&kernel.body, &mut found);
    found
}

fn wrong_lane(inst: &Inst) -> Inst {
    match inst.attr {
        Attr::Cluster { width, lane } => {
            Inst { attr: Attr::Cluster { width, lane: lane ^ 1 }, ..inst.clone() }
        }
        _ => inst.clone(),
    }
}

/// The bits of the sum plus 1.
fn by_one_ulp(types: &mut Types, inst: &Inst, stmts: &mut Vec<Stmt>) {
    let Some(result) = inst.result else { return };
    let ty = types.of(result);
    let words = ty.with(Scalar::U32);
    let right = types.push(stmts, Op::FAdd, Attr::None, &inst.operands, ty);
    let bits = types.push(stmts, Op::Cast, Attr::None, &[right], words);
    let one = types.push(stmts, Op::Const, Attr::Word(1), &[], words);
    let next = types.push(stmts, Op::IAdd, Attr::None, &[bits, one], words);
    stmts.push(Stmt::Inst(Inst {
        op: Op::Cast,
        attr: Attr::None,
        operands: vec![next],
        result: Some(result),
    }));
}

/// What the product has lost by rounding is added to the sum: by Dekker's algorithm, with operations that there are.
fn fused(types: &mut Types, inst: &Inst, definitions: &Definitions, stmts: &mut Vec<Stmt>) {
    let product = |number: usize| {
        let value = *inst.operands.get(number)?;
        definitions.get(&value).filter(|of| of.op == Op::FMul).map(|of| (value, of.operands.clone()))
    };
    let is_sum = matches!(inst.op, Op::FAdd | Op::FSub);
    let found = product(0).map(|found| (0, found)).or_else(|| product(1).map(|found| (1, found)));
    let (Some((number, (product, factors))), Some(result), true) = (found, inst.result, is_sum) else {
        stmts.push(Stmt::Inst(inst.clone()));
        return;
    };
    let ty = types.of(result);
    let sum = types.push(stmts, inst.op, Attr::None, &inst.operands, ty);
    let lost = lost(types, stmts, product, [factors[0], factors[1]]);
    let op = if (inst.op, number) == (Op::FSub, 1) { Op::FSub } else { Op::FAdd };
    stmts.push(Stmt::Inst(Inst { op, attr: Attr::None, operands: vec![sum, lost], result: Some(result) }));
}

/// `a b - RN(a b)`, which is a float itself unless it is too small for one.
fn lost(types: &mut Types, stmts: &mut Vec<Stmt>, product: Value, factors: [Value; 2]) -> Value {
    /// 2^12 + 1.
    const SPLITTER: f32 = 4097.0;
    let ty = types.of(product);
    let splitter = types.push(stmts, Op::Const, Attr::Word(SPLITTER.to_bits()), &[], ty);
    let mut push = |op, a, b| types.push(stmts, op, Attr::None, &[a, b], ty);
    let [[a_high, a_low], [b_high, b_low]] = factors.map(|factor| {
        let scaled = push(Op::FMul, factor, splitter);
        let rest = push(Op::FSub, scaled, factor);
        let high = push(Op::FSub, scaled, rest);
        [high, push(Op::FSub, factor, high)]
    });
    let highs = push(Op::FMul, a_high, b_high);
    let mut sum = push(Op::FSub, highs, product);
    for (a, b) in [(a_high, b_low), (a_low, b_high), (a_low, b_low)] {
        let part = push(Op::FMul, a, b);
        sum = push(Op::FAdd, sum, part);
    }
    sum
}

fn without_offset(kernel: &Kernel, inst: &Inst, definitions: &Definitions) -> Inst {
    let (of, width) = match inst.attr {
        Attr::Object(of) if inst.op == Op::Load => {
            (of, inst.result.map_or(1, |result| u32::from(kernel.types[result.index()].width)))
        }
        Attr::Columns { of, .. } => (of, 4),
        _ => return inst.clone(),
    };
    let is_shared = matches!(kernel.objects[of.index()].space, Space::Shared { .. });
    let index = inst.operands.first().and_then(|index| definitions.get(index));
    let constant = |value: &Value| match definitions.get(value).map(|of| of.attr) {
        Some(Attr::Word(word)) => Some(word),
        _ => None,
    };
    let base = index.filter(|index| index.op == Op::IAdd && is_shared).and_then(|index| {
        let offset = constant(index.operands.get(1)?)?;
        offset.is_multiple_of(width).then(|| index.operands[0])
    });
    match base {
        Some(base) => Inst { operands: vec![base], ..inst.clone() },
        None => inst.clone(),
    }
}

/// Something that runs kernels, with a fault.
pub struct Faulty {
    inner: Box<dyn Kernels>,
    fault: Planted,
}

impl Faulty {
    /// Plants a fault.
    pub fn new(inner: Box<dyn Kernels>, fault: Planted) -> Self {
        Self { inner, fault }
    }
}

impl Kernels for Faulty {
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn run(
        &mut self,
        kernel: &Kernel,
        launch: &Launch,
        repeats: u32,
        look: &mut dyn FnMut(Vec<Vec<u8>>) -> bool,
    ) -> Result<(), MachineError> {
        self.inner.run(&self.fault.plant(kernel), launch, repeats, look)
    }

    fn code(&self, kernel: &Kernel) -> Code {
        self.inner.code(&self.fault.plant(kernel))
    }

    fn take_memory(&mut self) -> u64 {
        self.inner.take_memory()
    }

    fn shaders(&mut self) -> Option<&mut dyn Shaders> {
        self.inner.shaders()
    }
}
