//! What is done with memory ([`Mem`]) and with values ([`V`]): methods and operators.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Rem, Shl, Shr, Sub};

use super::super::kernel::{Attr, Value};
use super::super::op::Op;
use super::super::types::{Scalar, Type};
use super::{Mem, V};

impl<'k> Mem<'k> {
    /// An element.
    pub fn load(self, index: V<'k>) -> V<'k> {
        self.load_vector(index, 1)
    }

    /// 1, 2 or 4 elements from an index on that is a multiple of their number.
    pub fn load_vector(self, index: V<'k>, width: u8) -> V<'k> {
        let ty = Type { scalar: self.elem, width };
        self.build.stated(Op::Load, Attr::Object(self.id), &[index.value], ty)
    }

    /// The same, where nobody reads the elements again.
    pub fn load_stream(self, index: V<'k>, width: u8) -> V<'k> {
        let ty = Type { scalar: self.elem, width };
        self.build.stated(Op::LoadStream, Attr::Object(self.id), &[index.value], ty)
    }

    /// Says that somebody will read what lies around an element ([`Op::Prefetch`]).
    pub fn prefetch(self, index: V<'k>) {
        self.build.no_result(Op::Prefetch, Attr::Object(self.id), &[index.value]);
    }

    /// The words of a matrix B of [`super::V`]'s products ([`Op::LoadB`]): its first column begins at an index that
    /// the cluster has in common, the next `stride` words behind it; both are multiples of four.
    pub fn load_b(self, index: V<'k>, stride: u32) -> V<'k> {
        self.build.op(Op::LoadB, Attr::Columns { of: self.id, stride }, &[index.value])
    }

    /// Begins to copy four elements of a buffer to this shared array; both indices are multiples of four.
    pub fn copy_async(self, to: V<'k>, from: Mem<'k>, from_index: V<'k>) {
        let attr = Attr::Copy { to: self.id, from: from.id };
        self.build.no_result(Op::CopyAsync, attr, &[to.value, from_index.value]);
    }

    /// Writes an element, or a vector from an index on that is a multiple of its width.
    pub fn store(self, index: V<'k>, value: V<'k>) {
        self.build.no_result(Op::Store, Attr::Object(self.id), &[index.value, value.value]);
    }
}

impl<'k> V<'k> {
    /// Its number.
    pub(in super::super) fn value(self) -> Value {
        self.value
    }

    /// Its type.
    pub fn ty(self) -> Type {
        self.build.ty(self.value)
    }

    fn unary(self, op: Op) -> V<'k> {
        self.build.op(op, Attr::None, &[self.value])
    }

    fn binary(self, op: Op, other: V<'k>) -> V<'k> {
        self.build.op(op, Attr::None, &[self.value, other.value])
    }

    /// The operation on integers or the one on floats, by the type.
    fn arithmetic(self, int: Op, float: Op, other: V<'k>) -> V<'k> {
        self.binary(if self.ty().scalar == Scalar::F32 { float } else { int }, other)
    }

    /// A constant of the same type.
    pub fn constant(self, word: u32) -> V<'k> {
        self.build.constant(self.ty(), word)
    }

    /// The smaller integer.
    pub fn min(self, other: V<'k>) -> V<'k> {
        self.binary(Op::IMin, other)
    }

    /// The larger integer.
    pub fn max(self, other: V<'k>) -> V<'k> {
        self.binary(Op::IMax, other)
    }

    /// Whether equal.
    pub fn eq(self, other: V<'k>) -> V<'k> {
        self.binary(Op::IEq, other)
    }

    /// Whether smaller.
    pub fn lt(self, other: V<'k>) -> V<'k> {
        self.binary(Op::ILt, other)
    }

    /// One of two values, by this bool.
    pub fn select(self, yes: V<'k>, no: V<'k>) -> V<'k> {
        self.build.op(Op::Select, Attr::None, &[self.value, yes.value, no.value])
    }

    /// Integer to float.
    pub fn to_f32(self) -> V<'k> {
        self.unary(Op::I2F)
    }

    /// The binary16 in the low half (0) or the high half (1) of a u32 as a float.
    pub fn half(self, index: u32) -> V<'k> {
        self.build.op(Op::Half, Attr::Index(index), &[self.value])
    }

    /// The same bits as another scalar type.
    pub fn cast(self, scalar: Scalar) -> V<'k> {
        self.build.stated(Op::Cast, Attr::None, &[self.value], self.ty().with(scalar))
    }

    /// A component of a vector.
    pub fn part(self, index: u32) -> V<'k> {
        self.build.op(Op::Part, Attr::Index(index), &[self.value])
    }

    /// A byte as an integer.
    pub fn byte(self, index: u32) -> V<'k> {
        self.build.op(Op::Byte, Attr::Index(index), &[self.value])
    }

    /// Bytes chosen from this word and another.
    pub fn permute(self, other: V<'k>, selector: u16) -> V<'k> {
        self.build.op(Op::Permute, Attr::Selector(selector), &[self.value, other.value])
    }

    /// Bytes chosen from this word and another by the digits of a third.
    pub fn permute_by(self, other: V<'k>, selector: V<'k>) -> V<'k> {
        self.build.op(Op::PermuteBy, Attr::None, &[self.value, other.value, selector.value])
    }

    /// The value of the lane whose number in the cluster differs by a mask.
    pub fn shuffle_xor(self, width: u32, mask: u32) -> V<'k> {
        self.build.op(Op::ShuffleXor, Attr::Cluster { width, lane: mask }, &[self.value])
    }

    /// The value of a lane of the cluster.
    pub fn broadcast(self, width: u32, lane: u32) -> V<'k> {
        self.build.op(Op::Broadcast, Attr::Cluster { width, lane }, &[self.value])
    }

