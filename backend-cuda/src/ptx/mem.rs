//! Memory: addresses, loads, stores, copies, barriers.

use unisonic_core::kir::kernel::{Attr, Inst, ObjectId, Space, Value};
use unisonic_core::kir::waits::has_wait;

use super::ELEM_LEN_BYTES;
use super::address::Terms;
use super::alu::define;
use super::emitter::{Emitter, View};
use super::registers::{File, Register, Word};
use super::target::Target;

/// `load`. What nobody writes goes through the path for read-only data, where that is so from beginning to end.
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
        // Where a kernel begins before the launches before it have ended, what it reads may be written meanwhile; and loads of
        // the other path would be moved behind the wait that they are there to come before.
        Space::Read if e.target.has_dependent_launches() => "global",
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

/// What comes before all else where a launch may begin before those before it have ended: those after it may begin as soon
/// as all of its workgroups have. It waits at once unless the kernel says when.
pub fn begin(e: &mut Emitter<'_>) {
    if e.target.has_dependent_launches() {
        e.line(format_args!("griddepcontrol.launch_dependents;"));
        if !has_wait(e.kernel) {
            wait_launches(e);
        }
    }
}

/// `wait_launches`: until those before have ended and what they wrote is seen.
pub fn wait_launches(e: &mut Emitter<'_>) {
    if e.target.has_dependent_launches() {
        e.line(format_args!("griddepcontrol.wait;"));
    }
}

/// `prefetch`, to the cache that all share. It is for the time before launches have been waited for; where there is none,
/// the load follows at once.
pub fn prefetch(e: &mut Emitter<'_>, inst: &Inst) {
    let Attr::Object(id) = inst.attr else { return };
    if e.target.has_dependent_launches() {
        let address = address(e, id, inst.operands[0]);
        e.line(format_args!("prefetch.global.L2 [{address}];"));
    }
}

/// The address of an element, for brackets: that of an element which others have computed already if there is
/// one, and an offset.
fn address(e: &mut Emitter<'_>, id: ObjectId, index: Value) -> String {
    match e.word(index, 0) {
        // What fits into an instruction.
        Word::Constant(index) if index < 1 << 28 => {
            let object = object(e, id);
            with_offset(object, index)
        }
        word => match e.addresses.split(id, index) {
            Some((terms, offset)) => {
                let known = e.bases.iter().find(|(of, at, _)| *of == id && *at == terms);
                let base = match known {
                    Some(&(_, _, base)) => base,
                    None => {
                        let at = if offset == 0 { word } else { sum(e, &terms) };
                        let base = element(e, id, at);
                        e.bases.push((id, terms, base));
                        base
                    }
                };
                with_offset(base, offset)
            }
            None => element(e, id, word).to_string(),
        },
    }
}

fn with_offset(base: Register, elements: u32) -> String {
    match elements {
        0 => base.to_string(),
        _ => format!("{base}+{}", elements * ELEM_LEN_BYTES),
    }
}

/// The address of an object.
fn object(e: &mut Emitter<'_>, id: ObjectId) -> Register {
    if is_shared(e, id) { e.shared(id) } else { e.buffer(id) }
}

/// The address of an element, in a register.
fn element(e: &mut Emitter<'_>, id: ObjectId, index: Word) -> Register {
    let (file, instruction) =
        if is_shared(e, id) { (File::Temporary, "mad.lo.u32") } else { (File::Address, "mad.wide.u32") };
    let (object, index, to) = (object(e, id), e.register(index), e.temporary(file));
    e.line(format_args!("{instruction} {to}, {index}, {ELEM_LEN_BYTES}, {object};"));
    to
}

/// A sum of terms: a value of the kernel if one is the same, else computed.
fn sum(e: &mut Emitter<'_>, terms: &Terms) -> Word {
    if let [(value, 1)] = terms[..] {
        return e.word(value, 0);
    }
    if let Some((_, word)) = e.sums.iter().find(|(of, _)| of == terms) {
        return *word;
    }
    let mut sum: Option<Register> = None;
    for &(value, factor) in terms {
        let term = e.word(value, 0);
        let (term, to) = (e.register(term), e.temporary(File::Temporary));
        match sum {
            None => e.line(format_args!("mul.lo.u32 {to}, {term}, {factor};")),
            Some(sum) => e.line(format_args!("mad.lo.u32 {to}, {term}, {factor}, {sum};")),
        }
        sum = Some(to);
    }
    let word = sum.map_or(Word::Constant(0), Word::Register);
    e.sums.push((terms.clone(), word));
    word
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
