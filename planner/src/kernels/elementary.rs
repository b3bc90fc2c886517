//! `core::numerics::{float, elementary, activation, range}` on values of a kernel: the same operations in the
//! same order, word by word on vectors.

use unisonic_core::kir::Scalar;
use unisonic_core::kir::build::{Build, V};
use unisonic_core::numerics::activation::{GELU_C1, GELU_C2};
use unisonic_core::numerics::elementary::EXP2;
use unisonic_core::numerics::float::{LOG2E, ROUNDER, SNAP_LIMIT, ord as ord_of, reciprocal_constant};
use unisonic_core::plan::Activation;

/// A float constant of as many words as `x`.
pub fn like<'k>(k: &'k Build, x: V<'k>, value: f32) -> V<'k> {
    k.constant(x.ty().with(Scalar::F32), value.to_bits())
}

/// Whether a bool is false.
pub fn not(x: V<'_>) -> V<'_> {
    x ^ x.constant(1)
}

/// `Bits(|x|)`, as i32: patterns without a sign are ordered like integers.
pub fn abs_bits(x: V<'_>) -> V<'_> {
    x.cast(Scalar::I32) & 0x7FFF_FFFF
}

/// Whether |x| is below a limit; false for infinities and NaN.
pub fn is_below<'k>(k: &'k Build, x: V<'k>, limit: f32) -> V<'k> {
    abs_bits(x).lt(k.constant(x.ty().with(Scalar::I32), limit.to_bits()))
}

/// `+0 if |x| < 2^-60, else x`.
pub fn snap<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    is_below(k, x, SNAP_LIMIT).select(like(k, x, 0.0), x)
}

/// Nearest integer, ties to even, for |v| < 2^22.
pub fn rne<'k>(k: &'k Build, v: V<'k>) -> V<'k> {
    (v + like(k, v, ROUNDER)).cast(Scalar::I32) - 0x4B40_0000
}

/// The ordered integer of a float: `i < 0 ? i ^ 0x7FFFFFFF : i`, i its bits.
pub fn ord(x: V<'_>) -> V<'_> {
    let i = x.cast(Scalar::I32);
    i ^ ((i >> 31) & 0x7FFF_FFFF)
}

/// Whether `x` lies below a constant, by [`ord`].
fn ord_is_below<'k>(k: &'k Build, x: V<'k>, limit: f32) -> V<'k> {
    ord(x).lt(k.constant(x.ty().with(Scalar::I32), ord_of(limit) as u32))
}

/// Whether `x` lies above a constant, by [`ord`].
fn ord_is_above<'k>(k: &'k Build, x: V<'k>, limit: f32) -> V<'k> {
    k.constant(x.ty().with(Scalar::I32), ord_of(limit) as u32).lt(ord(x))
}

/// `x`, or the nearer of two constants where [`ord`] places x outside them.
pub fn clamp<'k>(k: &'k Build, x: V<'k>, low: f32, high: f32) -> V<'k> {
    let at_least = ord_is_below(k, x, low).select(like(k, x, low), x);
    ord_is_above(k, x, high).select(like(k, x, high), at_least)
}

/// `2^t = P * 2^n` for |t| <= 2^20: (P, n).
pub fn exp2_pair<'k>(k: &'k Build, t: V<'k>) -> (V<'k>, V<'k>) {
    let rounder = like(k, t, ROUNDER);
    let z = t + rounder;
    let n = z.cast(Scalar::I32) - 0x4B40_0000;
    let r = t - (z - rounder);
    let [c0, c1, c2, c3, c4, c5] = EXP2;
    let p = [c4, c3, c2, c1, c0].into_iter().fold(like(k, t, c5), |p, c| p * r + like(k, t, c));
    (p, n)
}

/// `p * 2^n` by exponent arithmetic: `bitcast(Bits(p) + (n << 23))`.
pub fn scale_exponent<'k>(p: V<'k>, n: V<'k>) -> V<'k> {
    (p.cast(Scalar::I32) + (n << 23)).cast(Scalar::F32)
}

/// `2^t`: +0 below t = -125; t above 126 counts as 126.
pub fn exp2<'k>(k: &'k Build, t: V<'k>) -> V<'k> {
    let limited = ord_is_above(k, t, 126.0).select(like(k, t, 126.0), t);
    let (p, n) = exp2_pair(k, limited);
    ord_is_below(k, t, -125.0).select(like(k, t, 0.0), scale_exponent(p, n))
}

/// `1/x` for 2^-125 <= x <= 2^125.
pub fn recip<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    let bits = x.cast(Scalar::I32);
    let mut r = (bits.constant(0x7EF3_11C7) - bits).cast(Scalar::F32);
    for _ in 0..3 {
        r = r * (like(k, x, 2.0) - x * r);
    }
    r
}

