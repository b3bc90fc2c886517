//! Four 128-bit registers a vector.

use std::arch::aarch64::*;

use super::Simd;

/// NEON as every aarch64 processor has it.
#[derive(Clone, Copy, Debug)]
pub struct Neon;

/// Registers of a vector; lane `4q + i` is lane i of register q.
const REGISTERS: usize = 4;

#[inline(always)]
fn each<C>(f: impl FnMut(usize) -> C) -> [C; REGISTERS] {
    std::array::from_fn(f)
}

#[inline(always)]
fn zip<A: Copy, B: Copy, C>(a: [A; REGISTERS], b: [B; REGISTERS], f: impl Fn(A, B) -> C) -> [C; REGISTERS] {
    each(|q| f(a[q], b[q]))
}

/// Each lane: the sum of four products of signed bytes, no pair of which passes 32767.
#[inline(always)]
fn dot4_signed(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: NEON belongs to the target.
    unsafe {
        let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        let high = vmull_high_s8(w, x);
        vpadalq_s16(acc, vpaddq_s16(low, high))
    }
}

/// binary16 to binary32 by integers, so that it is exact whatever the mode of the processor.
#[inline(always)]
fn widen_f16(half: uint16x4_t) -> float32x4_t {
    // SAFETY: NEON belongs to the target.
    unsafe {
        let word = vmovl_u16(half);
        let sign = vshlq_n_u32::<16>(vandq_u32(word, vdupq_n_u32(0x8000)));
        let fraction = vandq_u32(word, vdupq_n_u32(0x03FF));
        let is_normal = vtstq_u32(word, vdupq_n_u32(0x7C00));
        // The exponent moves from bias 15 to bias 127; below it, fraction * 2^-24.
        let rebiased = vshlq_n_u32::<13>(vandq_u32(word, vdupq_n_u32(0x7FFF)));
        let normal = vaddq_u32(rebiased, vdupq_n_u32((127 - 15) << 23));
        let small = vmulq_n_f32(vcvtq_f32_u32(fraction), f32::from_bits((127 - 24) << 23));
        let magnitude = vbslq_u32(is_normal, normal, vreinterpretq_u32_f32(small));
        vreinterpretq_f32_u32(vorrq_u32(magnitude, sign))
    }
}

// SAFETY: NEON belongs to the target, so its instructions are always there; pointers are read and written as
// documented, and loads and stores of these types take any alignment.
unsafe impl Simd for Neon {
    type I = [int32x4_t; REGISTERS];
    type F = [float32x4_t; REGISTERS];
    type B = [uint8x16_t; REGISTERS];

