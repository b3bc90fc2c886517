//! Names of virtual registers. A value's words are in registers of its own number: `%r7` is value 7 of the
//! kernel, `%x7` to `%w7` are the words of a vector, `%p7` is a `bool`. PTX gives each kernel as many as it
//! declares.

use std::fmt;

/// Where one word of a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// In a register.
    Register(Register),
    /// Nowhere: it is known, and becomes an immediate of what uses it. A `bool` is 0 or 1.
    Constant(u32),
}

/// A register: a file and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Which array of registers.
    pub file: File,
    /// Which of it.
    pub number: u32,
}

/// An array of registers. They are declared in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum File {
    /// Words of values of one word.
    Scalar,
    /// Words of vectors, by component.
    Component(u8),
    /// Words that an operation needs on its way.
    Temporary,
    /// Halves of words.
    Half,
    /// 32-bit addresses of arrays in shared memory, by object.
    Shared,
    /// Values of type `bool`.
    Predicate,
    /// Components of vectors of `bool`.
    PredicateComponent(u8),
    /// Predicates that an operation needs on its way.
    TemporaryPredicate,
    /// 64-bit addresses.
    Address,
    /// 64-bit addresses of buffers, by object.
    Buffer,
}

impl File {
    /// What its names begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            File::Scalar => "%r",
            File::Component(0) => "%x",
            File::Component(1) => "%y",
            File::Component(2) => "%z",
            File::Component(_) => "%w",
            File::Predicate => "%p",
            File::PredicateComponent(0) => "%px",
            File::PredicateComponent(1) => "%py",
            File::PredicateComponent(2) => "%pz",
            File::PredicateComponent(_) => "%pw",
            File::Temporary => "%t",
            File::Half => "%h",
            File::TemporaryPredicate => "%tp",
            File::Address => "%a",
            File::Buffer => "%buffer",
            File::Shared => "%shared",
        }
    }

    /// Type in PTX. Words have none but their size, so that one register serves as integer and as float.
    pub fn ty(self) -> &'static str {
        match self {
            File::Scalar | File::Component(_) | File::Temporary | File::Shared => ".b32",
            File::Predicate | File::PredicateComponent(_) | File::TemporaryPredicate => ".pred",
            File::Half => ".b16",
            File::Address | File::Buffer => ".b64",
        }
    }

    /// Whether it holds predicates.
    pub fn is_predicate(self) -> bool {
        self.ty() == ".pred"
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.file.prefix(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::File;

    #[test]
    fn files_have_names_of_their_own() {
        let others = [
            File::Scalar,
            File::Temporary,
            File::Half,
            File::Shared,
            File::Predicate,
            File::TemporaryPredicate,
            File::Address,
            File::Buffer,
        ];
        let components = [0, 1, 2, 3].map(|component| File::Component(component).prefix());
        assert_eq!(components, ["%x", "%y", "%z", "%w"]);
        let predicates = [0, 1, 2, 3].map(|component| File::PredicateComponent(component).prefix());
        assert_eq!(predicates, ["%px", "%py", "%pz", "%pw"]);
        let prefixes: Vec<&str> =
            others.into_iter().map(File::prefix).chain(components).chain(predicates).collect();
        assert_eq!(prefixes.iter().collect::<HashSet<_>>().len(), prefixes.len());
        // A number follows.
        assert!(prefixes.iter().all(|prefix| !prefix.contains(char::is_numeric)));
    }
}
