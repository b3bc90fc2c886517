//! Files put together byte by byte, right or wrong, for tests.

use super::{GgufHeader, GgufWriter, HeaderError, value};
use crate::format::{GgmlType, Strings, Value};

/// Little-endian bytes; remembers where each length and count lies.
#[derive(Clone, Default)]
pub struct Raw {
    pub bytes: Vec<u8>,
    pub counts: Vec<usize>,
}

impl Raw {
    /// The fixed part of a version 3 header.
    pub fn new(tensors: u64, entries: u64) -> Self {
        Raw::default().bytes(b"GGUF").u32(3).count(tensors).count(entries)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    pub fn u32(self, n: u32) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    pub fn u64(self, n: u64) -> Self {
        self.bytes(&n.to_le_bytes())
    }

    /// A 64-bit length, count, dimension or offset.
    pub fn count(mut self, n: u64) -> Self {
        self.counts.push(self.bytes.len());
        self.u64(n)
    }

    pub fn string(self, s: &str) -> Self {
        self.count(s.len() as u64).bytes(s.as_bytes())
    }

    pub fn entry(mut self, key: &str, value: &Value) -> Self {
        self = self.string(key);
        value::put(&mut self.bytes, value);
        self
    }

    /// An entry that holds an array whose elements follow.
    pub fn array(self, key: &str, elem_ty: u32, count: u64) -> Self {
        self.string(key).u32(9).u32(elem_ty).count(count)
    }

    pub fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let named = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(named, |raw, &d| raw.count(d)).u32(ty).count(offset)
    }

    /// Zeros up to the next multiple of 32, then `len` bytes of data.
    pub fn data(mut self, len: usize) -> Self {
        let start = self.bytes.len().next_multiple_of(32);
        self.bytes.resize(start + len, 0);
        self
    }
}

/// A file with a value of every type, nested arrays and three tensors; it ends with the last byte of the last tensor.
pub fn sample() -> GgufWriter {
    let strings: Strings = ["", "a", "▁the", "<0x0A>"].into_iter().collect();
    let nested = Value::Arrays(vec![
        Value::U8s(vec![1, 2]),
        Value::Arrays(vec![Value::Strings(strings.clone()), Value::Bools(vec![])]),
    ]);
    let f32s = |n: usize| (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<u8>>();
    GgufWriter::new("llama")
        .kv("u8", Value::U8(200))
        .kv("i8", Value::I8(-1))
        .kv("u16", Value::U16(60_000))
        .kv("i16", Value::I16(-2))
        .kv("u32", Value::U32(7))
        .kv("i32", Value::I32(-3))
        .kv("u64", Value::U64(u64::MAX))
        .kv("i64", Value::I64(i64::MIN))
        .kv("f32", Value::F32(0.1))
        .kv("f64", Value::F64(-0.0))
        .kv("bool", Value::Bool(true))
        .kv("u8s", Value::U8s(vec![0, 255]))
        .kv("i8s", Value::I8s(vec![-128]))
        .kv("u16s", Value::U16s(vec![1]))
        .kv("i16s", Value::I16s(vec![-1]))
        .kv("u32s", Value::U32s(vec![]))
        .kv("i32s", Value::I32s(vec![1, -1, 2]))
        .kv("u64s", Value::U64s(vec![9]))
        .kv("i64s", Value::I64s(vec![-9]))
        .kv("f32s", Value::F32s(vec![1.5, -2.5]))
        .kv("f64s", Value::F64s(vec![1e300]))
        .kv("bools", Value::Bools(vec![true, false]))
        .kv("strings", Value::Strings(strings))
        .kv("nested", nested)
        .tensor("norm", GgmlType::F32, &[3], f32s(3))
        .tensor("q8", GgmlType::Q8_0, &[32, 2], vec![7; 68])
        .tensor("last", GgmlType::F32, &[2, 2, 1, 2], f32s(8))
}

pub fn read(bytes: &[u8]) -> Result<GgufHeader, HeaderError> {
    GgufHeader::read(bytes, bytes.len() as u64)
}

/// The message with which a file is refused.
#[track_caller]
pub fn refusal(bytes: &[u8]) -> String {
    match read(bytes) {
        Ok(header) => panic!("accepted: {header:?}"),
        Err(e) => e.to_string(),
    }
}

/// Asserts that a file is refused with a message that holds all of `parts`.
#[track_caller]
pub fn assert_refused(bytes: &[u8], parts: &[&str]) {
    let message = refusal(bytes);
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}
