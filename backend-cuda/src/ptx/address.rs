//! Which part of an index is a constant that can be part of an instruction's address.
//!
//! `object[a + 128]` and `object[a + 256]` need one 64-bit address and two offsets, if `a + 256` does not
//! wrap: the address of element `(a + 128) mod 2^32` is that of element a and 512 bytes only then. So every
//! integer value is written as a sum of other values times constants ([`Sum`]), with bounds on these
//! ([`Bounds`]), from which [`Sum::is_whole`] proves it.

use std::collections::HashMap;

use unisonic_core::kir::kernel::{Attr, Block, Inst, Kernel, ObjectId, Stmt, Value};
use unisonic_core::kir::{Op, Scalar};

/// Summands of a sum that is followed; longer ones count as a value of their own.
const MAX_TERMS: usize = 4;
/// Elements that an offset can be: what fits into an instruction on all targets.
const OFFSET_END: u32 = 1 << 21;

/// What is known of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    /// It is at most this.
    max: u32,
    /// So many of its low bits are 0; 32 of zero.
    zeros: u32,
}

impl Bounds {
    const NONE: Bounds = Bounds { max: u32::MAX, zeros: 0 };

    /// Of a value that is one of two.
    fn either(self, other: Bounds) -> Bounds {
        Bounds { max: self.max.max(other.max), zeros: self.zeros.min(other.zeros) }
    }

    fn at_most(max: u32) -> Bounds {
        Bounds { max, zeros: 0 }
    }
}

/// The values of a sum, each with its factor, in the order of their numbers. Products and sum are modulo
/// 2^32.
pub type Terms = Vec<(Value, u32)>;

/// `constant + sum of factor * value`, modulo 2^32.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sum {
    terms: Terms,
    constant: u32,
}

impl Sum {
    fn constant(constant: u32) -> Self {
        Self { terms: vec![], constant }
    }

    fn value(value: Value) -> Self {
        Self { terms: vec![(value, 1)], constant: 0 }
    }

    fn plus(&self, other: &Sum) -> Self {
        let mut terms = self.terms.clone();
        for &(value, factor) in &other.terms {
            match terms.binary_search_by_key(&value, |term| term.0) {
                Ok(at) => terms[at].1 = terms[at].1.wrapping_add(factor),
                Err(at) => terms.insert(at, (value, factor)),
            }
        }
        terms.retain(|term| term.1 != 0);
        Self { terms, constant: self.constant.wrapping_add(other.constant) }
    }

    fn times(&self, factor: u32) -> Self {
        let scaled = self.terms.iter().map(|&(value, of)| (value, of.wrapping_mul(factor)));
        let terms = scaled.filter(|term| term.1 != 0).collect();
        Self { terms, constant: self.constant.wrapping_mul(factor) }
    }

    /// Whether adding the constant to the terms' sum modulo 2^32 never wraps.
    ///
    /// For a k: terms that are multiples of 2^k sum to a multiple of 2^k below 2^32, so at most 2^32 - 2^k;
    /// if the others and the constant stay below 2^k, nothing wraps.
    fn is_whole(&self, bounds: &[Bounds]) -> bool {
        (0..=32).any(|k| {
            let small = self
                .terms
                .iter()
                .filter(|&&(value, factor)| bounds[value.index()].zeros + factor.trailing_zeros() < k);
            let largest =
                small.map(|&(value, factor)| u128::from(bounds[value.index()].max) * u128::from(factor));
            largest.sum::<u128>() + u128::from(self.constant) < 1 << k
        })
    }
}

/// The indices of a kernel.
pub struct Addresses {
    sums: Vec<Sum>,
    bounds: Vec<Bounds>,
    /// How often an object is accessed at the same terms.
    uses: HashMap<(ObjectId, Terms), u32>,
}

impl Addresses {
    /// Looks at all values of a kernel.
    pub fn new(kernel: &Kernel) -> Self {
        let sums = (0..kernel.types.len() as u32).map(|number| Sum::value(Value(number))).collect();
        let mut addresses =
            Self { sums, bounds: vec![Bounds::NONE; kernel.types.len()], uses: HashMap::new() };
        addresses.block(kernel, &kernel.body);
        addresses
    }

