//! Keeping the values of a template small.
//!
//! The engine's fuel counts instructions and bytes, but not what a value refers to: `[x, x]` is two references, and
//! sixty of them in a row are 2^60 values to whatever compares or prints the result; a list in a list in a list, a
//! hundred thousand deep, overflows the stack when it is dropped; a namespace that holds itself never ends. So after
//! every instruction that makes a value out of others the compiled template gets a check that the value's depth and
//! weight, with everything it refers to counted as often as it is referred to, are within limits.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::ObjectRepr;
use minijinja::{Environment, Error, ErrorKind, State, Value};

// Names of filters that no template can write.
const CHECK: &str = "!check";
const CHECK_STORED: &str = "!check-stored";

const DEPTH_MAX: usize = 32;
/// Weight of a value without its text.
const NODE_LEN_BYTES: usize = 32;
/// Weight that costs one unit of fuel, the engine's own price for that many bytes.
const BYTES_PER_FUEL: usize = 64;

/// Adds the filters that the checks call.
pub fn install(env: &mut Environment<'_>, weight_max_bytes: usize) {
    env.add_filter(CHECK, move |state: &State<'_, '_>, value: Value| {
        check(state, value, weight_max_bytes, Role::Result)
    });
    env.add_filter(CHECK_STORED, move |state: &State<'_, '_>, value: Value| {
        check(state, value, weight_max_bytes, Role::Stored)
    });
}

/// The same program with the checks in it.
pub fn guarded<'s>(plain: &Instructions<'s>, name: &'s str, source: &'s str) -> Instructions<'s> {
    let count = (0u32..).find(|&i| plain.get(i).is_none()).unwrap_or_default();
    // Where each instruction, with what goes before it, will begin.
    let mut starts = Vec::with_capacity(count as usize + 1);
    let mut next = 0u32;
    for instruction in (0..count).filter_map(|i| plain.get(i)) {
        starts.push(next);
        next += (before(instruction).len() + 1 + after(instruction).len()) as u32;
    }
    starts.push(next);

    let mut program = Instructions::new(name, source);
    for i in 0..count {
        let Some(instruction) = plain.get(i) else { continue };
        let line = plain.get_line(i).and_then(|line| u16::try_from(line).ok()).unwrap_or(u16::MAX);
        let mut moved = instruction.clone();
        if let Some(target) = jump_target(&mut moved) {
            *target = starts.get(*target as usize).copied().unwrap_or(next);
        }
        let around =
            before(instruction).iter().cloned().chain([moved]).chain(after(instruction).iter().cloned());
        for instruction in around {
            program.add_with_line(instruction, line);
        }
    }
    program
}

const CHECK_TOP: Instruction<'static> = Instruction::ApplyFilter(CHECK, Some(1), u8::MAX);
const CHECK_BELOW_TOP: [Instruction<'static>; 3] =
    [Instruction::Swap, Instruction::ApplyFilter(CHECK_STORED, Some(1), u8::MAX), Instruction::Swap];

/// Checks of operands: of what a namespace is to hold, and of what is about to be compared, for which the engine itself
/// charges nothing (checking charges for it).
fn before(instruction: &Instruction<'_>) -> &'static [Instruction<'static>] {
    match instruction {
        Instruction::SetAttr(_) => &CHECK_BELOW_TOP,
        Instruction::Eq
        | Instruction::Ne
        | Instruction::Gt
        | Instruction::Gte
        | Instruction::Lt
        | Instruction::Lte
        | Instruction::In
        | Instruction::CompareAndPreserve(_)
        | Instruction::PerformTest(..) => &[CHECK_TOP],
        _ => &[],
    }
}

/// Checks of results.
fn after(instruction: &Instruction<'_>) -> &'static [Instruction<'static>] {
    match instruction {
        Instruction::BuildMap(_)
        | Instruction::BuildList(_)
        | Instruction::BuildTuple(_)
        | Instruction::Add
        | Instruction::Mul
        | Instruction::ApplyFilter(..)
        | Instruction::CallFunction(..)
        | Instruction::CallMethod(..)
        | Instruction::CallObject(_)
        | Instruction::Lookup("varargs" | "kwargs") => &[CHECK_TOP],
        _ => &[],
    }
}

fn jump_target<'i>(instruction: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    match instruction {
        Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Result,
    Stored,
}

fn check(state: &State<'_, '_>, value: Value, weight_max_bytes: usize, role: Role) -> Result<Value, Error> {
    if value.as_object().is_none() {
        return Ok(value);
    }
    let mut left_bytes = weight_max_bytes;
    if is_namespace(&value) {
        if role == Role::Stored {
            return Err(refuse("a namespace cannot be stored in a namespace"));
        }
        // Its own values were checked when they were stored; only what `namespace(…)` was given is new.
        weigh_items(&value, DEPTH_MAX, &mut left_bytes)?;
    } else {
        weigh(&value, DEPTH_MAX, &mut left_bytes)?;
    }
    state.consume_fuel(((weight_max_bytes - left_bytes) / BYTES_PER_FUEL) as u64)?;
    Ok(value)
}

fn weigh(value: &Value, depth_left: usize, left_bytes: &mut usize) -> Result<(), Error> {
    let len_bytes = NODE_LEN_BYTES + value.as_str().map_or(0, str::len);
    *left_bytes = left_bytes.checked_sub(len_bytes).ok_or_else(|| refuse("a list or map grows too large"))?;
    if value.as_object().is_none() {
        return Ok(());
    }
    if is_namespace(value) {
        return Err(refuse("a namespace cannot be part of a list or map"));
    }
    weigh_items(value, depth_left, left_bytes)
}

fn weigh_items(value: &Value, depth_left: usize, left_bytes: &mut usize) -> Result<(), Error> {
    let Some(repr) = value.as_object().map(|object| object.repr()) else { return Ok(()) };
    if repr == ObjectRepr::Plain {
        return Ok(());
    }
    let depth_left =
        depth_left.checked_sub(1).ok_or_else(|| refuse("lists and maps are nested too deeply"))?;
    for item in value.try_iter()? {
        weigh(&item, depth_left, left_bytes)?;
        if repr == ObjectRepr::Map {
            weigh(&value.get_item(&item)?, depth_left, left_bytes)?;
        }
    }
    Ok(())
}

/// The engine's namespace type is private, but not its name.
fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn refuse(problem: &'static str) -> Error {
    Error::new(ErrorKind::OutOfFuel, problem)
}
