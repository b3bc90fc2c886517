//! Packed bytes and halves, from integer operations.

use super::super::build::V;
use super::super::types::Scalar;
use super::Writer;

impl<'k> Writer<'k, '_> {
    /// `sum + a·b`, as four products.
    pub(super) fn dot4(&self, a: V<'k>, b: V<'k>, sum: V<'k>) -> V<'k> {
        (0..4).fold(sum, |sum, i| sum + a.byte(i) * b.byte(i))
    }

    /// The dot product as the device has it.
    pub(super) fn dot(&self, a: V<'k>, b: V<'k>, sum: V<'k>) -> V<'k> {
        if self.caps.dot4 { self.k.dot4(a, b, sum) } else { self.dot4(a, b, sum) }
    }

    /// binary16 to binary32: the exponent grows by 112; a subnormal is its fraction times 2^-24; infinities
    /// and NaN keep the highest exponent.
    pub(super) fn half(&self, word: V<'k>, index: u32) -> V<'k> {
        let k = self.k;
        let half = (word >> (16 * index)) & 0xFFFF;
        let (sign, size) = ((half & 0x8000) << 16, half & 0x7FFF);
        let normal = (size << 13) + (112 << 23);
        let subnormal =
            (size.cast(Scalar::I32).to_f32() * k.f32(f32::from_bits(103 << 23))).cast(Scalar::U32);
        let finite = size.lt(k.u32(0x400)).select(subnormal, normal);
        let word = size.lt(k.u32(0x7C00)).select(finite, (size << 13) | 0x7F80_0000);
        (sign | word).cast(Scalar::F32)
    }
}
