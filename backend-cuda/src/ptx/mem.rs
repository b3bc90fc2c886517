//! Memory: addresses, loads, stores, copies, barriers.

use unisonic_core::kir::kernel::{Attr, Inst, ObjectId, Space, Value};

use super::ELEM_LEN_BYTES;
use super::alu::define;
use super::emitter::{Emitter, View};
use super::registers::{File, Word};
use super::target::Target;

/// `load`. What nobody writes goes through the path for read-only data.
pub fn load(e: &mut Emitter<'_>, inst: &Inst) {
    load_with(e, inst, "");
}

/// `load_stream`: no line of the nearest cache is given up for it, on targets that can.
pub fn load_stream(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Object(id) = inst.attr else { return };
    if is_shared(e, id) || e.target < Target::Sm75 {
        return load_with(e, inst, "");
    }
    e.need_version(7, 4);
    load_with(e, inst, ".L1::no_allocate");
}

fn load_with(e: &mut Emitter<'_>, inst: &Inst, cache: &str) {
    let Attr::Object(id) = inst.attr else { return };
    let space = match e.kernel.objects[id.index()].space {
        Space::Read => "global.nc",
        Space::Write | Space::ReadWrite => "global",
        Space::Shared { .. } => "shared",
    };
    let address = address(e, id, inst.operands[0]);
    let registers: Vec<String> = define(e, inst).iter().map(ToString::to_string).collect();
    let (vector, registers) = vector(&registers);
    e.line(format_args!("ld.{space}{cache}{vector}.b32 {registers}, [{address}];"));
}

/// `store`.
pub fn store(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Object(id) = inst.attr else { return };
    let space = if is_shared(e, id) { "shared" } else { "global" };
    let address = address(e, id, inst.operands[0]);
    let words: Vec<String> =
        e.words(inst.operands[1]).iter().map(|&word| e.text(word, View::Unsigned)).collect();
    let (vector, words) = vector(&words);
    e.line(format_args!("st.{space}{vector}.b32 [{address}], {words};"));
}

/// `copy_async`: past the nearest cache.
pub fn copy_async(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Copy { to, from } = inst.attr else { return };
    let (to, from) = (address(e, to, inst.operands[0]), address(e, from, inst.operands[1]));
    e.line(format_args!("cp.async.cg.shared.global [{to}], [{from}], 16;"));
}

/// `copy_commit`.
pub fn copy_commit(e: &mut Emitter<'_>) {
    e.line(format_args!("cp.async.commit_group;"));
}

/// `copy_wait`.
pub fn copy_wait(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Index(groups) = inst.attr else { return };
    e.line(format_args!("cp.async.wait_group {groups};"));
}

/// `barrier`: also orders what the workgroup's threads did to memory before and after it.
pub fn barrier(e: &mut Emitter<'_>) {
    e.line(format_args!("bar.sync 0;"));
}

/// The address of an element, for brackets.
fn address(e: &mut Emitter<'_>, id: ObjectId, index: Value) -> String {
    let is_shared = is_shared(e, id);
    let object = if is_shared { e.shared(id) } else { e.buffer(id) };
    match e.word(index, 0) {
        Word::Constant(0) => object.to_string(),
        // What fits into an instruction.
        Word::Constant(index) if index < 1 << 28 => format!("{object}+{}", index * ELEM_LEN_BYTES),
        index if is_shared => {
            let (to, index) = (e.temporary(File::Temporary), e.register(index));
            e.line(format_args!("mad.lo.u32 {to}, {index}, {ELEM_LEN_BYTES}, {object};"));
            to.to_string()
        }
        index => {
            let (to, index) = (e.temporary(File::Address), e.register(index));
            e.line(format_args!("mad.wide.u32 {to}, {index}, {ELEM_LEN_BYTES}, {object};"));
            to.to_string()
        }
    }
}

fn is_shared(e: &Emitter<'_>, id: ObjectId) -> bool {
    matches!(e.kernel.objects[id.index()].space, Space::Shared { .. })
}

/// The modifier for as many words, and the words in braces if there are several.
fn vector(words: &[String]) -> (&'static str, String) {
    let list = words.join(", ");
    match words.len() {
        4 => (".v4", format!("{{{list}}}")),
        2 => (".v2", format!("{{{list}}}")),
        _ => ("", list),
    }
}
