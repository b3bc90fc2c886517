//! Typed key-value metadata of a GGUF file.

use std::collections::HashMap;

/// A metadata value. Arrays are flat vectors by element type; arrays of arrays keep their elements as values.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the GGUF type of that name")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    U8s(Vec<u8>),
    I8s(Vec<i8>),
    U16s(Vec<u16>),
    I16s(Vec<i16>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    U64s(Vec<u64>),
    I64s(Vec<i64>),
    F32s(Vec<f32>),
    F64s(Vec<f64>),
    Bools(Vec<bool>),
    Strings(Strings),
    Arrays(Vec<Value>),
}

/// An array of strings in two allocations: a 262k-token vocabulary loads in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// Appends one string.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, if there are that many.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let s = &self.text[start..end];
            start = end;
            s
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut strings = Strings::default();
        iter.into_iter().for_each(|s| strings.push(s.as_ref()));
        strings
    }
}

/// A key is missing or holds another type than the reader needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A required key is not in the file.
    #[error(
        "the file has no metadata key `{key}` ({expected}); it may be damaged or made for another program"
    )]
    Missing {
        /// The key.
        key: String,
        /// Type that was looked for.
        expected: &'static str,
    },
    /// The key exists with another type.
    #[error("metadata key `{key}` should be {expected}, but the file holds {found}")]
    WrongType {
        /// The key.
        key: String,
        /// Type that was looked for.
        expected: &'static str,
        /// Type in the file.
        found: &'static str,
    },
    /// An integer that does not fit the use.
    #[error("metadata key `{key}` holds {value}, which does not fit {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The integer as text.
        value: String,
        /// Type that was looked for.
        expected: &'static str,
    },
}

/// Metadata of a file in file order, with look-up by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Adds an entry; returns false, and adds nothing, if the key exists.
    #[must_use]
    pub fn insert(&mut self, key: &str, value: Value) -> bool {
        if self.index.contains_key(key) {
            return false;
        }
        self.index.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        true
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// An integer of any GGUF width that fits `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, MetadataError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wide: i128 = match *value {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return Err(wrong(key, "an integer", value)),
        };
        u32::try_from(wide).map(Some).map_err(|_| MetadataError::OutOfRange {
            key: key.into(),
            value: wide.to_string(),
            expected: "an unsigned 32-bit integer",
        })
    }

    /// A 32-bit float (64-bit ones are refused: a file never needs one for what is asked here).
    pub fn f32(&self, key: &str) -> Result<Option<f32>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32(v)) => Ok(Some(*v)),
            Some(other) => Err(wrong(key, "a 32-bit float", other)),
        }
    }

    /// A boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(other) => Err(wrong(key, "a boolean", other)),
        }
    }

    /// A string.
    pub fn string(&self, key: &str) -> Result<Option<&str>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(other) => Err(wrong(key, "a string", other)),
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Strings(v)) => Ok(Some(v)),
            Some(other) => Err(wrong(key, "an array of strings", other)),
        }
    }

    /// An array of 32-bit floats.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32s(v)) => Ok(Some(v)),
            Some(other) => Err(wrong(key, "an array of 32-bit floats", other)),
        }
    }

    /// An array of signed 32-bit integers.
    pub fn i32s(&self, key: &str) -> Result<Option<&[i32]>, MetadataError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::I32s(v)) => Ok(Some(v)),
            Some(other) => Err(wrong(key, "an array of signed 32-bit integers", other)),
        }
    }
}

/// Turns an absent optional key into an error that names it.
pub fn required<T>(
    value: Result<Option<T>, MetadataError>,
    key: &str,
    expected: &'static str,
) -> Result<T, MetadataError> {
    value?.ok_or_else(|| MetadataError::Missing { key: key.into(), expected })
}

fn wrong(key: &str, expected: &'static str, found: &Value) -> MetadataError {
    MetadataError::WrongType { key: key.into(), expected, found: found.type_name() }
}

impl Value {
    /// The GGUF type in words, with its article.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "an unsigned 8-bit integer",
            Value::I8(_) => "a signed 8-bit integer",
            Value::U16(_) => "an unsigned 16-bit integer",
            Value::I16(_) => "a signed 16-bit integer",
            Value::U32(_) => "an unsigned 32-bit integer",
            Value::I32(_) => "a signed 32-bit integer",
            Value::U64(_) => "an unsigned 64-bit integer",
            Value::I64(_) => "a signed 64-bit integer",
            Value::F32(_) => "a 32-bit float",
            Value::F64(_) => "a 64-bit float",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::U8s(_) => "an array of unsigned 8-bit integers",
            Value::I8s(_) => "an array of signed 8-bit integers",
            Value::U16s(_) => "an array of unsigned 16-bit integers",
            Value::I16s(_) => "an array of signed 16-bit integers",
            Value::U32s(_) => "an array of unsigned 32-bit integers",
            Value::I32s(_) => "an array of signed 32-bit integers",
            Value::U64s(_) => "an array of unsigned 64-bit integers",
            Value::I64s(_) => "an array of signed 64-bit integers",
            Value::F32s(_) => "an array of 32-bit floats",
            Value::F64s(_) => "an array of 64-bit floats",
            Value::Bools(_) => "an array of booleans",
            Value::Strings(_) => "an array of strings",
            Value::Arrays(_) => "an array of arrays",
        }
    }
}
