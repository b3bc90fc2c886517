//! Operations of a kernel by themselves, and by twos.

use std::collections::{HashMap, HashSet};

use unisonic_core::kir::interp::Launch;
use unisonic_core::kir::kernel::{Attr, Block, Inst, Kernel, Object, ObjectId, Space, Stmt, Value};
use unisonic_core::kir::{Op, Scalar, Type};

use super::shrink::drop_unused;
use super::trace::{Site, is_tried, makers, sites};
use super::{Failing, LaunchData, Trial};
use crate::rewrite::{renumbered, rewrite};

/// Invocations of a workgroup that fails, at most.
const WORKGROUP: u32 = 64;
/// The number of an invocation in the launch.
const ID: Value = Value(4);

/// The first operation, or two, that fail alone.
pub fn reduce(trial: &mut Trial<'_>, kernel: &Kernel, launch: &Launch) -> Option<Failing> {
    let (sites, makers) = (sites(kernel, launch), makers(kernel));
    let mut tried = HashSet::new();
    for pairs in [false, true] {
        for site in &sites {
            // Where nothing but operands tells two operations apart, a few of them are tried.
            for partner in partners(site, &makers, pairs) {
                let shape = shape(kernel, &site.inst, partner);
                let count = (0..3).find(|&count| tried.insert((shape.clone(), count)));
                if count.is_none() {
                    continue;
                }
                for constants in [true, false] {
                    let Some((small, data)) = alone(kernel, site, partner, &makers, constants) else {
                        continue;
                    };
                    if let Some(failing) = trial.fails(&small, &data) {
                        let operations = 1 + usize::from(partner.is_some());
                        return Some(Failing { operations, ..first_workgroup(trial, failing) });
                    }
                }
            }
        }
    }
    None
}

/// With what an operation is tried: by itself, or with one that makes an operand.
fn partners<'a>(site: &Site, makers: &'a HashMap<Value, Inst>, pairs: bool) -> Vec<Option<&'a Inst>> {
    if !pairs {
        return vec![None];
    }
    let of_operands = site.inst.operands.iter().filter_map(|operand| makers.get(operand));
    of_operands.filter(|maker| is_tried(maker.op)).map(Some).collect()
}

/// All that tells operations apart but operands.
fn shape(kernel: &Kernel, inst: &Inst, partner: Option<&Inst>) -> String {
    let of = |inst: &Inst| {
        let types: Vec<String> =
            inst.operands.iter().chain(&inst.result).map(|v| kernel.types[v.index()].to_string()).collect();
        format!("{} {:?} {}", inst.op.row().mnemonic, inst.attr, types.join(" "))
    };
    let at = partner.map(|partner| {
        let at = inst.operands.iter().position(|operand| Some(*operand) == partner.result);
        format!(" of {} at {at:?}", of(partner))
    });
    of(inst) + &at.unwrap_or_default()
}

/// A kernel that loads operands, applies an operation and stores the result. `constants` stay constants.
fn alone(
    kernel: &Kernel,
    site: &Site,
    partner: Option<&Inst>,
    makers: &HashMap<Value, Inst>,
    constants: bool,
) -> Option<(Kernel, LaunchData)> {
    let workgroup = if kernel.workgroup.is_multiple_of(WORKGROUP) { WORKGROUP } else { kernel.workgroup };
    let mut writer = Writer::new(&site.inst, workgroup);
    let constant = |value: Value| match makers.get(&value) {
        Some(Inst { op: Op::Const, attr: Attr::Word(word), .. }) if constants => Some(*word),
        _ => None,
    };
    let mut has_constant = false;
    let mut operand = |writer: &mut Writer, value: Value, words: Vec<u32>| {
        let ty = kernel.types[value.index()];
        has_constant |= constant(value).is_some();
        match constant(value) {
            Some(word) => writer.push(Op::Const, Attr::Word(word), &[], ty),
            None => writer.load(ty, words),
        }
    };
    // Of all executions, one after the other.
    let words = |number: usize| site.executions.iter().flat_map(|x| x[number].clone()).collect::<Vec<u32>>();
    let mut operands = vec![];
    for (number, &value) in site.inst.operands.iter().enumerate() {
        let made = match partner.filter(|partner| partner.result == Some(value)) {
            Some(partner) => {
                let of_maker = |number: usize| {
                    let all = site.makers.iter().map(|makers| Some(makers.get(&value)?.get(number)?.clone()));
                    all.collect::<Option<Vec<_>>>().map(|all| all.concat())
                };
                let mut inner = vec![];
                for (number, &value) in partner.operands.iter().enumerate() {
                    inner.push(operand(&mut writer, value, of_maker(number)?));
                }
                writer.push(partner.op, partner.attr, &inner, kernel.types[value.index()])
            }
            None => operand(&mut writer, value, words(number)),
        };
        operands.push(made);
    }
    if constants && !has_constant {
        return None;
    }
    let result = site.inst.result?;
    let made = writer.push(site.inst.op, site.inst.attr, &operands, kernel.types[result.index()]);
    writer.store(made);
    writer.finish()
}

/// Writes a kernel as data.
struct Writer {
    kernel: Kernel,
    buffers: Vec<Vec<u32>>,
    /// Words that an invocation loads of each buffer.
    widths: Vec<usize>,
}

