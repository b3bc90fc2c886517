//! The table of operations: each row is all that is known of one. The enum, the text form, the type rules of
//! the verifier and `docs/kir.md` derive from it; the interpreter and the emitters are exhaustive matches
//! over [`Op`].
//!
//! Only exact operations exist: integers modulo 2^32, and floats that are added, subtracted or multiplied,
//! each rounded to nearest, ties to even. There is no fused multiply-add, division, float minimum, comparison
//! of floats or transcendental: `core::numerics` builds them from these, in the same order on every device.

use super::types::{Scalar, Type};

/// What an operation needs beside its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    /// Nothing.
    None,
    /// The word of a constant.
    Word,
    /// A parameter of the kernel.
    Param,
    /// A global or shared object.
    Object,
    /// A shared object, and the global one that it is filled from.
    Copy,
    /// A shared object that holds a matrix, and the words from one of its columns to the next.
    Columns,
    /// Index of a byte, half or component, or a number of groups.
    Index,
    /// Which of eight bytes goes where.
    Selector,
    /// A virtual width and a lane or mask below it.
    Cluster,
}

/// What an operation does beside computing its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it may be repeated, moved or dropped.
    Pure,
    /// Reads memory.
    Reads,
    /// Writes memory.
    Writes,
    /// Exchanges values between lanes: all lanes of the workgroup arrive together.
    Exchanges,
    /// Reads memory for a cluster: all lanes of the workgroup arrive together, and nobody says which of them
    /// reads what.
    ReadsTogether,
    /// Waits for all lanes of the workgroup, and makes what they wrote to memory visible to each other.
    Waits,
}

impl Effect {
    /// Whether all lanes of the workgroup have to arrive together.
    pub fn is_together(self) -> bool {
        match self {
            Effect::Exchanges | Effect::ReadsTogether | Effect::Waits => true,
            Effect::Pure | Effect::Reads | Effect::Writes => false,
        }
    }

    /// Whether clusters act as one: a device needs whole subgroups for it.
    pub fn is_of_clusters(self) -> bool {
        match self {
            Effect::Exchanges | Effect::ReadsTogether => true,
            Effect::Pure | Effect::Reads | Effect::Writes | Effect::Waits => false,
        }
    }
}

/// A set of scalars that a type variable ranges over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// `u32`, `i32`.
    Int,
    /// What has 32 meaningful bits and can be masked: integers, packed bytes, `bool`.
    Bits,
    /// Everything.
    Any,
    /// `i8x4`, `u8x4`.
    Bytes,
    /// Everything but `bool`: 32 bits without a rule.
    Word,
}

impl Set {
    /// Whether a scalar is in the set.
    pub fn holds(self, scalar: Scalar) -> bool {
        use Scalar::*;
        match self {
            Set::Int => matches!(scalar, U32 | I32),
            Set::Bits => matches!(scalar, Bool | U32 | I32 | I8x4 | U8x4),
            Set::Any => true,
            Set::Bytes => matches!(scalar, I8x4 | U8x4),
            Set::Word => matches!(scalar, U32 | I32 | F32 | I8x4 | U8x4),
        }
    }

    /// For the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Set::Int => "u32 i32",
            Set::Bits => "bool u32 i32 i8x4 u8x4",
            Set::Any => "any",
            Set::Bytes => "i8x4 u8x4",
            Set::Word => "u32 i32 f32 i8x4 u8x4",
        }
    }
}

/// Type of an operand or result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This scalar; in an operation that works word by word, of the width of the others.
    Is(Scalar),
    /// The type variable of the row.
    T,
    /// One word of the type variable.
    OneT,
    /// This many words of the type variable.
    Words(u8),
    /// This many words of this scalar.
    Many(Scalar, u8),
    /// Whatever the instruction says: the type after the mnemonic.
    Stated,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name in the text form.
    pub mnemonic: &'static str,
    /// Family.
    pub family: Family,
    /// Types of the operands.
    pub operands: &'static [Pattern],
    /// Type of the result, if there is one.
    pub result: Option<Pattern>,
    /// What `T` ranges over.
    pub set: Set,
    /// Whether it works word by word on vectors; otherwise `Is` is one word.
    pub by_word: bool,
    /// What it needs beside operands.
    pub attr: AttrKind,
    /// What it does beside its result.
    pub effect: Effect,
    /// Formula.
    pub meaning: &'static str,
    /// One sentence.
    pub doc: &'static str,
}

