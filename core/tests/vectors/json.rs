//! Reading the vector files: patterns as hex, hashes over patterns.

use serde_json::Value;
use sha2::{Digest, Sha256};

pub fn load(name: &str) -> Value {
    let path = format!("{}/../tests/data/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["profile"], unisonic_core::plan::PROFILE, "{path}");
    value
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("expected a list, found {value}"))
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a text, found {value}"))
}

pub fn integer(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("expected an integer, found {value}"))
}

pub fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| panic!("expected true or false, found {value}"))
}

pub fn integers(value: &Value) -> Vec<i64> {
    list(value).iter().map(integer).collect()
}

/// 8 hex digits a word.
pub fn words(value: &Value) -> Vec<u32> {
    let digits = text(value);
    assert!(digits.len().is_multiple_of(8));
    (0..digits.len() / 8).map(|i| u32::from_str_radix(&digits[8 * i..8 * i + 8], 16).unwrap()).collect()
}

pub fn word(value: &Value) -> u32 {
    let words = words(value);
    assert_eq!(words.len(), 1);
    words[0]
}

pub fn floats(value: &Value) -> Vec<f32> {
    words(value).into_iter().map(f32::from_bits).collect()
}

pub fn float(value: &Value) -> f32 {
    f32::from_bits(word(value))
}

/// 2 hex digits a byte.
pub fn bytes(value: &Value) -> Vec<u8> {
    let digits = text(value);
    assert!(digits.len().is_multiple_of(2));
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

pub fn plane(value: &Value) -> Vec<i8> {
    bytes(value).into_iter().map(|byte| byte as i8).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[track_caller]
pub fn assert_bits(found: &[f32], expected: &Value, what: &str) {
    let expected = words(expected);
    let found = bits(found);
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{what}, element {i}: {found:08x}, expected {expected:08x}");
    }
}

pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 over words as little-endian bytes.
pub struct WordHash(Sha256);

impl WordHash {
    pub fn new() -> Self {
        Self(Sha256::new())
    }

    pub fn add(&mut self, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.0.update(&bytes);
    }

    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

pub fn sha256_floats(values: &[f32]) -> String {
    let mut hash = WordHash::new();
    hash.add(&bits(values));
    hash.finish()
}

pub fn sha256_plane(values: &[i8]) -> String {
    let bytes: Vec<u8> = values.iter().map(|&value| value as u8).collect();
    hex(&Sha256::digest(&bytes))
}
