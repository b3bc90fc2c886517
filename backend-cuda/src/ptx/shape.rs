//! Vectors and packed bytes. What only renames words emits nothing.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::{Attr, Inst};

use super::alu::define;
use super::emitter::{Emitter, View};
use super::registers::{File, Word};

/// `vec2`, `vec4`.
pub fn vector(e: &mut Emitter<'_>, inst: &Inst) {
    let Some(result) = inst.result else { return };
    e.rename(result, inst.operands.iter().map(|&part| e.word(part, 0)).collect());
}

/// `part`.
pub fn part(e: &mut Emitter<'_>, inst: &Inst) {
    let (Some(result), Attr::Index(index)) = (inst.result, inst.attr) else { return };
    e.rename(result, vec![e.word(inst.operands[0], index as usize)]);
}

/// `byte`: its digit, and above it the sign of the same byte (digits 8 to 11) or bytes of zero (4 to 7, the
/// other operand).
pub fn byte(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Index(index) = inst.attr else { return };
    let high = if e.operand_scalar(inst, 0) == Scalar::I8x4 { 8 + index } else { 4 };
    let selector = high * 0x1110 + index;
    for register in define(e, inst) {
        let word = e.text(e.word(inst.operands[0], 0), View::Unsigned);
        e.line(format_args!("prmt.b32 {register}, {word}, 0, {selector:#06x};"));
    }
}

/// `half`: the word in two, and the one that is asked for converted, which is exact.
pub fn half(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Index(index) = inst.attr else { return };
    for register in define(e, inst) {
        let word = e.word(inst.operands[0], 0);
        let word = e.register(word);
        let (low, high) = (e.temporary(File::Half), e.temporary(File::Half));
        e.line(format_args!("mov.b32 {{{low}, {high}}}, {word};"));
        let half = if index == 0 { low } else { high };
        e.line(format_args!("cvt.f32.f16 {register}, {half};"));
    }
}

/// `permute_by`: bit 3 of a digit would replicate a sign.
pub fn permute_by(e: &mut Emitter<'_>, inst: &Inst) {
    for register in define(e, inst) {
        let [a, b, selector] =
            [0, 1, 2].map(|operand| e.text(e.word(inst.operands[operand], 0), View::Unsigned));
        let digits = e.temporary(File::Temporary);
        e.line(format_args!("and.b32 {digits}, {selector}, 0x7777;"));
        e.line(format_args!("prmt.b32 {register}, {a}, {b}, {digits};"));
    }
}

/// `permute`: PTX numbers the bytes as the table does.
pub fn permute(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Selector(selector) = inst.attr else { return };
    for register in define(e, inst) {
        let [a, b] = [0, 1].map(|operand| e.text(e.word(inst.operands[operand], 0), View::Unsigned));
        e.line(format_args!("prmt.b32 {register}, {a}, {b}, {selector:#06x};"));
    }
}

/// `pack`: two pairs of low bytes, then the pairs.
pub fn pack(e: &mut Emitter<'_>, inst: &Inst) {
    for register in define(e, inst) {
        let parts: Vec<Word> = inst.operands.iter().map(|&part| e.word(part, 0)).collect();
        let pairs: Vec<_> = parts
            .chunks(2)
            .map(|pair| {
                let to = e.temporary(File::Temporary);
                let (a, b) = (e.text(pair[0], View::Unsigned), e.text(pair[1], View::Unsigned));
                e.line(format_args!("prmt.b32 {to}, {a}, {b}, 0x0040;"));
                to
            })
            .collect();
        e.line(format_args!("prmt.b32 {register}, {}, {}, 0x5410;", pairs[0], pairs[1]));
    }
}