    /// An index as terms and an offset in elements: the terms modulo 2^32 and the offset are the index,
    /// without wrapping. None for indices that cannot be taken apart so, or where nobody else has the same
    /// terms.
    pub fn split(&self, id: ObjectId, index: Value) -> Option<(Terms, u32)> {
        let (terms, offset) = self.parts(index)?;
        let is_shared = self.uses.get(&(id, terms.clone())).is_some_and(|&count| count > 1);
        is_shared.then_some((terms, offset))
    }

    fn parts(&self, index: Value) -> Option<(Terms, u32)> {
        let sum = &self.sums[index.index()];
        let holds = !sum.terms.is_empty() && sum.constant < OFFSET_END && sum.is_whole(&self.bounds);
        holds.then(|| (sum.terms.clone(), sum.constant))
    }

    /// The terms of a value that is their sum without an offset.
    pub fn terms(&self, value: Value) -> Option<&Terms> {
        let sum = &self.sums[value.index()];
        (sum.constant == 0 && sum.terms != [(value, 1)]).then_some(&sum.terms)
    }

    fn block(&mut self, kernel: &Kernel, block: &Block) {
        for stmt in &block.stmts {
            match stmt {
                Stmt::Inst(inst) => self.inst(kernel, inst),
                Stmt::If { then, otherwise, results, .. } => {
                    self.block(kernel, then);
                    self.block(kernel, otherwise);
                    for (number, result) in results.iter().enumerate() {
                        let [a, b] = [then, otherwise].map(|block| self.of(block.yields[number]));
                        self.bounds[result.index()] = a.either(b);
                    }
                }
                Stmt::Loop { index, start, end, step, body, .. } => {
                    let (start, end) = (self.of(*start), self.of(*end));
                    let zeros = start.zeros.min(step.trailing_zeros());
                    self.bounds[index.index()] = Bounds { max: end.max.saturating_sub(1), zeros };
                    self.block(kernel, body);
                }
            }
        }
    }

    fn inst(&mut self, kernel: &Kernel, inst: &Inst) {
        match (inst.op, inst.attr) {
            (Op::Load | Op::LoadStream | Op::Store, Attr::Object(id)) => self.count(id, inst.operands[0]),
            (Op::CopyAsync, Attr::Copy { to, from }) => {
                self.count(to, inst.operands[0]);
                self.count(from, inst.operands[1]);
            }
            _ => {}
        }
        let Some(result) = inst.result else { return };
        let ty = kernel.types[result.index()];
        if ty.width != 1 || !matches!(ty.scalar, Scalar::U32 | Scalar::I32) {
            return;
        }
        if let Some(sum) = self.sum(inst).filter(|sum| sum.terms.len() <= MAX_TERMS) {
            self.sums[result.index()] = sum;
        }
        self.bounds[result.index()] = self.bounds(kernel, inst);
    }

    fn count(&mut self, id: ObjectId, index: Value) {
        if let Some((terms, _)) = self.parts(index) {
            *self.uses.entry((id, terms)).or_default() += 1;
        }
    }

    fn of(&self, value: Value) -> Bounds {
        self.bounds[value.index()]
    }

    /// The word of a value that is a constant.
    fn constant(&self, value: Value) -> Option<u32> {
        let sum = &self.sums[value.index()];
        sum.terms.is_empty().then_some(sum.constant)
    }

