//! One 512-bit register a vector, with VNNI dot products.

use std::arch::x86_64::*;

use super::Simd;

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

// SAFETY: callers run on a processor with these instructions (`crate::isa` asks it and the system); pointers are read
// and written as documented, with unaligned instructions.
unsafe impl Simd for Avx512 {
    type I = __m512i;
    type F = __m512;
    type B = __m512i;

    const WIDE_IS_BIASED: bool = true;

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i(to: *mut i32, x: Self::I) {
        // SAFETY: see the implementation.
        unsafe { _mm512_storeu_si512(to.cast(), x) }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shl_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn sar_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_srai_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_min_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self::I, b: Self::I, x: Self::I, y: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), y, x) }
    }
    #[inline(always)]
    unsafe fn swap_i<const N: usize>(a: Self::I) -> Self::I {
        const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
        // SAFETY: see the implementation.
        unsafe {
            match N {
                1 => _mm512_shuffle_epi32::<0b10_11_00_01>(a),
                2 => _mm512_shuffle_epi32::<0b01_00_11_10>(a),
                4 => _mm512_shuffle_i32x4::<0b10_11_00_01>(a, a),
                _ => _mm512_shuffle_i32x4::<0b01_00_11_10>(a, a),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(to: *mut i8, x: Self::I) {
        // SAFETY: see the implementation.
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(x)) }
    }

    #[inline(always)]
    unsafe fn splat_f(x: f32) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_f(from: *const f32) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_f(to: *mut f32, x: Self::F) {
        // SAFETY: see the implementation.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn bits(a: Self::F) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_castps_si512(a) }
    }
    #[inline(always)]
    unsafe fn from_bits(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { _mm512_castsi512_ps(a) }
    }

    #[inline(always)]
    unsafe fn load_b(from: *const u8) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(mask as i8)) }
    }
    #[inline(always)]
    unsafe fn or_b(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn shr_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { _mm512_srli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn shl_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { _mm512_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    unsafe fn lookup(a: Self::B, table: &[u8; 16]) -> Self::B {
        // SAFETY: see the implementation; the table is 16 readable bytes.
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a) }
    }

    #[inline(always)]
    unsafe fn dot4(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn dot4_wide(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn dot2(acc: Self::I, v: *const i8, w: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let v = _mm512_cvtepi8_epi16(_mm256_loadu_si256(v.cast()));
            _mm512_dpwssd_epi32(acc, v, _mm512_set1_epi32(w))
        }
    }
}