    /// Sum over a cluster, in every lane: `for h = width/2, ..., 1: x = x + x of lane ^ h`, the order of
    /// `core::numerics::float::tree` in lane 0.
    pub fn cluster_sum(self, width: u32) -> V<'k> {
        let mut sum = self;
        let mut h = width / 2;
        while h > 0 {
            sum = sum + sum.shuffle_xor(width, h);
            h /= 2;
        }
        sum
    }
}

/// Whether an operator with a constant gives back its other operand.
fn is_neutral(method: &str, constant: u32, scalar: Scalar) -> bool {
    let neutral = match method {
        "add" | "sub" | "bitor" | "bitxor" | "shl" | "shr" => 0,
        "mul" | "div" => 1,
        _ => return false,
    };
    constant == neutral && scalar != Scalar::F32
}

macro_rules! operators {
    ($($trait:ident $method:ident ($self:ident, $other:ident) $by_values:expr;)*) => { $(
        impl<'k> $trait for V<'k> {
            type Output = V<'k>;
            fn $method(self, $other: V<'k>) -> V<'k> {
                let $self = self;
                $by_values
            }
        }
        impl<'k> $trait<u32> for V<'k> {
            type Output = V<'k>;
            /// With an integer constant of the same type; shifts take u32. The divisor of `/` and `%` is not
            /// 0. What changes nothing is not written.
            fn $method(self, $other: u32) -> V<'k> {
                let $self = self;
                if is_neutral(stringify!($method), $other, self.ty().scalar) {
                    return self;
                }
                let is_shift = matches!(stringify!($method), "shl" | "shr");
                let scalar = if is_shift { Scalar::U32 } else { self.ty().scalar };
                let $other = self.build.constant(self.ty().with(scalar), $other);
                $by_values
            }
        }
    )* };
}

operators! {
    Add add (a, b) a.arithmetic(Op::IAdd, Op::FAdd, b);
    Sub sub (a, b) a.arithmetic(Op::ISub, Op::FSub, b);
    Mul mul (a, b) a.arithmetic(Op::IMul, Op::FMul, b);
    Div div (a, b) a.binary(Op::UDiv, b);
    Rem rem (a, b) a.binary(Op::URem, b);
    BitAnd bitand (a, b) a.binary(Op::And, b);
    BitOr bitor (a, b) a.binary(Op::Or, b);
    BitXor bitxor (a, b) a.binary(Op::Xor, b);
    Shl shl (a, b) a.binary(Op::Shl, b);
    Shr shr (a, b) a.binary(Op::Shr, b);
}
