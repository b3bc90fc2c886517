//! Bytes chosen from two words: a permutation is as few shifts, masks and unions as its selector allows.

use spirv::{Op, Word};
use unisonic_core::kir::kernel::{Attr, Inst};
use unisonic_core::kir::{Scalar, Type};

use super::Emitter;

impl Emitter<'_> {
    pub(super) fn permute(&mut self, inst: &Inst) -> Word {
        let Attr::Selector(selector) = inst.attr else { unreachable!("a permutation has a selector") };
        let known = [0, 1].map(|number| self.constants.get(&inst.operands[number]).copied());
        let words = [0, 1].map(|number| self.operand(inst, number));
        let plan = Plan::new(selector, known, words[0] == words[1]);
        self.run_plan(&plan, words)
    }

    /// All four bytes at a time, as vectors: which word each comes from, where in it, and where to.
    pub(super) fn permute_by(&mut self, inst: &Inst) -> Word {
        let known = [0, 1].map(|number| self.constants.get(&inst.operands[number]).copied());
        let [a, b, selector] = [0, 1, 2].map(|number| self.operand(inst, number));
        if let Some(selector) = self.constants.get(&inst.operands[2]) {
            return self.run_plan(&Plan::new((selector & 0x7777) as u16, known, a == b), [a, b]);
        }
        let four = Type { scalar: Scalar::U32, width: 4 };
        let (u32_, u32x4, boolx4) =
            (self.u32_ty(), self.spirv_ty(four), self.spirv_ty(four.with(Scalar::Bool)));
        let bits_a_byte = self.u32_constant(3);
        let bits = self.push(Op::ShiftLeftLogical, u32_, &[selector, bits_a_byte]);
        let [a, b, selector, bits] =
            [a, b, selector, bits].map(|word| self.push(Op::CompositeConstruct, u32x4, &[word; 4]));
        // Bit 2 of each digit says whether it is a byte of b.
        let (bit_of_b, zero) = (self.constants_of([0x4, 0x40, 0x400, 0x4000]), self.constant(four, 0));
        let is_of_b = self.push(Op::BitwiseAnd, u32x4, &[selector, bit_of_b]);
        let is_of_b = self.push(Op::INotEqual, boolx4, &[is_of_b, zero]);
        let words = self.push(Op::Select, u32x4, &[is_of_b, b, a]);
        // Bits 0 and 1 say how many bytes lie below it.
        let (by_digit, below) = (self.constants_of([0, 4, 8, 12]), self.constant(four, 3 << 3));
        let bits = self.push(Op::ShiftRightLogical, u32x4, &[bits, by_digit]);
        let bits = self.push(Op::BitwiseAnd, u32x4, &[bits, below]);
        let bytes = self.push(Op::ShiftRightLogical, u32x4, &[words, bits]);
        // What is above a byte is written over by the next.
        let mut union = self.extract(u32_, bytes, 0);
        let len = self.u32_constant(8);
        for place in 1..4 {
            let (byte, offset) = (self.extract(u32_, bytes, place), self.u32_constant(8 * place));
            union = self.push(Op::BitFieldInsert, u32_, &[union, byte, offset, len]);
        }
        union
    }

    fn run_plan(&mut self, plan: &Plan, words: [Word; 2]) -> Word {
        let u32_ = self.u32_ty();
        if let Some((word, byte)) = plan.splat {
            let (offset, len) = (self.u32_constant(8 * byte), self.u32_constant(8));
            let byte = self.push(Op::BitFieldUExtract, u32_, &[words[word], offset, len]);
            let ones = self.u32_constant(0x0101_0101);
            return self.push(Op::IMul, u32_, &[byte, ones]);
        }
        let mut union = None;
        for term in &plan.terms {
            let mut bytes = words[term.word];
            if term.by_bytes != 0 {
                let op = if term.by_bytes > 0 { Op::ShiftLeftLogical } else { Op::ShiftRightLogical };
                let amount = self.u32_constant(8 * term.by_bytes.unsigned_abs());
                bytes = self.push(op, u32_, &[bytes, amount]);
            }
            if term.mask != term.shifted_in() {
                let mask = self.u32_constant(term.mask);
                bytes = self.push(Op::BitwiseAnd, u32_, &[bytes, mask]);
            }
            union = Some(match union {
                Some(union) => self.push(Op::BitwiseOr, u32_, &[union, bytes]),
                None => bytes,
            });
        }
        let constant = self.u32_constant(plan.constant);
        match union {
            Some(union) if plan.constant == 0 => union,
            Some(union) => self.push(Op::BitwiseOr, u32_, &[union, constant]),
            None => constant,
        }
    }
}

