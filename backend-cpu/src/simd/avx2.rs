//! Two 256-bit registers a vector.

use std::arch::x86_64::*;

use super::Simd;

/// AVX2 and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

/// Low and high half.
type Pair = (__m256i, __m256i);

/// Each lane: the sum of four products of unsigned by signed bytes, no pair of which passes 32767.
#[inline(always)]
unsafe fn dot4_half(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
    // SAFETY: callers run on a processor with AVX2.
    unsafe {
        let pairs = _mm256_maddubs_epi16(w, x);
        _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// As [`dot4_half`] for bytes biased by 128: |w - 128| <= 128 times |x| <= 127, twice, is at most 32512.
#[inline(always)]
unsafe fn dot4_wide_half(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
    // SAFETY: callers run on a processor with AVX2.
    unsafe {
        let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        dot4_half(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    }
}

#[inline(always)]
unsafe fn dot2_half(acc: __m256i, v: *const i8, w: __m256i) -> __m256i {
    // SAFETY: callers run on a processor with AVX2 and give 16 readable bytes.
    unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(v.cast())), w)) }
}

// SAFETY: callers run on a processor with these instructions (`crate::isa` asks it and the system); pointers are read
// and written as documented, with unaligned instructions.
unsafe impl Simd for Avx2 {
    type I = Pair;
    type F = (__m256, __m256);
    type B = Pair;

    const WIDE_IS_BIASED: bool = false;

    #[inline(always)]
    fn prefetch(at: *const u8) {
        // SAFETY: a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn splat_i(x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_set1_epi32(x), _mm256_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn load_i(from: *const i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())) }
    }
    #[inline(always)]
    unsafe fn store_i(to: *mut i32, x: Self::I) {
        // SAFETY: see the implementation.
        unsafe {
            _mm256_storeu_si256(to.cast(), x.0);
            _mm256_storeu_si256(to.add(8).cast(), x.1);
        }
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            (
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())),
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_sub_epi32(a.0, b.0), _mm256_sub_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_mullo_epi32(a.0, b.0), _mm256_mullo_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_and_si256(a.0, b.0), _mm256_and_si256(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_xor_si256(a.0, b.0), _mm256_xor_si256(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_min_epi32(a.0, b.0), _mm256_min_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_max_epi32(a.0, b.0), _mm256_max_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn shl_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            (_mm256_sll_epi32(a.0, count), _mm256_sll_epi32(a.1, count))
        }
    }
    #[inline(always)]
    unsafe fn sar_i<const N: u32>(a: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            (_mm256_sra_epi32(a.0, count), _mm256_sra_epi32(a.1, count))
        }
    }
    #[inline(always)]
    unsafe fn select_lt(a: Self::I, b: Self::I, x: Self::I, y: Self::I) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            (
                _mm256_blendv_epi8(y.0, x.0, _mm256_cmpgt_epi32(b.0, a.0)),
                _mm256_blendv_epi8(y.1, x.1, _mm256_cmpgt_epi32(b.1, a.1)),
            )
        }
    }
    #[inline(always)]
    unsafe fn swap_i<const N: usize>(a: Self::I) -> Self::I {
        const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
        // SAFETY: see the implementation.
        unsafe {
            match N {
                1 => (_mm256_shuffle_epi32::<0b10_11_00_01>(a.0), _mm256_shuffle_epi32::<0b10_11_00_01>(a.1)),
                2 => (_mm256_shuffle_epi32::<0b01_00_11_10>(a.0), _mm256_shuffle_epi32::<0b01_00_11_10>(a.1)),
                4 => (_mm256_permute2x128_si256::<1>(a.0, a.0), _mm256_permute2x128_si256::<1>(a.1, a.1)),
                _ => (a.1, a.0),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_low_bytes(to: *mut i8, x: Self::I) {
        // SAFETY: see the implementation.
        unsafe {
            // Values fit a byte, so saturating packs keep them; the permutation undoes their interleaving.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(x.0, x.1));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.cast(), bytes);
        }
    }
    #[inline(always)]
    unsafe fn splat_f(x: f32) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load_f(from: *const f32) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    unsafe fn store_f(to: *mut f32, x: Self::F) {
        // SAFETY: see the implementation.
        unsafe {
            _mm256_storeu_ps(to, x.0);
            _mm256_storeu_ps(to.add(8), x.1);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: see the implementation.
        unsafe {
            (
                _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn to_f(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_cvtepi32_ps(a.0), _mm256_cvtepi32_ps(a.1)) }
    }
    #[inline(always)]
    unsafe fn bits(a: Self::F) -> Self::I {
        // SAFETY: see the implementation.
        unsafe { (_mm256_castps_si256(a.0), _mm256_castps_si256(a.1)) }
    }
    #[inline(always)]
    unsafe fn from_bits(a: Self::I) -> Self::F {
        // SAFETY: see the implementation.
        unsafe { (_mm256_castsi256_ps(a.0), _mm256_castsi256_ps(a.1)) }
    }

    #[inline(always)]
    unsafe fn load_b(from: *const u8) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
    }
    #[inline(always)]
    unsafe fn and_b(a: Self::B, mask: u8) -> Self::B {
        // SAFETY: see the implementation.
        unsafe {
            let mask = _mm256_set1_epi8(mask as i8);
            (_mm256_and_si256(a.0, mask), _mm256_and_si256(a.1, mask))
        }
    }
    #[inline(always)]
    unsafe fn or_b(a: Self::B, b: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe { (_mm256_or_si256(a.0, b.0), _mm256_or_si256(a.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn shr_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            (_mm256_srl_epi32(a.0, count), _mm256_srl_epi32(a.1, count))
        }
    }
    #[inline(always)]
    unsafe fn shl_b<const N: u32>(a: Self::B) -> Self::B {
        // SAFETY: see the implementation.
        unsafe {
            let count = _mm_cvtsi32_si128(N as i32);
            (_mm256_sll_epi32(a.0, count), _mm256_sll_epi32(a.1, count))
        }
    }
    #[inline(always)]
    unsafe fn lookup(a: Self::B, table: &[u8; 16]) -> Self::B {
        // SAFETY: see the implementation.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            (_mm256_shuffle_epi8(table, a.0), _mm256_shuffle_epi8(table, a.1))
        }
    }

    #[inline(always)]
    unsafe fn dot4(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let x = _mm256_set1_epi32(x);
            (dot4_half(acc.0, w.0, x), dot4_half(acc.1, w.1, x))
        }
    }
    #[inline(always)]
    unsafe fn dot4_wide(acc: Self::I, w: Self::B, x: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let x = _mm256_set1_epi32(x);
            (dot4_wide_half(acc.0, w.0, x), dot4_wide_half(acc.1, w.1, x))
        }
    }
    #[inline(always)]
    unsafe fn dot2(acc: Self::I, v: *const i8, w: i32) -> Self::I {
        // SAFETY: see the implementation.
        unsafe {
            let w = _mm256_set1_epi32(w);
            (dot2_half(acc.0, v, w), dot2_half(acc.1, v.add(16), w))
        }
    }
}
