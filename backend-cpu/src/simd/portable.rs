//! Plain arrays, for processors without an implementation of their own and as the readable version of the others.

use unisonic_core::format::blocks::f16_to_f32;

use super::{LANES, Simd};

/// Arrays; the compiler may use what the build's baseline has.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

#[inline(always)]
fn zip<A: Copy, B: Copy, C>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// The four bytes of a word as the lanes of a dot product see them.
#[inline(always)]
fn signed_bytes(x: i32) -> [i32; 4] {
    x.to_le_bytes().map(|byte| i32::from(byte as i8))
}

// SAFETY: needs no instructions beyond the build's baseline; pointers are read and written as documented.
unsafe impl Simd for Portable {
    type I = [i32; LANES];
    type F = [f32; LANES];
    type B = [[u8; 4]; LANES];

    const WIDE_IS_BIASED: bool = false;

    #[inline(always)]
    fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load_i(from: *const i32) -> Self::I {
        // SAFETY: the caller gives 64 readable bytes.
        unsafe { from.cast::<Self::I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i(to: *mut i32, x: Self::I) {
        // SAFETY: the caller gives 64 writable bytes.
        unsafe { to.cast::<Self::I>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::I {
        // SAFETY: the caller gives 16 readable bytes.
        unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(i32::from)
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    unsafe fn shl_i<const N: u32>(a: Self::I) -> Self::I {
        a.map(|a| a << N)
    }
    #[inline(always)]
    unsafe fn sar_i<const N: u32>(a: Self::I) -> Self::I {
        a.map(|a| a >> N)
    }
    #[inline(always)]
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::min)
    }
    #[inline(always)]
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::max)
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self::I, b: Self::I, x: Self::I, y: Self::I) -> Self::I {
        std::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    unsafe fn swap_i<const N: usize>(a: Self::I) -> Self::I {
        const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
        std::array::from_fn(|i| a[i ^ N])
    }
    #[inline(always)]
    unsafe fn store_low_bytes(to: *mut i8, x: Self::I) {
        // SAFETY: the caller gives 16 writable bytes.
        unsafe { to.cast::<[i8; LANES]>().write_unaligned(x.map(|x| x as i8)) }
    }

    #[inline(always)]
    unsafe fn splat_f(x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load_f(from: *const f32) -> Self::F {
        // SAFETY: the caller gives 64 readable bytes.
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_f(to: *mut f32, x: Self::F) {
        // SAFETY: the caller gives 64 writable bytes.
        unsafe { to.cast::<Self::F>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: the caller gives 32 readable bytes.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(f16_to_f32)
    }
    #[inline(always)]
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        a.map(|a| a as f32)
    }
    #[inline(always)]
    unsafe fn bits(a: Self::F) -> Self::I {
        a.map(|a| a.to_bits() as i32)
    }
    #[inline(always)]
    unsafe fn from_bits(a: Self::I) -> Self::F {
        a.map(|a| f32::from_bits(a as u32))
    }

    #[inline(always)]
    unsafe fn load_b(from: *const u8) -> Self::B {
        // SAFETY: the caller gives 64 readable bytes.
        unsafe { from.cast::<Self::B>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn and_b(a: Self::B, mask: u8) -> Self::B {
        a.map(|a| a.map(|a| a & mask))
    }
    #[inline(always)]
    unsafe fn or_b(a: Self::B, b: Self::B) -> Self::B {
        zip(a, b, |a, b| std::array::from_fn(|i| a[i] | b[i]))
    }
    #[inline(always)]
    unsafe fn shr_b<const N: u32>(a: Self::B) -> Self::B {
        a.map(|a| a.map(|a| a >> N))
    }
    #[inline(always)]
    unsafe fn shl_b<const N: u32>(a: Self::B) -> Self::B {
        a.map(|a| a.map(|a| a << N))
    }
    #[inline(always)]
    unsafe fn lookup(a: Self::B, table: &[u8; 16]) -> Self::B {
        a.map(|a| a.map(|a| table[usize::from(a & 15)]))
    }

    #[inline(always)]
    unsafe fn dot4(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        let x = signed_bytes(x);
        zip(acc, w, |acc, w| (0..4).fold(acc, |acc, i| acc + i32::from(w[i]) * x[i]))
    }
    #[inline(always)]
    unsafe fn dot4_wide(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        let x = signed_bytes(x);
        zip(acc, w, |acc, w| (0..4).fold(acc, |acc, i| acc + (i32::from(w[i]) - 128) * x[i]))
    }
    #[inline(always)]
    unsafe fn dot2(acc: Self::I, v: *const i8, w: i32) -> Self::I {
        // SAFETY: the caller gives 32 readable bytes.
        let v = unsafe { v.cast::<[[i8; 2]; LANES]>().read_unaligned() };
        let (w0, w1) = (i32::from(w as i16), w >> 16);
        zip(acc, v, |acc, [v0, v1]| acc + i32::from(v0) * w0 + i32::from(v1) * w1)
    }
}