/// `1/sqrt(x)` for 2^-125 <= x <= 2^125.
pub fn rsqrt<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    let half_bits = x.cast(Scalar::U32) >> 1;
    let mut y = (half_bits.constant(0x5F37_5A86) - half_bits).cast(Scalar::F32);
    let h = like(k, x, 0.5) * x;
    for _ in 0..3 {
        y = y * (like(k, x, 1.5) - (h * y) * y);
    }
    y
}

/// `1/(1 + e^-x)`.
pub fn sigmoid<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    // The sign of a product is that of its factors, so a negated constant negates it exactly.
    let e = exp2(k, abs_bits(x).cast(Scalar::F32) * like(k, x, -LOG2E));
    let r = recip(k, like(k, x, 1.0) + e);
    let bits = x.cast(Scalar::I32);
    bits.lt(bits.constant(0)).select(e * r, r)
}

/// `snap((g*sigmoid(g))*u)`.
pub fn swiglu<'k>(k: &'k Build, gate: V<'k>, up: V<'k>) -> V<'k> {
    snap(k, (gate * sigmoid(k, gate)) * up)
}

/// Gated GELU, tanh form: `snap((g*sigmoid(k*(C1 + (k*k)*C2)))*u)`, k = g clamped to ±64.
pub fn gelu_gate<'k>(k: &'k Build, gate: V<'k>, up: V<'k>) -> V<'k> {
    snap(k, gelu_unsnapped(k, gate) * up)
}

/// GELU without a gate, tanh form: `snap(x*sigmoid(k*(C1 + (k*k)*C2)))`, k = x clamped to ±64.
pub fn gelu<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    snap(k, gelu_unsnapped(k, x))
}

fn gelu_unsnapped<'k>(k: &'k Build, x: V<'k>) -> V<'k> {
    let clamped = clamp(k, x, -64.0, 64.0);
    let inner = clamped * (like(k, x, GELU_C1) + (clamped * clamped) * like(k, x, GELU_C2));
    x * sigmoid(k, inner)
}

/// `act(gate)*up`.
pub fn gate<'k>(k: &'k Build, activation: Activation, gate: V<'k>, up: V<'k>) -> V<'k> {
    match activation {
        Activation::Silu => swiglu(k, gate, up),
        Activation::Gelu => gelu_gate(k, gate, up),
    }
}