    const WIDE_IS_BIASED: bool = false;

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a hint, which faults at no address and changes no register.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly))
        }
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        // SAFETY: see the implementation.
        [unsafe { vdupq_n_s32(x) }; REGISTERS]
    }
    #[inline(always)]
    unsafe fn load_i(from: *const i32) -> Self::I {
        // SAFETY: see the implementation.
        each(|q| unsafe { vld1q_s32(from.add(4 * q)) })
    }
    #[inline(always)]
    unsafe fn store_i(to: *mut i32, x: Self::I) {
        for (q, x) in x.into_iter().enumerate() {
            // SAFETY: see the implementation.
            unsafe { vst1q_s32(to.add(4 * q), x) }
        }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let bytes = vld1q_s8(from);
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ]
        }
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vaddq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vsubq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vmulq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vandq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { veorq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn shl_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vshlq_s32(a, vdupq_n_s32(N as i32)) })
    }
    #[inline(always)]
    unsafe fn sar_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation. A shift by a negative number is one to the right.
        a.map(|a| unsafe { vshlq_s32(a, vdupq_n_s32(-(N as i32))) })
    }
    #[inline(always)]
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vminq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vmaxq_s32(a, b) })
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self::I, b: Self::I, x: Self::I, y: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        each(|q| unsafe { vbslq_s32(vcltq_s32(a[q], b[q]), x[q], y[q]) })
    }
    #[inline(always)]
    unsafe fn swap_i<const N: usize>(a: Self::I) -> Self::I {
        const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
        // SAFETY: see the implementation.
        match N {
            1 => a.map(|a| unsafe { vrev64q_s32(a) }),
            2 => a.map(|a| unsafe { vextq_s32::<2>(a, a) }),
            4 => [a[1], a[0], a[3], a[2]],
            _ => [a[2], a[3], a[0], a[1]],
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(to: *mut i8, x: Self::I) {
        // SAFETY: see the implementation.
        unsafe {
            let low = vmovn_high_s32(vmovn_s32(x[0]), x[1]);
            let high = vmovn_high_s32(vmovn_s32(x[2]), x[3]);
            vst1q_s8(to, vmovn_high_s16(vmovn_s16(low), high));
        }
    }

    #[inline(always)]
    unsafe fn splat_f(x: f32) -> Self::F {
        // SAFETY: see the implementation.
        [unsafe { vdupq_n_f32(x) }; REGISTERS]
    }
    #[inline(always)]
    unsafe fn load_f(from: *const f32) -> Self::F {
        // SAFETY: see the implementation.
        each(|q| unsafe { vld1q_f32(from.add(4 * q)) })
    }
    #[inline(always)]
    unsafe fn store_f(to: *mut f32, x: Self::F) {
        for (q, x) in x.into_iter().enumerate() {
            // SAFETY: see the implementation.
            unsafe { vst1q_f32(to.add(4 * q), x) }
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: see the implementation.
        each(|q| widen_f16(unsafe { vld1_u16(from.add(4 * q)) }))
    }
    #[inline(always)]
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vaddq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vsubq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vmulq_f32(a, b) })
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vcvtq_f32_s32(a) })
    }
    #[inline(always)]
    unsafe fn bits(a: Self::F) -> Self::I {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vreinterpretq_s32_f32(a) })
    }
    #[inline(always)]
    unsafe fn from_bits(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vreinterpretq_f32_s32(a) })
    }

    #[inline(always)]
    unsafe fn load_b(from: *const u8) -> Self::B {
        // SAFETY: see the implementation.
        each(|q| unsafe { vld1q_u8(from.add(16 * q)) })
    }
    #[inline(always)]
    unsafe fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vandq_u8(a, vdupq_n_u8(mask)) })
    }
    #[inline(always)]
    unsafe fn or_b(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        zip(a, b, |a, b| unsafe { vorrq_u8(a, b) })
    }
    #[inline(always)]
    unsafe fn shr_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation. A shift by a negative number is one to the right.
        a.map(|a| unsafe { vshlq_u8(a, vdupq_n_s8(-(N as i8))) })
    }
    #[inline(always)]
    unsafe fn shl_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        a.map(|a| unsafe { vshlq_u8(a, vdupq_n_s8(N as i8)) })
    }
    #[inline(always)]
    unsafe fn lookup(a: Self::B, table: &[u8; 16]) -> Self::B {
        // SAFETY: see the implementation; the table is 16 readable bytes.
        a.map(|a| unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr()), a) })
    }

    #[inline(always)]
    unsafe fn dot4(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation. Bytes of w that are at most 127 may be taken as signed.
        zip(acc, w, |acc, w| unsafe {
            dot4_signed(acc, vreinterpretq_s8_u8(w), vreinterpretq_s8_s32(vdupq_n_s32(x)))
        })
    }
    #[inline(always)]
    unsafe fn dot4_wide(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation. Flipping the top bit subtracts the bias; two products of -128 and ±127 are at
        // most 32512 in magnitude.
        zip(acc, w, |acc, w| unsafe {
            let w = vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80)));
            dot4_signed(acc, w, vreinterpretq_s8_s32(vdupq_n_s32(x)))
        })
    }
    #[inline(always)]
    unsafe fn dot2(acc: Self::I, v: *const i8, w: i32) -> Self::I {
        // SAFETY: see the implementation; 32 bytes are read, even ones to `v.0` and odd ones to `v.1`.
        unsafe {
            let v = vld2q_s8(v);
            let (w0, w1) = (w as i16, (w >> 16) as i16);
            let wide = |v: int8x16_t| [vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v)];
            let (v0, v1) = (wide(v.0), wide(v.1));
            each(|q| {
                let (v0, v1) = (v0[q / 2], v1[q / 2]);
                if q % 2 == 0 {
                    let sum = vmlal_n_s16(acc[q], vget_low_s16(v0), w0);
                    vmlal_n_s16(sum, vget_low_s16(v1), w1)
                } else {
                    vmlal_high_n_s16(vmlal_high_n_s16(acc[q], v0, w0), v1, w1)
                }
            })
        }
    }
}
