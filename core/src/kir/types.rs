//! Types of values. A lane of a value is one 32-bit word; a vector has two or four of them. Memory holds
//! words too, so no device needs smaller or larger integers than 32 bits: packed bytes and halves are taken
//! out of words by operations.

use std::fmt;
use std::str::FromStr;

/// Type of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// True or false; the word is 1 or 0.
    Bool,
    /// Unsigned integer modulo 2^32.
    U32,
    /// Two's complement integer modulo 2^32.
    I32,
    /// IEEE binary32.
    F32,
    /// Four signed bytes, the first in the low bits.
    I8x4,
    /// Four unsigned bytes, the first in the low bits.
    U8x4,
}

impl Scalar {
    /// All, in the order of the documentation.
    pub const ALL: [Scalar; 6] =
        [Scalar::Bool, Scalar::U32, Scalar::I32, Scalar::F32, Scalar::I8x4, Scalar::U8x4];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::U32 => "u32",
            Scalar::I32 => "i32",
            Scalar::F32 => "f32",
            Scalar::I8x4 => "i8x4",
            Scalar::U8x4 => "u8x4",
        }
    }

    /// Whether buffers and shared memory hold it.
    pub fn is_stored(self) -> bool {
        self != Scalar::Bool
    }

    /// Whether parameters have it.
    pub fn is_param(self) -> bool {
        matches!(self, Scalar::U32 | Scalar::I32 | Scalar::F32)
    }
}

/// A scalar or a vector of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Type of each word.
    pub scalar: Scalar,
    /// Words: 1, 2 or 4.
    pub width: u8,
}

impl Type {
    /// Widths that exist.
    pub const WIDTHS: [u8; 3] = [1, 2, 4];

    /// One word.
    pub const fn one(scalar: Scalar) -> Self {
        Self { scalar, width: 1 }
    }

    /// The same words as another scalar type.
    pub const fn with(self, scalar: Scalar) -> Self {
        Self { scalar, ..self }
    }
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Self {
        Type::one(scalar)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scalar.name())?;
        if self.width == 1 { Ok(()) } else { write!(f, "x{}", self.width) }
    }
}

impl FromStr for Type {
    type Err = ();

    /// `f32`, `f32x4`, `i8x4` (a scalar), `i8x4x2`.
    fn from_str(text: &str) -> Result<Self, ()> {
        Scalar::ALL
            .into_iter()
            .flat_map(|scalar| Type::WIDTHS.map(|width| Type { scalar, width }))
            .find(|ty| ty.to_string() == text)
            .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own() {
        for scalar in Scalar::ALL {
            for width in Type::WIDTHS {
                let ty = Type { scalar, width };
                assert_eq!(ty.to_string().parse(), Ok(ty));
            }
        }
        for wrong in ["", "f64", "f32x3", "f32x", "x4", "i8", "i8x4x", "u32x1"] {
            assert!(wrong.parse::<Type>().is_err(), "{wrong}");
        }
    }
}