/// `c*tanh(x/c)`: `u = x*f32(1/c); y = c*(2*sigmoid(2*u) - 1)`. Not snapped.
pub fn soft_cap<'k>(k: &'k Build, x: V<'k>, cap: f32) -> V<'k> {
    let u = x * like(k, x, reciprocal_constant(cap));
    let two = like(k, x, 2.0);
    like(k, x, cap) * (two * sigmoid(k, two * u) - like(k, x, 1.0))
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::interp::{Launch, run};
    use unisonic_core::kir::{Kernel, Scalar, build::kernel, verify};
    use unisonic_core::numerics::float::{ord, pow2};
    use unisonic_core::numerics::{activation, elementary, float};

    use super::super::tests::{bytes, rows, words};
    use super::{Build, V};

    /// Numbers at which something changes, their neighbours, and rows of others: all of either sign.
    fn values() -> Vec<f32> {
        let edges = [0.0, 0.5, 1.0, 1.5, 2.5, 30.0, 64.0, 88.0, 125.0, 126.0, 127.0, 1000.0];
        let powers = [-126, -125, -61, -60, -59, -40, -25, -24, 20, 21, 22, 56, 64, 100, 125, 127].map(pow2);
        let near = |x: f32| [-1, 0, 1].map(|step| f32::from_bits(x.to_bits().saturating_add_signed(step)));
        let mut values: Vec<f32> = edges.into_iter().chain(powers).flat_map(near).collect();
        values.extend([f32::INFINITY, f32::from_bits(0x7FC0_0000)]);
        values.extend(rows(1, 1500, 7));
        values.extend(rows(1, 500, 8).iter().map(|x| x * 64.0));
        let negative: Vec<f32> = values.iter().map(|x| -x).collect();
        values.extend(negative);
        values.resize(values.len().next_multiple_of(256), 1.0);
        values
    }

    /// A kernel of a function of two values, in vectors of `width`.
    fn of_two(width: u8, f: impl for<'k> Fn(&'k Build, V<'k>, V<'k>) -> V<'k>) -> Kernel {
        kernel("of_two", 64, |k| {
            let (x, y, z) = (k.read("x", Scalar::F32), k.read("y", Scalar::F32), k.write("z", Scalar::U32));
            let i = (k.group_id() * 64 + k.local_id()) * u32::from(width);
            z.store(i, f(k, x.load_vector(i, width), y.load_vector(i, width)).cast(Scalar::U32));
        })
    }

    fn check(
        what: &str,
        is_in_domain: impl Fn(f32) -> bool,
        f: impl for<'k> Fn(&'k Build, V<'k>, V<'k>) -> V<'k>,
        expected: impl Fn(f32, f32) -> u32,
    ) {
        let x: Vec<f32> = values().into_iter().map(|x| if is_in_domain(x) { x } else { 1.0 }).collect();
        let y: Vec<f32> = x.iter().rev().map(|&y| if y.abs() < 4096.0 { y } else { -1.25 }).collect();
        for width in [1, 2, 4] {
            let kernel = of_two(width, &f);
            assert_eq!(verify(&kernel), [], "{what}\n{kernel}");
            let mut launch = Launch {
                groups: x.len() as u32 / 64 / u32::from(width),
                params: vec![],
                buffers: vec![bytes(&x), bytes(&y), vec![0; 4 * x.len()]],
                fuel: u64::MAX,
            };
            run(&kernel, &mut launch).unwrap_or_else(|trap| panic!("{what}: {trap}"));
            for ((&x, &y), found) in x.iter().zip(&y).zip(words(&launch.buffers[2])) {
                assert_eq!(found, expected(x, y), "{what}({x:e}, {y:e}) in vectors of {width}");
            }
        }
    }

    #[test]
    fn equal_the_reference() {
        let any = |_: f32| true;
        let finite = |x: f32| x.is_finite();
        let up_to = |limit: f32| move |x: f32| x.abs() <= limit;
        let normal = |x: f32| ord(x) >= ord(pow2(-125)) && ord(x) <= ord(pow2(125));
        check("snap", any, |k, x, _| super::snap(k, x), |x, _| float::snap(x).to_bits());
        check("ord", any, |_, x, _| super::ord(x).cast(Scalar::F32), |x, _| float::ord(x) as u32);
        check(
            "clamp",
            any,
            |k, x, _| super::clamp(k, x, -64.0, 64.0),
            |x, _| float::clamp(x, -64.0, 64.0).to_bits(),
        );
        check("rne", up_to(4e6), |k, x, _| super::rne(k, x).cast(Scalar::F32), |x, _| float::rne(x) as u32);
        check(
            "exp2_pair.p",
            up_to(pow2(20)),
            |k, x, _| super::exp2_pair(k, x).0,
            |x, _| elementary::exp2_pair(x).0.to_bits(),
        );
        check(
            "exp2_pair.n",
            up_to(pow2(20)),
            |k, x, _| super::exp2_pair(k, x).1.cast(Scalar::F32),
            |x, _| elementary::exp2_pair(x).1 as u32,
        );
        check("exp2", any, |k, x, _| super::exp2(k, x), |x, _| elementary::exp2(x).to_bits());
        check("recip", normal, |k, x, _| super::recip(k, x), |x, _| elementary::recip(x).to_bits());
        check("rsqrt", normal, |k, x, _| super::rsqrt(k, x), |x, _| elementary::rsqrt(x).to_bits());
        check("sigmoid", finite, |k, x, _| super::sigmoid(k, x), |x, _| elementary::sigmoid(x).to_bits());
        check("swiglu", finite, super::swiglu, |x, y| activation::swiglu(x, y).to_bits());
        check("gelu_gate", finite, super::gelu_gate, |x, y| activation::gelu_gate(x, y).to_bits());
        check("gelu", finite, |k, x, _| super::gelu(k, x), |x, _| activation::gelu(x).to_bits());
        for cap in [pow2(-10), 30.0, 50.0, pow2(20)] {
            let f = |x: f32, _: f32| activation::soft_cap(x, cap).to_bits();
            check("soft_cap", up_to(pow2(64)), |k, x, _| super::soft_cap(k, x, cap), f);
        }
    }
}
