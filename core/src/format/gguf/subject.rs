//! How messages name what was being read.

use std::fmt;

/// A name from a file for a message: control characters escaped, long ones cut.
pub(super) fn shown(name: &str) -> String {
    const LONGEST: usize = 100;
    let mut text: String = name.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST).is_some() {
        text.push('…');
    }
    text
}

/// What is being read, for messages; costs nothing until there is one.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Header,
    MetadataCount,
    TensorCount,
    Entry(u64),
    Key(&'a str),
    Element(&'a str, u64),
    TensorEntry(u64),
    Tensor(&'a str),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Subject::Header => f.write_str("the header"),
            Subject::MetadataCount => f.write_str("the metadata"),
            Subject::TensorCount => f.write_str("the tensor table"),
            Subject::Entry(i) => write!(f, "metadata entry {i}"),
            Subject::Key(key) => write!(f, "metadata key `{}`", shown(key)),
            Subject::Element(key, i) => write!(f, "metadata key `{}`, element {i}", shown(key)),
            Subject::TensorEntry(i) => write!(f, "entry {i} of the tensor table"),
            Subject::Tensor(name) => write!(f, "tensor `{}`", shown(name)),
        }
    }
}
