//! Exact integer sums over int8 planes. Every sum fits i32 by the bounds of docs/numerics.md, so their order is free.
//!
//! Sums are written with `wrapping_add` only because overflow checks would keep the compiler from using vector
//! instructions in test builds; `core/tests/bounds.rs` shows that nothing wraps.

/// `X = 128*h + l` with l in [-64, 63]. Returns (h, l); for |X| <= 16319, |h| <= 127.
pub fn split(x: i32) -> (i8, i8) {
    let high = (x + 64) >> 7;
    (high as i8, (x - 128 * high) as i8)
}

/// `128*h + l`.
pub fn join(high: i8, low: i8) -> i32 {
    128 * i32::from(high) + i32::from(low)
}

/// `sum a_i*b_i`.
pub fn dot(a: &[i8], b: &[i8]) -> i32 {
    let (a32, a_rest) = a.as_chunks::<32>();
    let (b32, b_rest) = b.as_chunks::<32>();
    let long = a32.iter().zip(b32).fold(0_i32, |sum, (a, b)| sum.wrapping_add(dot_n(a, b)));
    let rest = a_rest.iter().zip(b_rest).map(|(&a, &b)| i32::from(a) * i32::from(b));
    rest.fold(long, i32::wrapping_add)
}

/// `sum a_i*b_i` over a length known when compiling.
// Kept a function of its own: inlined, the loop is unrolled before it can be vectorised, which costs a factor of 3.
#[inline(never)]
pub fn dot_n<const N: usize>(a: &[i8; N], b: &[i8; N]) -> i32 {
    let mut sum = 0_i32;
    for i in 0..N {
        sum = sum.wrapping_add(i32::from(a[i]) * i32::from(b[i]));
    }
    sum
}

/// `sum a_i` over a length known when compiling.
pub fn sum_n<const N: usize>(a: &[i8; N]) -> i32 {
    dot_n(a, &[1; N])
}
