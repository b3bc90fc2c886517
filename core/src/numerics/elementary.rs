//! Exponentials, reciprocals and logarithms from add, multiply and bit operations
//! (docs/numerics.md "Elementary functions", with the measured error of each).

use super::float::{LOG2E, ROUNDER, abs_bits, i2f, ord, rne};

/// c0..c5 of the polynomial of 2^r on [-0.5, 0.5].
pub const EXP2: [f32; 6] = [
    f32::from_bits(0x3F80_0000),
    f32::from_bits(0x3F31_7215),
    f32::from_bits(0x3E75_FCDE),
    f32::from_bits(0x3D63_5BA9),
    f32::from_bits(0x3C1E_7544),
    f32::from_bits(0x3AAD_DD0A),
];

/// `2^t = P * 2^n` for |t| <= 2^20, with P in [0.7071, 1.4143]. Returns (P, n).
///
/// `z = t + 12582912.0; n = Bits(z) - 0x4B400000; r = t - (z - 12582912.0);`
/// `P = c5; P = P*r + c4; ... P = P*r + c0` (multiply, then add).
#[inline]
pub fn exp2_pair(t: f32) -> (f32, i32) {
    let n = rne(t);
    let r = t - ((t + ROUNDER) - ROUNDER);
    let [c0, c1, c2, c3, c4, c5] = EXP2;
    let p = ((((c5 * r + c4) * r + c3) * r + c2) * r + c1) * r + c0;
    (p, n)
}

/// `p * 2^n` by exponent arithmetic: `bitcast(Bits(p) + (n << 23))`; exact while the result is a normal
/// number.
#[inline]
pub fn scale_exponent(p: f32, n: i32) -> f32 {
    f32::from_bits(p.to_bits().wrapping_add((n as u32) << 23))
}

/// `2^t`: +0 below t = -125; t above 126 counts as 126; else `bitcast(Bits(P) + (n << 23))`.
#[inline]
pub fn exp2(t: f32) -> f32 {
    if ord(t) < ord(-125.0) {
        return 0.0;
    }
    let (p, n) = exp2_pair(if ord(t) > ord(126.0) { 126.0 } else { t });
    scale_exponent(p, n)
}

/// `e^x = exp2(x*LOG2E)`.
pub fn exp(x: f32) -> f32 {
    exp2(x * LOG2E)
}

/// `1/x` for 2^-125 <= x <= 2^125: `r = bitcast(0x7EF311C7 - Bits(x))`, then 3 times `r = r*(2 - x*r)`.
pub fn recip(x: f32) -> f32 {
    let mut r = f32::from_bits(0x7EF3_11C7_u32.wrapping_sub(x.to_bits()));
    for _ in 0..3 {
        r *= 2.0 - x * r;
    }
    r
}

/// `1/sqrt(x)` for 2^-125 <= x <= 2^125:
/// `y = bitcast(0x5F375A86 - (Bits(x) >> 1)); h = 0.5*x`, then 3 times `y = y*(1.5 - (h*y)*y)`.
pub fn rsqrt(x: f32) -> f32 {
    let mut y = f32::from_bits(0x5F37_5A86_u32.wrapping_sub(x.to_bits() >> 1));
    let h = 0.5 * x;
    for _ in 0..3 {
        y *= 1.5 - (h * y) * y;
    }
    y
}

/// `1/(1 + e^-x)`: `e = exp2(-(|x|*LOG2E)); r = recip(1 + e); sign bit of x clear ? r : e*r`.
pub fn sigmoid(x: f32) -> f32 {
    let e = exp2(-(f32::from_bits(abs_bits(x)) * LOG2E));
    let r = recip(1.0 + e);
    if x.to_bits() >> 31 == 0 { r } else { e * r }
}

/// Coefficients of the logarithm's polynomial, highest power first.
pub const LOG: [f32; 9] = [
    f32::from_bits(0x3D90_21BB), // 7.0376836292E-2
    f32::from_bits(0xBDEB_D1B8), // -1.1514610310E-1
    f32::from_bits(0x3DEF_251A), // 1.1676998740E-1
    f32::from_bits(0xBDFE_5D4F), // -1.2420140846E-1
    f32::from_bits(0x3E11_E9BF), // 1.4249322787E-1
    f32::from_bits(0xBE2A_AE50), // -1.6668057665E-1
    f32::from_bits(0x3E4C_CEAC), // 2.0000714765E-1
    f32::from_bits(0xBE7F_FFFC), // -2.4999993993E-1
    f32::from_bits(0x3EAA_AAAA), // 3.3333331174E-1
];
/// Low part of ln 2, negative: `f32(-2.12194440e-4)`.
pub const LOG_LN2_LOW: f32 = f32::from_bits(0xB95E_8083);
/// High part of ln 2, exact in 10 bits: 0.693359375.
pub const LOG_LN2_HIGH: f32 = f32::from_bits(0x3F31_8000);
/// `f32(0.2928)`: up to here [`log1m`] uses its polynomial directly.
pub const LOG1M_DIRECT: f32 = f32::from_bits(0x3E95_E9E2);

/// `ln(1 + r) + e*ln 2`, |r| below about 0.42:
/// `z = r*r; p = Horner(r); y = (p*r)*z; y = y + e*LOW; y = y - 0.5*z; (r + y) + e*HIGH`.
fn log_near_one(r: f32, e: f32) -> f32 {
    let z = r * r;
    let mut p = LOG[0];
    for c in &LOG[1..] {
        p = p * r + c;
    }
    let mut y = (p * r) * z;
    y += e * LOG_LN2_LOW;
    y -= 0.5 * z;
    (r + y) + e * LOG_LN2_HIGH
}

/// `ln x` for a normal x > 0:
/// `k = (Bits(x) - 0x3F3504F3) >> 23` (arithmetic), `m = bitcast(Bits(x) - (k << 23))`, then `ln m + k*ln 2`.
pub fn log(x: f32) -> f32 {
    let k = (x.to_bits().wrapping_sub(0x3F35_04F3) as i32) >> 23;
    let m = scale_exponent(x, -k);
    log_near_one(m - 1.0, i2f(k))
}

/// `ln(1 - w)` for 2^-32 <= w < 1: the polynomial at r = -w up to w = f32(0.2928), else `log(1 - w)`.
pub fn log1m(w: f32) -> f32 {
    if ord(w) <= ord(LOG1M_DIRECT) { log_near_one(-w, 0.0) } else { log(1.0 - w) }
}
