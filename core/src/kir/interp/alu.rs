//! Arithmetic on words.

/// One word of each invocation's operand.
pub fn each1(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32) -> u32) {
    out.iter_mut().zip(x[0]).for_each(|(out, &a)| *out = f(a));
}

/// One word of each of two operands.
pub fn each2(x: &[&[u32]], out: &mut [u32], f: impl Fn(u32, u32) -> u32) {
    out.iter_mut().zip(x[0]).zip(x[1]).for_each(|((out, &a), &b)| *out = f(a, b));
}

/// Two operands as signed integers.
pub fn signed(x: &[&[u32]], out: &mut [u32], f: impl Fn(i32, i32) -> i32) {
    each2(x, out, |a, b| f(a as i32, b as i32) as u32);
}

/// Two operands as floats.
pub fn floats(x: &[&[u32]], out: &mut [u32], f: impl Fn(f32, f32) -> f32) {
    each2(x, out, |a, b| f(f32::from_bits(a), f32::from_bits(b)).to_bits());
}

/// `a ? b : c`.
pub fn select(x: &[&[u32]], out: &mut [u32]) {
    for (((out, &holds), &yes), &no) in out.iter_mut().zip(x[0]).zip(x[1]).zip(x[2]) {
        *out = if holds != 0 { yes } else { no };
    }
}