/// The union of terms and a constant, or a byte in all four places.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    splat: Option<(usize, u32)>,
    terms: Vec<Term>,
    constant: u32,
}

/// Bytes of a word that move by the same distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    word: usize,
    /// To the left where positive.
    by_bytes: i32,
    /// Which bytes of the result they are.
    mask: u32,
}

impl Term {
    /// Where the shift leaves anything but zeros.
    fn shifted_in(self) -> u32 {
        let bits = 8 * self.by_bytes.unsigned_abs();
        if self.by_bytes < 0 { u32::MAX >> bits } else { u32::MAX << bits }
    }
}

impl Plan {
    /// `known` has the words that are constants, and `is_one` says that both words are the same.
    fn new(selector: u16, known: [Option<u32>; 2], is_one: bool) -> Self {
        let digits = [0, 1, 2, 3].map(|place| usize::from(selector >> (4 * place) & 7));
        let chosen = digits.map(|digit| (if is_one { 0 } else { digit / 4 }, digit as u32 % 4));
        let mut plan = Plan::default();
        if chosen.iter().all(|&byte| byte == chosen[0]) && known[chosen[0].0].is_none() {
            plan.splat = Some(chosen[0]);
            return plan;
        }
        for (place, (word, byte)) in (0..4_u32).zip(chosen) {
            if let Some(known) = known[word] {
                plan.constant |= (known >> (8 * byte) & 0xFF) << (8 * place);
                continue;
            }
            let (by_bytes, mask) = (place as i32 - byte as i32, 0xFF << (8 * place));
            match plan.terms.iter_mut().find(|term| (term.word, term.by_bytes) == (word, by_bytes)) {
                Some(term) => term.mask |= mask,
                None => plan.terms.push(Term { word, by_bytes, mask }),
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Plan {
        fn apply(&self, words: [u32; 2]) -> u32 {
            if let Some((word, byte)) = self.splat {
                return (words[word] >> (8 * byte) & 0xFF) * 0x0101_0101;
            }
            self.terms.iter().fold(self.constant, |union, term| {
                let bits = 8 * term.by_bytes.unsigned_abs();
                let word = words[term.word];
                union | (if term.by_bytes < 0 { word >> bits } else { word << bits }) & term.mask
            })
        }
    }

    /// All selectors, with each word known or not.
    #[test]
    fn plans_choose_the_bytes() {
        let words = [0x8765_4321_u32, 0xFEDC_BA98];
        let bytes: Vec<u32> = words.iter().flat_map(|word| word.to_le_bytes()).map(u32::from).collect();
        for digits in 0..0x1000_u16 {
            let selector = (0..4).fold(0, |s, i| s | (digits >> (3 * i) & 7) << (4 * i));
            let byte = |i: u16| bytes[usize::from(selector >> (4 * i) & 7)] << (8 * i);
            let expected = byte(0) | byte(1) | byte(2) | byte(3);
            for known in 0..4 {
                let known = [0, 1].map(|word| (known >> word & 1 == 1).then_some(words[word]));
                assert_eq!(Plan::new(selector, known, false).apply(words), expected, "{selector:x}");
            }
            let one = [words[0]; 2];
            let byte = |i: u16| bytes[usize::from(selector >> (4 * i) & 3)] << (8 * i);
            let expected = byte(0) | byte(1) | byte(2) | byte(3);
            assert_eq!(Plan::new(selector, [None; 2], true).apply(one), expected, "{selector:x}");
        }
    }

    #[test]
    fn shifts_are_shifts() {
        let zero = [None, Some(0)];
        let right = Plan::new(0x4432, zero, false);
        assert_eq!(right.terms, [Term { word: 0, by_bytes: -2, mask: 0xFFFF }]);
        assert_eq!(right.terms[0].mask, right.terms[0].shifted_in());
        assert_eq!(right.constant, 0);
        let same = Plan::new(0x3210, [None; 2], false);
        assert_eq!(same.terms, [Term { word: 0, by_bytes: 0, mask: u32::MAX }]);
        let funnel = Plan::new(0x4321, [None; 2], false);
        assert_eq!(funnel.terms.len(), 2);
        assert!(funnel.terms.iter().all(|term| term.mask == term.shifted_in()));
    }
}
