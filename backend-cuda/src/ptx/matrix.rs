//! Products of matrices over a warp. The table's map of elements to invocations and words is that of PTX.

use unisonic_core::kir::kernel::Inst;

use super::alu::define;
use super::emitter::{Emitter, View};
use super::registers::Word;

/// `mma16`, `mma32`: bytes are signed, sums wrap. The sum may be a constant, the factors are in registers.
pub fn multiply(e: &mut Emitter<'_>, inst: &Inst, shape: &str) {
    let [a, b] = [0, 1].map(|operand| {
        let words = e.words(inst.operands[operand]).to_vec();
        braced(words.into_iter().map(|word| e.register(word).to_string()))
    });
    let sum = e.words(inst.operands[2]).iter().map(|&word: &Word| e.text(word, View::Signed));
    let sum = braced(sum);
    let to = braced(define(e, inst).iter().map(ToString::to_string));
    e.line(format_args!("mma.sync.aligned.{shape}.row.col.s32.s8.s8.s32 {to}, {a}, {b}, {sum};"));
}

/// A list in braces, as fragments of one word are too.
fn braced(words: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", words.collect::<Vec<_>>().join(", "))
}
