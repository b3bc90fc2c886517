//! Metadata values as they lie in a file.

use std::io::Read;

use super::super::{Strings, Value};
use super::input::Input;
use super::subject::Subject;
use super::{HeaderError, MAX_NESTING};

/// Ids of `enum gguf_metadata_value_type`.
mod id {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// The least a string takes: its length.
const STRING_MIN_BYTES: u64 = 8;
/// The least an array takes: its element type and length.
const ARRAY_MIN_BYTES: u64 = 12;

/// Reads the value of `key`, type first.
pub(super) fn read(input: &mut Input<impl Read>, key: &str) -> Result<Value, HeaderError> {
    let key_subject = Subject::Key(key);
    let ty = input.u32(key_subject)?;
    Ok(match ty {
        id::U8 => Value::U8(u8::from_le_bytes(input.array(key_subject)?)),
        id::I8 => Value::I8(i8::from_le_bytes(input.array(key_subject)?)),
        id::U16 => Value::U16(u16::from_le_bytes(input.array(key_subject)?)),
        id::I16 => Value::I16(i16::from_le_bytes(input.array(key_subject)?)),
        id::U32 => Value::U32(input.u32(key_subject)?),
        id::I32 => Value::I32(i32::from_le_bytes(input.array(key_subject)?)),
        id::U64 => Value::U64(input.u64(key_subject)?),
        id::I64 => Value::I64(i64::from_le_bytes(input.array(key_subject)?)),
        id::F32 => Value::F32(f32::from_le_bytes(input.array(key_subject)?)),
        id::F64 => Value::F64(f64::from_le_bytes(input.array(key_subject)?)),
        id::BOOL => Value::Bool(bool_of(u8::from_le_bytes(input.array(key_subject)?), key_subject)?),
        id::STRING => Value::String(input.string(key_subject, str::to_owned)?),
        id::ARRAY => read_array(input, key, key_subject, 1)?,
        id => return Err(HeaderError::UnknownValueType { subject: key_subject.to_string(), id }),
    })
}

/// Reads an array; `subject` is the key, or the element of it that holds this array.
fn read_array(
    input: &mut Input<impl Read>,
    key: &str,
    subject: Subject<'_>,
    depth: u32,
) -> Result<Value, HeaderError> {
    if depth > MAX_NESTING {
        return Err(HeaderError::NestedTooDeep { subject: subject.to_string(), limit: MAX_NESTING });
    }
    let ty = input.u32(subject)?;
    let count = input.u64(subject)?;
    Ok(match ty {
        id::U8 => Value::U8s(input.numbers(count, subject, u8::from_le_bytes)?),
        id::I8 => Value::I8s(input.numbers(count, subject, i8::from_le_bytes)?),
        id::U16 => Value::U16s(input.numbers(count, subject, u16::from_le_bytes)?),
        id::I16 => Value::I16s(input.numbers(count, subject, i16::from_le_bytes)?),
        id::U32 => Value::U32s(input.numbers(count, subject, u32::from_le_bytes)?),
        id::I32 => Value::I32s(input.numbers(count, subject, i32::from_le_bytes)?),
        id::U64 => Value::U64s(input.numbers(count, subject, u64::from_le_bytes)?),
        id::I64 => Value::I64s(input.numbers(count, subject, i64::from_le_bytes)?),
        id::F32 => Value::F32s(input.numbers(count, subject, f32::from_le_bytes)?),
        id::F64 => Value::F64s(input.numbers(count, subject, f64::from_le_bytes)?),
        id::BOOL => {
            let bytes = input.numbers(count, subject, u8::from_le_bytes)?;
            let bools = (0..).zip(bytes).map(|(i, byte)| bool_of(byte, Subject::Element(key, i)));
            Value::Bools(bools.collect::<Result<_, _>>()?)
        }
        id::STRING => {
            input.claim_items(count, STRING_MIN_BYTES, subject)?;
            let mut strings = Strings::default();
            for i in 0..count {
                input.string(Subject::Element(key, i), |s| strings.push(s))?;
            }
            Value::Strings(strings)
        }
        id::ARRAY => {
            input.claim_items(count, ARRAY_MIN_BYTES, subject)?;
            let arrays = (0..count).map(|i| read_array(input, key, Subject::Element(key, i), depth + 1));
            Value::Arrays(arrays.collect::<Result<_, _>>()?)
        }
        id => return Err(HeaderError::UnknownValueType { subject: subject.to_string(), id }),
    })
}

fn bool_of(byte: u8, subject: Subject<'_>) -> Result<bool, HeaderError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(HeaderError::NotABool { subject: subject.to_string(), found }),
    }
}