/// Families of the table. Interpreter and emitters name their files after them, where there is much to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Where an invocation is, and constants.
    Index,
    /// Arithmetic on words.
    Alu,
    /// Vectors and packed bytes.
    Shape,
    /// Memory.
    Mem,
    /// Other lanes.
    Lanes,
    /// Dot products.
    Dot,
    /// Products of matrices.
    Matrix,
}

macro_rules! ops {
    ($($family:ident { $(
        $(#[doc = $doc:literal])*
        $op:ident = $mnemonic:literal ($($operand:expr),*) $(-> $result:expr)?,
            $set:ident, $by_word:literal, $attr:ident, $effect:ident, $meaning:literal;
    )* })*) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op { $($( $(#[doc = $doc])* $op, )*)* }

        impl Op {
            /// All, in the order of the table.
            pub const ALL: &'static [Op] = &[$($(Op::$op,)*)*];

            /// Its row.
            pub fn row(self) -> &'static Row {
                use Pattern::*;
                use Scalar::*;
                match self { $($(
                    Op::$op => {
                        #[allow(unused_mut, unused_assignments, reason = "some operations have no result")]
                        const RESULT: Option<Pattern> = { let mut result = None; $( result = Some($result); )? result };
                        const ROW: Row = Row {
                            mnemonic: $mnemonic,
                            family: Family::$family,
                            operands: &[$($operand),*],
                            result: RESULT,
                            set: Set::$set,
                            by_word: $by_word,
                            attr: AttrKind::$attr,
                            effect: Effect::$effect,
                            meaning: $meaning,
                            doc: concat!($($doc),*),
                        };
                        &ROW
                    }
                )*)* }
            }
        }
    };
}

ops! {
    Index {
        /// A constant; on a vector, in each word.
        Const = "const" () -> Stated, Any, true, Word, Pure, "the word";
        /// A parameter of the kernel, the same for all invocations.
        Param = "param" () -> Stated, Any, false, Param, Pure, "the parameter's word";
        /// Number of the invocation in its workgroup, from 0.
        LocalId = "local_id" () -> Is(U32), Any, false, None, Pure, "0 .. workgroup size - 1";
        /// Number of the workgroup, from 0.
        GroupId = "group_id" () -> Is(U32), Any, false, None, Pure, "0 .. workgroups - 1";
    }
    Alu {
        /// Sum.
        IAdd = "iadd" (T, T) -> T, Int, true, None, Pure, "a + b mod 2^32";
        /// Difference.
        ISub = "isub" (T, T) -> T, Int, true, None, Pure, "a - b mod 2^32";
        /// Product.
        IMul = "imul" (T, T) -> T, Int, true, None, Pure, "a * b mod 2^32";
        /// Quotient; the divisor is not 0.
        UDiv = "udiv" (Is(U32), Is(U32)) -> Is(U32), Any, true, None, Pure, "floor(a / b)";
        /// Remainder; the divisor is not 0.
        URem = "urem" (Is(U32), Is(U32)) -> Is(U32), Any, true, None, Pure, "a - b*floor(a / b)";
        /// The smaller, signed by its type.
        IMin = "imin" (T, T) -> T, Int, true, None, Pure, "a < b ? a : b";
        /// The larger, signed by its type.
        IMax = "imax" (T, T) -> T, Int, true, None, Pure, "a < b ? b : a";
        /// Bits of both.
        And = "and" (T, T) -> T, Bits, true, None, Pure, "a & b";
        /// Bits of either.
        Or = "or" (T, T) -> T, Bits, true, None, Pure, "a | b";
        /// Bits that differ.
        Xor = "xor" (T, T) -> T, Bits, true, None, Pure, "a ^ b";
        /// Shift to the left by less than 32.
        Shl = "shl" (T, Is(U32)) -> T, Int, true, None, Pure, "a * 2^b mod 2^32";
        /// Shift to the right by less than 32: zeros come in for u32, the sign for i32.
        Shr = "shr" (T, Is(U32)) -> T, Int, true, None, Pure, "floor(a / 2^b)";
        /// Whether equal.
        IEq = "ieq" (T, T) -> Is(Bool), Int, true, None, Pure, "a = b";
        /// Whether smaller, signed by its type.
        ILt = "ilt" (T, T) -> Is(Bool), Int, true, None, Pure, "a < b";
        /// One of two values, word by word.
        Select = "select" (Is(Bool), T, T) -> T, Any, true, None, Pure, "a ? b : c";
        /// Float sum, rounded to nearest even.
        FAdd = "fadd" (Is(F32), Is(F32)) -> Is(F32), Any, true, None, Pure, "RN(a + b)";
        /// Float difference, rounded to nearest even.
        FSub = "fsub" (Is(F32), Is(F32)) -> Is(F32), Any, true, None, Pure, "RN(a - b)";
        /// Float product, rounded to nearest even.
        FMul = "fmul" (Is(F32), Is(F32)) -> Is(F32), Any, true, None, Pure, "RN(a * b)";
        /// Integer to float, rounded to nearest even.
        I2F = "i2f" (Is(I32)) -> Is(F32), Any, true, None, Pure, "RN(a)";
        /// The same bits as another type.
        Cast = "cast" (T) -> Stated, Word, true, None, Pure, "bits of a";
    }
    Shape {
        /// A vector of two.
        Vec2 = "vec2" (OneT, OneT) -> Words(2), Any, false, None, Pure, "(a, b)";
        /// A vector of four.
        Vec4 = "vec4" (OneT, OneT, OneT, OneT) -> Words(4), Any, false, None, Pure, "(a, b, c, d)";
        /// A component of a vector.
        Part = "part" (T) -> OneT, Any, false, Index, Pure, "a[index]";
        /// A byte of a word, extended by the sign for i8x4 and by zeros for u8x4.
        Byte = "byte" (OneT) -> Is(I32), Bytes, false, Index, Pure, "a[index]";
        /// The IEEE binary16 in the low half of a word (index 0) or the high one (1) as a float; exact,
        /// subnormals too.
        Half = "half" (Is(U32)) -> Is(F32), Any, false, Index, Pure, "binary16 a[index]";
        /// Bytes chosen from two words: digit i of the selector names the byte (0-3 of a, 4-7 of b) that
        /// becomes byte i.
        Permute = "permute" (Is(U32), Is(U32)) -> Is(U32), Any, false, Selector, Pure, "bytes of (a, b)";
        /// The same, where the selector is known at run time: bits 0-2 of digit i name the byte.
        PermuteBy = "permute_by" (Is(U32), Is(U32), Is(U32)) -> Is(U32), Any, false, None, Pure, "bytes of (a, b)";
        /// Four integers from -128 to 127 as bytes.
        Pack = "pack" (Is(I32), Is(I32), Is(I32), Is(I32)) -> Is(I8x4), Any, false, None, Pure, "(a, b, c, d) mod 2^8";
    }
    Mem {
        /// Elements from an index on; a vector's index is a multiple of its width.
        Load = "load" (Is(U32)) -> Stated, Any, false, Object, Reads, "object[a ..]";
        /// The same, of elements that nobody reads again: devices that can keep them out of their caches.
        LoadStream = "load_stream" (Is(U32)) -> Stated, Any, false, Object, Reads, "object[a ..]";
        /// Says that somebody will read what lies around an element of a buffer that is only read: 128 bytes that begin
        /// at a multiple of that, which a device may bring nearer.
        Prefetch = "prefetch" (Is(U32)), Any, false, Object, Reads, "";
        /// Writes elements from an index on; a vector's index is a multiple of its width.
        Store = "store" (Is(U32), T), Any, false, Object, Writes, "object[a ..] = b";
        /// Begins to copy four elements of 32 bits from global to shared memory; both indices are multiples
        /// of four. Nobody touches the destination before the copy has been waited for.
        CopyAsync = "copy_async" (Is(U32), Is(U32)), Any, false, Copy, Writes, "to[a ..] = from[b ..]";
        /// Closes a group of the copies that the invocation began.
        CopyCommit = "copy_commit" (), Any, false, None, Writes, "";
        /// Waits for the invocation's own copies, but for those of its last groups, as many as the index
        /// says. A barrier shows them to others.
        CopyWait = "copy_wait" (), Any, false, Index, Writes, "";
        /// Waits for the workgroup; what was written to shared memory before it is seen after it.
        Barrier = "barrier" (), Any, false, None, Waits, "";
        /// Waits for the launches before this one, where it may begin before they have ended. Before it a kernel
        /// only reads objects that no launch writes; one without it waits before all else.
        WaitLaunches = "wait_launches" (), Any, false, None, Waits, "";
    }
    Lanes {
        /// The value of the invocation whose number in the cluster differs by a mask. Clusters are runs of
        /// invocations.
        ShuffleXor = "shuffle_xor" (T) -> T, Any, true, Cluster, Exchanges, "a of invocation id ^ mask";
        /// The value of one invocation of the cluster.
        Broadcast = "broadcast" (T) -> T, Any, true, Cluster, Exchanges, "a of invocation lane of the cluster";
    }
    Dot {
        /// Four products of bytes added to an integer.
        Dot4 = "dot4" (OneT, Is(I8x4), Is(I32)) -> Is(I32), Bytes, false, None, Pure, "c + sum of a_i*b_i mod 2^32";
    }
    Matrix {
        /// A product of matrices of bytes, 16x16 by 16x8, over a cluster of 32 invocations. Invocation 4g + t
        /// has of A rows g and g+8, of B column g, k = 4t .. 4t+3 of each; of the sum rows g and g+8, columns
        /// 2t and 2t+1 of each.
        Mma16 = "mma16" (Many(I8x4, 2), Is(I8x4), Many(I32, 4)) -> Many(I32, 4), Any, false, None, Exchanges,
            "c + a b mod 2^32";
        /// The same, 16x32 by 32x8; behind the words of k = 4t .. are those of k = 16+4t ... .
        Mma32 = "mma32" (Many(I8x4, 4), Many(I8x4, 2), Many(I32, 4)) -> Many(I32, 4), Any, false, None, Exchanges,
            "c + a b mod 2^32";
        /// The words of B that `mma32` takes, from a shared array in which the 32 bytes of a column lie one after the
        /// other: the first column at an index that is a multiple of 4 and the same for the cluster, each further one
        /// a stride of words behind.
        LoadB = "load_b" (Is(U32)) -> Many(I8x4, 2), Any, false, Columns, ReadsTogether,
            "object[a + g stride + t], object[a + g stride + t + 4]";
    }
}

impl Op {
    /// The operation of a mnemonic.
    pub fn from_mnemonic(mnemonic: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.row().mnemonic == mnemonic)
    }
}

/// Most operands that a row has.
pub const MAX_OPERANDS: usize = 4;

/// Invocations that multiply matrices together.
pub const MATRIX_CLUSTER: u32 = 32;

/// Words of a column of the matrix B of `mma32`.
pub const COLUMN_WORDS: u32 = 8;

/// Virtual widths of clusters.
pub const CLUSTER_WIDTHS: [u32; 3] = [8, 16, 32];

impl Row {
    /// The result's type for operands of these types; `stated` is what the instruction says. An error says
    /// what was expected.
    pub fn check(&self, operands: &[Type], stated: Option<Type>) -> Result<Option<Type>, String> {
        if operands.len() != self.operands.len() {
            let (expected, found) = (self.operands.len(), operands.len());
            return Err(format!("{expected} operands were expected, {found} found"));
        }
        let variable = self.variable(operands)?;
        let width = match (self.by_word, operands.first()) {
            (true, Some(first)) => first.width,
            _ => 1,
        };
        for (number, (&pattern, &found)) in self.operands.iter().zip(operands).enumerate() {
            let expected = match pattern {
                Pattern::Is(scalar) => Type { scalar, width },
                Pattern::T => variable.unwrap_or(found),
                Pattern::OneT => Type::one(variable.unwrap_or(found).scalar),
                Pattern::Words(width) => Type { width, ..variable.unwrap_or(found) },
                Pattern::Many(scalar, width) => Type { scalar, width },
                Pattern::Stated => found,
            };
            if found != expected {
                return Err(format!("operand {number} is {found}, expected {expected}"));
            }
            if self.by_word && found.width != width {
                return Err(format!("operand {number} is {found}, expected {width} words"));
            }
        }
        self.result_type(variable, width, operands, stated)
    }

    /// The type of the row's variable: that of the first operand that is one.
    fn variable(&self, operands: &[Type]) -> Result<Option<Type>, String> {
        let is_variable = |pattern: &Pattern| matches!(pattern, Pattern::T | Pattern::OneT);
        let Some(number) = self.operands.iter().position(is_variable) else { return Ok(None) };
        let found = operands[number];
        if !self.set.holds(found.scalar) {
            return Err(format!("operand {number} is {found}, expected one of: {}", self.set.name()));
        }
        Ok(Some(found))
    }

    fn result_type(
        &self,
        variable: Option<Type>,
        width: u8,
        operands: &[Type],
        stated: Option<Type>,
    ) -> Result<Option<Type>, String> {
        let of_variable = || variable.ok_or_else(|| "the row has no variable".to_owned());
        Ok(match self.result {
            None => None,
            Some(Pattern::Is(scalar)) => Some(Type { scalar, width }),
            Some(Pattern::T) => Some(of_variable()?),
            Some(Pattern::OneT) => Some(Type::one(of_variable()?.scalar)),
            Some(Pattern::Words(width)) => Some(Type { width, ..of_variable()? }),
            Some(Pattern::Many(scalar, width)) => Some(Type { scalar, width }),
            Some(Pattern::Stated) => {
                let stated = stated.ok_or("a type was expected after the mnemonic")?;
                if self.set == Set::Word {
                    let from = operands.first().copied().unwrap_or(stated);
                    if !self.set.holds(stated.scalar) || stated.width != from.width {
                        return Err(format!("{from} cannot become {stated}"));
                    }
                }
                Some(stated)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mnemonics_are_unique_and_rows_are_whole() {
        for &op in Op::ALL {
            let row = op.row();
            assert_eq!(Op::from_mnemonic(row.mnemonic), Some(op));
            assert!(!row.doc.trim().is_empty(), "{}", row.mnemonic);
            assert!(row.operands.len() <= MAX_OPERANDS);
        }
    }

    /// Nothing that touches memory or other invocations may be taken for a function of its operands.
    #[test]
    fn effects_are_of_their_family() {
        for &op in Op::ALL {
            let row = op.row();
            let expected = match (row.family, op) {
                (Family::Mem, Op::Load | Op::Prefetch | Op::LoadStream) => Effect::Reads,
                (Family::Mem, Op::Barrier | Op::WaitLaunches) => Effect::Waits,
                (Family::Mem, _) => Effect::Writes,
                (Family::Matrix, Op::LoadB) => Effect::ReadsTogether,
                (Family::Lanes | Family::Matrix, _) => Effect::Exchanges,
                _ => Effect::Pure,
            };
            assert_eq!(row.effect, expected, "{}", row.mnemonic);
        }
    }

    #[test]
    fn types_follow_the_row() {
        let f32x4 = Type { scalar: Scalar::F32, width: 4 };
        let u32_ = Type::one(Scalar::U32);
        assert_eq!(Op::FAdd.row().check(&[f32x4, f32x4], None), Ok(Some(f32x4)));
        assert!(Op::FAdd.row().check(&[f32x4, Scalar::F32.into()], None).is_err());
        assert!(Op::IAdd.row().check(&[f32x4, f32x4], None).unwrap_err().contains("u32 i32"));
        assert_eq!(Op::IEq.row().check(&[u32_, u32_], None), Ok(Some(Scalar::Bool.into())));
        assert_eq!(
            Op::Cast.row().check(&[f32x4], Some(f32x4.with(Scalar::U32))),
            Ok(Some(f32x4.with(Scalar::U32)))
        );
        assert!(Op::Cast.row().check(&[f32x4], Some(u32_)).is_err());
        assert!(Op::Cast.row().check(&[u32_], Some(Scalar::Bool.into())).is_err());
        assert_eq!(Op::Part.row().check(&[f32x4], None), Ok(Some(Scalar::F32.into())));
        assert_eq!(
            Op::Vec2.row().check(&[u32_, u32_], None),
            Ok(Some(Type { scalar: Scalar::U32, width: 2 }))
        );
        assert!(Op::Store.row().check(&[u32_], None).unwrap_err().contains("2 operands"));
    }
}