impl Writer {
    fn new(inst: &Inst, workgroup: u32) -> Self {
        let kernel = Kernel {
            name: format!("alone_{}", inst.op.row().mnemonic),
            workgroup,
            resident: None,
            params: vec![],
            objects: vec![],
            types: vec![],
            body: Block::default(),
        };
        let mut writer = Self { kernel, buffers: vec![], widths: vec![] };
        let one = Type::one(Scalar::U32);
        let group = writer.push(Op::GroupId, Attr::None, &[], one);
        let size = writer.push(Op::Const, Attr::Word(workgroup), &[], one);
        let first = writer.push(Op::IMul, Attr::None, &[group, size], one);
        let local = writer.push(Op::LocalId, Attr::None, &[], one);
        let id = writer.push(Op::IAdd, Attr::None, &[first, local], one);
        debug_assert_eq!(id, ID);
        writer
    }

    fn push(&mut self, op: Op, attr: Attr, operands: &[Value], ty: Type) -> Value {
        self.kernel.types.push(ty);
        let result = Value(self.kernel.types.len() as u32 - 1);
        let inst = Inst { op, attr, operands: operands.to_vec(), result: Some(result) };
        self.kernel.body.stmts.push(Stmt::Inst(inst));
        result
    }

    fn object(&mut self, elem: Scalar, space: Space) -> ObjectId {
        let number = self.kernel.objects.len();
        let name = if space == Space::Read { format!("in{number}") } else { "out".to_owned() };
        self.kernel.objects.push(Object { name, elem, space });
        ObjectId(number as u32)
    }

    /// The index of an invocation's words.
    fn at(&mut self, width: u8) -> Value {
        let one = Type::one(Scalar::U32);
        match width {
            1 => ID,
            width => {
                let words = self.push(Op::Const, Attr::Word(width.into()), &[], one);
                self.push(Op::IMul, Attr::None, &[ID, words], one)
            }
        }
    }

    fn load(&mut self, ty: Type, words: Vec<u32>) -> Value {
        let stored = if ty.scalar == Scalar::Bool { ty.with(Scalar::U32) } else { ty };
        let object = self.object(stored.scalar, Space::Read);
        self.buffers.push(words);
        self.widths.push(ty.width.into());
        let at = self.at(ty.width);
        let loaded = self.push(Op::Load, Attr::Object(object), &[at], stored);
        if ty.scalar != Scalar::Bool {
            return loaded;
        }
        let zero = self.push(Op::Const, Attr::Word(0), &[], stored);
        self.push(Op::ILt, Attr::None, &[zero, loaded], ty)
    }

    fn store(&mut self, value: Value) {
        let ty = self.kernel.types[value.index()];
        let mut value = value;
        if ty.scalar == Scalar::Bool {
            let words = ty.with(Scalar::U32);
            let [one, zero] = [1, 0].map(|word| self.push(Op::Const, Attr::Word(word), &[], words));
            value = self.push(Op::Select, Attr::None, &[value, one, zero], words);
        }
        let elem = self.kernel.types[value.index()].scalar;
        let object = self.object(elem, Space::Write);
        self.widths.push(ty.width.into());
        let at = self.at(ty.width);
        let inst =
            Inst { op: Op::Store, attr: Attr::Object(object), operands: vec![at, value], result: None };
        self.kernel.body.stmts.push(Stmt::Inst(inst));
    }

    /// The kernel, with as many workgroups as there are words for.
    fn finish(self) -> Option<(Kernel, LaunchData)> {
        let workgroup = self.kernel.workgroup as usize;
        let invocations =
            self.buffers.iter().zip(&self.widths).map(|(words, width)| words.len() / width).min();
        let groups = invocations? / workgroup;
        let mut buffers: Vec<Vec<u8>> = self
            .buffers
            .iter()
            .zip(&self.widths)
            .map(|(words, width)| {
                words[..groups * workgroup * width].iter().flat_map(|word| word.to_le_bytes()).collect()
            })
            .collect();
        let out_width = *self.widths.last()?;
        buffers.push(vec![0xEE; 4 * groups * workgroup * out_width]);
        (groups > 0).then(|| (self.kernel, LaunchData { groups: groups as u32, params: vec![], buffers }))
    }
}

/// Only the first workgroup that fails, if it does so alone.
fn first_workgroup(trial: &mut Trial<'_>, failing: Failing) -> Failing {
    let Failing { kernel, launch, expected, found, .. } = &failing;
    let (Ok(found), groups) = (found, launch.groups as usize) else { return failing };
    let outputs = expected.iter().zip(found).rev().find(|(expected, found)| expected != found);
    let Some((expected, found)) = outputs else { return failing };
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
    let group = at / (expected.len() / groups);
    let part = |bytes: &Vec<u8>| {
        let len = bytes.len() / groups;
        bytes[group * len..][..len].to_vec()
    };
    let one = LaunchData { groups: 1, params: vec![], buffers: launch.buffers.iter().map(part).collect() };
    // The number in the workgroup is the one in the launch.
    let mut simpler = rewrite(kernel, &mut |_, inst, stmts| {
        let (op, operands) =
            if inst.result == Some(ID) { (Op::LocalId, vec![]) } else { (inst.op, inst.operands.clone()) };
        stmts.push(Stmt::Inst(Inst { op, operands, ..inst.clone() }));
    });
    while drop_unused(&mut simpler) {}
    let simpler = renumbered(&simpler);
    let kernel = kernel.clone();
    trial.fails(&simpler, &one).or_else(|| trial.fails(&kernel, &one)).unwrap_or(failing)
}