/// Whether a value is an array of anything.
pub(super) fn is_array(value: &Value) -> bool {
    ids(value).0 == id::ARRAY
}

/// Appends a value, type first.
pub(super) fn put(out: &mut Vec<u8>, value: &Value) {
    out.extend(ids(value).0.to_le_bytes());
    put_untyped(out, value);
}

/// Appends a string with its length before it.
pub(super) fn put_string(out: &mut Vec<u8>, s: &str) {
    put_count(out, s.len());
    out.extend(s.as_bytes());
}

/// Appends a value without its type; an array keeps that of its elements.
fn put_untyped(out: &mut Vec<u8>, value: &Value) {
    let (ty, elem_ty) = ids(value);
    if ty == id::ARRAY {
        out.extend(elem_ty.to_le_bytes());
    }
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_string(out, v),
        Value::U8s(v) => put_numbers(out, v, u8::to_le_bytes),
        Value::I8s(v) => put_numbers(out, v, i8::to_le_bytes),
        Value::U16s(v) => put_numbers(out, v, u16::to_le_bytes),
        Value::I16s(v) => put_numbers(out, v, i16::to_le_bytes),
        Value::U32s(v) => put_numbers(out, v, u32::to_le_bytes),
        Value::I32s(v) => put_numbers(out, v, i32::to_le_bytes),
        Value::U64s(v) => put_numbers(out, v, u64::to_le_bytes),
        Value::I64s(v) => put_numbers(out, v, i64::to_le_bytes),
        Value::F32s(v) => put_numbers(out, v, f32::to_le_bytes),
        Value::F64s(v) => put_numbers(out, v, f64::to_le_bytes),
        Value::Bools(v) => put_numbers(out, v, |b| [u8::from(b)]),
        Value::Strings(v) => {
            put_count(out, v.len());
            v.iter().for_each(|s| put_string(out, s));
        }
        Value::Arrays(v) => {
            put_count(out, v.len());
            v.iter().for_each(|a| put_untyped(out, a));
        }
    }
}

fn put_numbers<T: Copy, const N: usize>(out: &mut Vec<u8>, numbers: &[T], to_bytes: fn(T) -> [u8; N]) {
    put_count(out, numbers.len());
    numbers.iter().for_each(|&n| out.extend(to_bytes(n)));
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u64).to_le_bytes());
}

/// The type of a value and, of an array, that of its elements.
fn ids(value: &Value) -> (u32, u32) {
    match value {
        Value::U8(_) => (id::U8, 0),
        Value::I8(_) => (id::I8, 0),
        Value::U16(_) => (id::U16, 0),
        Value::I16(_) => (id::I16, 0),
        Value::U32(_) => (id::U32, 0),
        Value::I32(_) => (id::I32, 0),
        Value::U64(_) => (id::U64, 0),
        Value::I64(_) => (id::I64, 0),
        Value::F32(_) => (id::F32, 0),
        Value::F64(_) => (id::F64, 0),
        Value::Bool(_) => (id::BOOL, 0),
        Value::String(_) => (id::STRING, 0),
        Value::U8s(_) => (id::ARRAY, id::U8),
        Value::I8s(_) => (id::ARRAY, id::I8),
        Value::U16s(_) => (id::ARRAY, id::U16),
        Value::I16s(_) => (id::ARRAY, id::I16),
        Value::U32s(_) => (id::ARRAY, id::U32),
        Value::I32s(_) => (id::ARRAY, id::I32),
        Value::U64s(_) => (id::ARRAY, id::U64),
        Value::I64s(_) => (id::ARRAY, id::I64),
        Value::F32s(_) => (id::ARRAY, id::F32),
        Value::F64s(_) => (id::ARRAY, id::F64),
        Value::Bools(_) => (id::ARRAY, id::BOOL),
        Value::Strings(_) => (id::ARRAY, id::STRING),
        Value::Arrays(_) => (id::ARRAY, id::ARRAY),
    }
}
