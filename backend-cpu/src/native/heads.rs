//! Kernels over one head: RoPE, the Walsh-Hadamard transform, V8. The formulas are those of `core::numerics`, on 16 lanes.

use unisonic_core::numerics::elementary::recip;
use unisonic_core::numerics::float::INV_127;
use unisonic_core::numerics::fwht::{fwht_block, fwht_scales};
use unisonic_core::numerics::range::{ACTIVATION_LIMIT, QUANTIZER_FLOOR, is_below};
use unisonic_core::numerics::rope;
use unisonic_core::plan::RopeStyle;

use super::elementary::{largest_magnitude, rne};
use crate::simd::{LANES, Simd};

/// Rotates the pairs of a head (`core::numerics::rope::rotate`).
///
/// # Safety
/// As for [`Simd`].
///
/// # Panics
/// If the head is shorter than twice the cosines, or the sines are not as many.
#[inline(always)]
pub unsafe fn rotate<S: Simd>(style: RopeStyle, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let pairs = cosines.len();
    assert!(sines.len() == pairs && head.len() >= 2 * pairs, "{pairs} pairs of a head of {}", head.len());
    // SAFETY: the caller's promise; every access is below the lengths that were compared.
    unsafe {
        match style {
            // Vectors have to end with the pairs, for the second halves follow.
            RopeStyle::HalfSplit if pairs.is_multiple_of(LANES) => {
                for i in (0..pairs).step_by(LANES) {
                    let (at_a, at_b) = (head.as_mut_ptr().add(i), head.as_mut_ptr().add(i + pairs));
                    let (a, b) = (S::load_f(at_a), S::load_f(at_b));
                    let (c, s) = (S::load_f(cosines.as_ptr().add(i)), S::load_f(sines.as_ptr().add(i)));
                    S::store_f(at_a, S::sub_f(S::mul_f(a, c), S::mul_f(b, s)));
                    S::store_f(at_b, S::add_f(S::mul_f(a, s), S::mul_f(b, c)));
                }
            }
            // a*c - b*s is a*c + b*(-s): one product with the vector, one with its neighbours.
            RopeStyle::Interleaved if (2 * pairs).is_multiple_of(LANES) => {
                for i in (0..2 * pairs).step_by(LANES) {
                    let c: [f32; LANES] = std::array::from_fn(|k| cosines[(i + k) / 2]);
                    let s: [f32; LANES] = std::array::from_fn(|k| {
                        if k % 2 == 0 { -sines[(i + k) / 2] } else { sines[(i + k) / 2] }
                    });
                    let at = head.as_mut_ptr().add(i);
                    let x = S::load_f(at);
                    let own = S::mul_f(x, S::load_f(c.as_ptr()));
                    let other = S::mul_f(swap::<S, 1>(x), S::load_f(s.as_ptr()));
                    S::store_f(at, S::add_f(own, other));
                }
            }
            _ => rope::rotate(style, head, cosines, sines),
        }
    }
}

/// The transform of `core::numerics::fwht::fwht`.
///
/// # Safety
/// As for [`Simd`]; the head is a multiple of 16 long.
#[inline(always)]
pub unsafe fn fwht<S: Simd>(head: &mut [f32]) {
    // SAFETY: the caller's promise; a block is whole vectors.
    unsafe {
        for i in (0..head.len()).step_by(LANES) {
            let at = head.as_mut_ptr().add(i);
            let x = S::load_f(at);
            let x = butterfly::<S, 1>(x);
            let x = butterfly::<S, 2>(x);
            let x = butterfly::<S, 4>(x);
            S::store_f(at, butterfly::<S, 8>(x));
        }
        let block = fwht_block(head.len());
        let mut h = LANES;
        while h < block {
            for pairs in head.chunks_exact_mut(2 * h) {
                for i in (0..h).step_by(LANES) {
                    let (at_a, at_b) = (pairs.as_mut_ptr().add(i), pairs.as_mut_ptr().add(i + h));
                    let (a, b) = (S::load_f(at_a), S::load_f(at_b));
                    S::store_f(at_a, S::add_f(a, b));
                    S::store_f(at_b, S::sub_f(a, b));
                }
            }
            h *= 2;
        }
    }
}

/// `(a, b) -> (a + b, a - b)` on lanes that differ in bit N: each lane's neighbour plus itself, negated where the bit is
/// set.
#[inline(always)]
unsafe fn butterfly<S: Simd, const N: usize>(x: S::F) -> S::F {
    let signs: [i32; LANES] = std::array::from_fn(|i| if i & N == 0 { 0 } else { i32::MIN });
    // SAFETY: the caller has the instructions of S; 64 bytes.
    unsafe {
        let own = S::from_bits(S::xor_i(S::bits(x), S::load_i(signs.as_ptr())));
        S::add_f(swap::<S, N>(x), own)
    }
}

#[inline(always)]
unsafe fn swap<S: Simd, const N: usize>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe { S::from_bits(S::swap_i::<N>(S::bits(x))) }
}

/// Multiplies a head by a number.
///
/// # Safety
/// As for [`Simd`]; the head is a multiple of 16 long.
#[inline(always)]
pub unsafe fn scale<S: Simd>(head: &mut [f32], factor: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..head.len()).step_by(LANES) {
            let at = head.as_mut_ptr().add(i);
            S::store_f(at, S::mul_f(S::load_f(at), S::splat_f(factor)));
        }
    }
}

/// V8 of a value (`core::numerics::kv::quantize_value_8`); returns whether it is in range. `value` is left rotated.
///
/// # Safety
/// As for [`Simd`]; the value is a multiple of 16 long, and the plane has room for it.
#[inline(always)]
pub unsafe fn quantize_value_8<S: Simd>(value: &mut [f32], plane: *mut i8, scale_of_value: &mut f32) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        fwht::<S>(value);
        scale::<S>(value, fwht_scales(value.len()).0);
        let amax = largest_magnitude::<S>(value);
        let in_range = is_below(amax, ACTIVATION_LIMIT);
        let is_zero = !in_range || is_below(amax, QUANTIZER_FLOOR);
        *scale_of_value = if is_zero { 0.0 } else { amax * INV_127 };
        let steps = S::splat_f(if is_zero { 0.0 } else { recip(amax) * 127.0 });
        for i in (0..value.len()).step_by(LANES) {
            let q = if is_zero {
                S::splat_i(0)
            } else {
                let rounded = rne::<S>(S::mul_f(S::load_f(value.as_ptr().add(i)), steps));
                S::min_i(S::max_i(rounded, S::splat_i(-127)), S::splat_i(127))
            };
            S::store_low_bytes(plane.add(i), q);
        }
        in_range
    }
}
