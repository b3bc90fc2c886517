//! Values of other invocations, by shuffles within a warp. Clusters are at most a warp wide.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::kernel::{Attr, Inst};

use super::alu::define;
use super::emitter::{Emitter, View};
use super::registers::{File, Register, Word};

/// `shuffle_xor` (`bfly`) and `broadcast` (`idx`).
pub fn exchange(e: &mut Emitter<'_>, inst: &Inst, mode: &str) {
    let Attr::Cluster { width, lane } = inst.attr else { return };
    e.need_version(6, 0);
    let members = e.lane_mask();
    // Bits 8 to 12 are the bits of the lane's number that the exchange keeps, bits 0 to 4 the highest lane in
    // the others.
    let segment = (32 - width) << 8 | 0x1f;
    let is_bool = e.operand_scalar(inst, 0) == Scalar::Bool;
    for (index, register) in define(e, inst).into_iter().enumerate() {
        let (from, to) = match (e.word(inst.operands[0], index), is_bool) {
            (Word::Register(holds), true) => (bool_to_word(e, holds), e.temporary(File::Temporary)),
            (word, true) => (e.text(word, View::Unsigned), e.temporary(File::Temporary)),
            (word, false) => (e.text(word, View::Unsigned), register),
        };
        e.line(format_args!("shfl.sync.{mode}.b32 {to}, {from}, {lane}, {segment:#x}, {members};"));
        if is_bool {
            e.line(format_args!("setp.ne.u32 {register}, {to}, 0;"));
        }
    }
}

fn bool_to_word(e: &mut Emitter<'_>, holds: Register) -> String {
    let word = e.temporary(File::Temporary);
    e.line(format_args!("selp.b32 {word}, 1, 0, {holds};"));
    word.to_string()
}