    fn sum(&self, inst: &Inst) -> Option<Sum> {
        let of = |number: usize| &self.sums[inst.operands[number].index()];
        let constant = |number: usize| self.constant(inst.operands[number]);
        match (inst.op, inst.attr) {
            (Op::Const, Attr::Word(word)) => Some(Sum::constant(word)),
            (Op::IAdd, _) => Some(of(0).plus(of(1))),
            (Op::ISub, _) => Some(of(0).plus(&of(1).times(u32::MAX))),
            (Op::IMul, _) => match (constant(0), constant(1)) {
                (_, Some(factor)) => Some(of(0).times(factor)),
                (Some(factor), _) => Some(of(1).times(factor)),
                _ => None,
            },
            (Op::Shl, _) => Some(of(0).times(1_u32.checked_shl(constant(1)?)?)),
            // Bits of both that never meet are added.
            (Op::Or | Op::Xor, _) => {
                let [a, b] = [0, 1].map(|number| self.of(inst.operands[number]));
                let apart = |low: Bounds, high: Bounds| u64::from(low.max) < 1 << high.zeros;
                (apart(a, b) || apart(b, a)).then(|| of(0).plus(of(1)))
            }
            (Op::Cast, _) => Some(of(0).clone()),
            _ => None,
        }
    }

    fn bounds(&self, kernel: &Kernel, inst: &Inst) -> Bounds {
        let of = |number: usize| inst.operands.get(number).map_or(Bounds::NONE, |&value| self.of(value));
        let (a, b) = (of(0), of(1));
        let constant = |number: usize| inst.operands.get(number).and_then(|&value| self.constant(value));
        let fits = |max: u64| u32::try_from(max).unwrap_or(u32::MAX);
        let scalar = inst.operands.first().map(|operand| kernel.types[operand.index()].scalar);
        let is_signed = scalar == Some(Scalar::I32);
        let (max_a, max_b) = (u64::from(a.max), u64::from(b.max));
        match (inst.op, inst.attr) {
            (Op::Const, Attr::Word(word)) => Bounds { max: word, zeros: word.trailing_zeros() },
            (Op::LocalId, _) => Bounds::at_most(kernel.workgroup - 1),
            (Op::IAdd, _) => Bounds { max: fits(max_a + max_b), zeros: a.zeros.min(b.zeros) },
            (Op::ISub, _) => {
                let no_wrap = constant(0).filter(|&from| from >= b.max);
                Bounds { max: no_wrap.unwrap_or(u32::MAX), zeros: a.zeros.min(b.zeros) }
            }
            (Op::IMul, _) => Bounds { max: fits(max_a * max_b), zeros: (a.zeros + b.zeros).min(32) },
            (Op::UDiv, _) => {
                let quotient = constant(1).and_then(|divisor| a.max.checked_div(divisor));
                Bounds::at_most(quotient.unwrap_or(a.max))
            }
            (Op::URem, _) => {
                let divided = constant(1).filter(|divisor| divisor.is_power_of_two());
                let zeros = divided.map_or(0, |divisor| a.zeros.min(divisor.trailing_zeros()));
                Bounds { max: a.max.min(b.max.saturating_sub(1)), zeros }
            }
            (Op::IMin, _) if !is_signed => Bounds { max: a.max.min(b.max), zeros: a.zeros.min(b.zeros) },
            (Op::IMax, _) if !is_signed => a.either(b),
            (Op::And, _) => Bounds { max: a.max.min(b.max), zeros: a.zeros.max(b.zeros) },
            (Op::Or | Op::Xor, _) => {
                let bits = u32::BITS - (a.max | b.max).leading_zeros();
                Bounds { max: fits((1_u64 << bits) - 1), zeros: a.zeros.min(b.zeros) }
            }
            (Op::Shl, _) => match constant(1) {
                Some(by @ 0..32) => Bounds { max: fits(max_a << by), zeros: (a.zeros + by).min(32) },
                _ => Bounds { zeros: a.zeros, ..Bounds::NONE },
            },
            (Op::Shr, _) if !is_signed => match constant(1) {
                Some(by @ 0..32) => Bounds { max: a.max >> by, zeros: a.zeros.saturating_sub(by) },
                _ => Bounds::at_most(a.max),
            },
            (Op::Select, _) => b.either(of(2)),
            (Op::Cast, _) => a,
            (Op::Byte, _) if scalar == Some(Scalar::U8x4) => Bounds::at_most(255),
            _ => Bounds::NONE,
        }
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
