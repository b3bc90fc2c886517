//! The elementary functions of `core::numerics` on 16 lanes: the same operations in the same order.
//!
//! Comparisons are on integers, as in `core::numerics::float::ord`; where a sign is known, patterns compare directly.

use unisonic_core::numerics::activation::{GELU_C1, GELU_C2};
use unisonic_core::numerics::elementary::EXP2;
use unisonic_core::numerics::float::{LOG2E, ROUNDER, SNAP_LIMIT};

use crate::simd::{LANES, Simd};

/// `Bits(|x|)`.
#[inline(always)]
pub unsafe fn abs_bits<S: Simd>(x: S::F) -> S::I {
    // SAFETY: the caller has the instructions of S.
    unsafe { S::and_i(S::bits(x), S::splat_i(0x7FFF_FFFF)) }
}

/// The largest magnitude of a row; a NaN counts as larger than any number.
///
/// # Safety
/// As for [`Simd`]; the row is a multiple of 16 long.
#[inline(always)]
pub unsafe fn largest_magnitude<S: Simd>(x: &[f32]) -> f32 {
    // SAFETY: the caller has the instructions of S; every access is below the length.
    unsafe {
        let mut largest = S::splat_i(0);
        for i in (0..x.len()).step_by(LANES) {
            largest = S::max_i(largest, abs_bits::<S>(S::load_f(x.as_ptr().add(i))));
        }
        let mut lanes = [0_i32; LANES];
        S::store_i(lanes.as_mut_ptr(), largest);
        f32::from_bits(lanes.into_iter().fold(0, i32::max) as u32)
    }
}

/// `+0 if Bits(|x|) < Bits(2^-60), else x`.
#[inline(always)]
pub unsafe fn snap<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let limit = S::splat_i(SNAP_LIMIT.to_bits() as i32);
        S::from_bits(S::select_lt(abs_bits::<S>(x), limit, S::splat_i(0), S::bits(x)))
    }
}

/// `Bits(v + 12582912.0) - 0x4B400000`.
#[inline(always)]
pub unsafe fn rne<S: Simd>(v: S::F) -> S::I {
    // SAFETY: the caller has the instructions of S.
    unsafe { S::sub_i(S::bits(S::add_f(v, S::splat_f(ROUNDER))), S::splat_i(0x4B40_0000)) }
}

/// The ordered integers of floats.
#[inline(always)]
pub unsafe fn ord<S: Simd>(x: S::F) -> S::I {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let bits = S::bits(x);
        S::xor_i(bits, S::and_i(S::sar_i::<31>(bits), S::splat_i(0x7FFF_FFFF)))
    }
}

/// `x`, or the nearer of the limits; `low` and `high` are plain numbers, not zero.
#[inline(always)]
pub unsafe fn clamp<S: Simd>(x: S::F, low: f32, high: f32) -> S::F {
    use unisonic_core::numerics::float::ord as ord_of;
    // SAFETY: the caller has the instructions of S. The map to ordered integers is its own inverse.
    unsafe {
        let ordered = S::min_i(S::max_i(ord::<S>(x), S::splat_i(ord_of(low))), S::splat_i(ord_of(high)));
        S::from_bits(ord::<S>(S::from_bits(ordered)))
    }
}

/// `2^t = P*2^n`: (P, n).
#[inline(always)]
pub unsafe fn exp2_pair<S: Simd>(t: S::F) -> (S::F, S::I) {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let rounder = S::splat_f(ROUNDER);
        let z = S::add_f(t, rounder);
        let n = S::sub_i(S::bits(z), S::splat_i(0x4B40_0000));
        let r = S::sub_f(t, S::sub_f(z, rounder));
        let mut p = S::splat_f(EXP2[5]);
        for c in EXP2[..5].iter().rev() {
            p = S::add_f(S::mul_f(p, r), S::splat_f(*c));
        }
        (p, n)
    }
}

/// `bitcast(Bits(p) + (n << 23))`.
#[inline(always)]
pub unsafe fn scale_exponent<S: Simd>(p: S::F, n: S::I) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe { S::from_bits(S::add_i(S::bits(p), S::shl_i::<23>(n))) }
}

/// `2^t` for t that is not above 126 and may be far below -125, where the result is +0.
#[inline(always)]
unsafe fn exp2_of_negative<S: Simd>(t: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let (p, n) = exp2_pair::<S>(t);
        let value = S::bits(scale_exponent::<S>(p, n));
        let limit = S::splat_i(unisonic_core::numerics::float::ord(-125.0));
        S::from_bits(S::select_lt(ord::<S>(t), limit, S::splat_i(0), value))
    }
}

/// `1/x`, 2^-125 <= x <= 2^125.
#[inline(always)]
pub unsafe fn recip<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let mut r = S::from_bits(S::sub_i(S::splat_i(0x7EF3_11C7), S::bits(x)));
        for _ in 0..3 {
            r = S::mul_f(r, S::sub_f(S::splat_f(2.0), S::mul_f(x, r)));
        }
        r
    }
}

/// `1/(1 + e^-x)`.
#[inline(always)]
pub unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let magnitude = S::from_bits(abs_bits::<S>(x));
        let negated = S::xor_i(S::bits(S::mul_f(magnitude, S::splat_f(LOG2E))), S::splat_i(i32::MIN));
        let e = exp2_of_negative::<S>(S::from_bits(negated));
        let r = recip::<S>(S::add_f(S::splat_f(1.0), e));
        let of_negative = S::bits(S::mul_f(e, r));
        S::from_bits(S::select_lt(S::bits(x), S::splat_i(0), of_negative, S::bits(r)))
    }
}

/// `snap((g*sigmoid(g))*u)`.
#[inline(always)]
pub unsafe fn swiglu<S: Simd>(gate: S::F, up: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe { snap::<S>(S::mul_f(S::mul_f(gate, sigmoid::<S>(gate)), up)) }
}

/// `snap(g*sigmoid(k*(C1 + (k*k)*C2))*u)`, k = g clamped to ±64.
#[inline(always)]
pub unsafe fn gelu_gate<S: Simd>(gate: S::F, up: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe { snap::<S>(S::mul_f(gelu_unsnapped::<S>(gate), up)) }
}

/// `snap(x*sigmoid(k*(C1 + (k*k)*C2)))`, k = x clamped to ±64.
#[inline(always)]
pub unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe { snap::<S>(gelu_unsnapped::<S>(x)) }
}

#[inline(always)]
unsafe fn gelu_unsnapped<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let k = clamp::<S>(x, -64.0, 64.0);
        let inner = S::add_f(S::splat_f(GELU_C1), S::mul_f(S::mul_f(k, k), S::splat_f(GELU_C2)));
        S::mul_f(x, sigmoid::<S>(S::mul_f(k, inner)))
    }
}

/// `c*(2*sigmoid(2*(x*f32(1/c))) - 1)`.
#[inline(always)]
pub unsafe fn soft_cap<S: Simd>(x: S::F, cap: f32) -> S::F {
    // SAFETY: the caller has the instructions of S.
    unsafe {
        let reciprocal = unisonic_core::numerics::float::reciprocal_constant(cap);
        let u = S::mul_f(x, S::splat_f(reciprocal));
        let s = sigmoid::<S>(S::mul_f(S::splat_f(2.0), u));
        S::mul_f(S::splat_f(cap), S::sub_f(S::mul_f(S::splat_f(2.0), s), S::splat_f(1.0)))
    }
}
