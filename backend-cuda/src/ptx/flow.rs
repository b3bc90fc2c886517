//! Blocks, branches and loops.
//!
//! What a block yields is copied into registers of the statement's results, or of what a loop carries. A loop
//! carries in the registers of the names inside it, so its results are just other names of these.

use unisonic_core::kir::kernel::{Block, Carried, Stmt, Value};

use super::emitter::{Emitter, View};
use super::registers::{File, Register, Word};

/// The statements of a block.
pub fn block(e: &mut Emitter<'_>, block: &Block) {
    let (sums, bases) = (e.sums.len(), e.bases.len());
    for stmt in &block.stmts {
        match stmt {
            Stmt::Inst(inst) => e.inst(inst),
            Stmt::If { condition, then, otherwise, results } => {
                branch(e, *condition, then, otherwise, results)
            }
            Stmt::Loop { index, start, end, step, carried, body } => {
                let turns = Turns { index: *index, start: *start, end: *end, step: *step };
                repeat(e, &turns, carried, body);
            }
        }
    }
    // What was computed in here, others may not have passed.
    e.sums.truncate(sums);
    e.bases.truncate(bases);
}

fn branch(e: &mut Emitter<'_>, condition: Value, then: &Block, otherwise: &Block, results: &[Value]) {
    let condition = match e.word(condition, 0) {
        Word::Register(condition) => condition,
        Word::Constant(holds) => {
            let taken = if holds != 0 { then } else { otherwise };
            block(e, taken);
            for (&result, &from) in results.iter().zip(&taken.yields) {
                e.rename(result, e.words(from).to_vec());
            }
            return;
        }
    };
    let to: Vec<Vec<Register>> = results.iter().map(|&result| e.define(result)).collect();
    let number = e.new_label();
    let has_otherwise = !otherwise.stmts.is_empty() || !otherwise.yields.is_empty();
    let (end, other) = (format!("$end{number}"), format!("$else{number}"));
    let skip_to = if has_otherwise { &other } else { &end };
    e.line(format_args!("@!{condition} bra {skip_to};"));
    e.indented(|e| {
        block(e, then);
        copy_yields(e, &to, &then.yields);
        if has_otherwise {
            e.line(format_args!("bra {end};"));
        }
    });
    if has_otherwise {
        e.label(&other);
        e.indented(|e| {
            block(e, otherwise);
            copy_yields(e, &to, &otherwise.yields);
        });
    }
    e.label(&end);
}

/// The head of a loop.
struct Turns {
    index: Value,
    start: Value,
    end: Value,
    step: u32,
}

/// A loop, tested before the first turn and after each: one branch a turn.
fn repeat(e: &mut Emitter<'_>, turns: &Turns, carried: &[Carried], body: &Block) {
    let (start, end) = (e.word(turns.start, 0), e.word(turns.end, 0));
    let first: Vec<Value> = carried.iter().map(|carried| carried.first).collect();
    let is_entered = match (start, end) {
        (Word::Constant(start), Word::Constant(end)) => Some(start < end),
        _ => None,
    };
    if is_entered == Some(false) {
        for carried in carried {
            e.rename(carried.result, e.words(carried.first).to_vec());
        }
        return;
    }
    if let (Word::Constant(start), Word::Constant(end), Some(true)) = (start, end, is_entered)
        && start.checked_add(turns.step).is_none_or(|next| next >= end)
    {
        return once(e, turns.index, start, carried, body);
    }
    let index: Vec<Register> = e.define(turns.index);
    let inside: Vec<Vec<Register>> = carried.iter().map(|carried| e.define(carried.inside)).collect();
    copy_yields(e, std::slice::from_ref(&index), &[turns.start]);
    copy_yields(e, &inside, &first);

    let number = e.new_label();
    let (top, bottom) = (format!("$loop{number}"), format!("$end{number}"));
    let (index, goes_on) = (index[0], e.temporary(File::TemporaryPredicate));
    let end = e.text(end, View::Unsigned);
    if is_entered.is_none() {
        e.line(format_args!("setp.lt.u32 {goes_on}, {index}, {end};"));
        e.line(format_args!("@!{goes_on} bra {bottom};"));
    }
    e.label(&top);
    e.indented(|e| {
        block(e, body);
        copy_yields(e, &inside, &body.yields);
        e.line(format_args!("add.u32 {index}, {index}, {};", turns.step));
        e.line(format_args!("setp.lt.u32 {goes_on}, {index}, {end};"));
        e.line(format_args!("@{goes_on} bra {top};"));
    });
    e.label(&bottom);
    for carried in carried {
        e.rename(carried.result, e.words(carried.inside).to_vec());
    }
}

/// A loop of one turn.
fn once(e: &mut Emitter<'_>, index: Value, start: u32, carried: &[Carried], body: &Block) {
    e.rename(index, vec![Word::Constant(start)]);
    for carried in carried {
        e.rename(carried.inside, e.words(carried.first).to_vec());
    }
    block(e, body);
    for (carried, &from) in carried.iter().zip(&body.yields) {
        e.rename(carried.result, e.words(from).to_vec());
    }
}

/// Copies values into registers, all at once: a loop may carry its own names in another order.
fn copy_yields(e: &mut Emitter<'_>, to: &[Vec<Register>], from: &[Value]) {
    let pairs = to
        .iter()
        .zip(from)
        .flat_map(|(to, &from)| to.iter().copied().zip(e.words(from).iter().copied()).collect::<Vec<_>>());
    let mut left: Vec<(Register, Word)> = pairs.filter(|&(to, from)| from != Word::Register(to)).collect();
    while !left.is_empty() {
        // Whose register nobody reads any more can be written.
        let free = left.iter().position(|&(to, _)| left.iter().all(|&(_, from)| from != Word::Register(to)));
        if let Some(free) = free {
            let (to, from) = left.remove(free);
            copy(e, to, from);
            continue;
        }
        // What is left goes round in circles: one register is put aside.
        let aside = left[0].0;
        let file = if aside.file.is_predicate() { File::TemporaryPredicate } else { File::Temporary };
        let kept = e.temporary(file);
        copy(e, kept, Word::Register(aside));
        for (_, from) in left.iter_mut().filter(|(_, from)| *from == Word::Register(aside)) {
            *from = Word::Register(kept);
        }
    }
}

fn copy(e: &mut Emitter<'_>, to: Register, from: Word) {
    let kind = if to.file.is_predicate() { "pred" } else { "b32" };
    let from = e.text(from, View::Unsigned);
    e.line(format_args!("mov.{kind} {to}, {from};"));
}
