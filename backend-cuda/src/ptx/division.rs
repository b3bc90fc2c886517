//! Unsigned division by a constant, without dividing: the assembler divides by any number, 2 and 10 alike, in
//! about 20 instructions.
//!
//! Source: T. Granlund, P. L. Montgomery, "Division by invariant integers using multiplication" (PLDI 1994),
//! figure 4.1: with `l = ceil(log2 d)` and `m = floor(2^32 (2^l - d) / d) + 1`, the quotient of n is `(t +
//! ((n - t) >> 1)) >> (l - 1)`, `t = floor(m n / 2^32)`, for all n below 2^32.

use super::emitter::Emitter;
use super::registers::{File, Register};

/// What a constant divisor above 1 becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Divisor {
    /// 2^shift.
    PowerOfTwo { shift: u32 },
    /// Another number.
    Other { multiplier: u32, shift: u32 },
}

impl Divisor {
    fn new(divisor: u32) -> Self {
        if divisor.is_power_of_two() {
            return Self::PowerOfTwo { shift: divisor.trailing_zeros() };
        }
        // Not a power of two, so the bits that it has are the logarithm, rounded up.
        let log = u32::BITS - divisor.leading_zeros();
        // Below 2^32, as 2^l is below 2d.
        let multiplier = (((1_u64 << log) - u64::from(divisor)) << 32) / u64::from(divisor) + 1;
        Self::Other { multiplier: multiplier as u32, shift: log - 1 }
    }
}

/// `to = floor(n / divisor)` for a constant divisor above 1.
pub fn divide(e: &mut Emitter<'_>, to: Register, n: Register, divisor: u32) {
    match Divisor::new(divisor) {
        Divisor::PowerOfTwo { shift } => e.line(format_args!("shr.u32 {to}, {n}, {shift};")),
        Divisor::Other { multiplier, shift } => {
            let (high, rest) = (e.temporary(File::Temporary), e.temporary(File::Temporary));
            e.line(format_args!("mul.hi.u32 {high}, {n}, {multiplier};"));
            e.line(format_args!("sub.u32 {rest}, {n}, {high};"));
            e.line(format_args!("shr.u32 {rest}, {rest}, 1;"));
            e.line(format_args!("add.u32 {rest}, {rest}, {high};"));
            e.line(format_args!("shr.u32 {to}, {rest}, {shift};"));
        }
    }
}

/// `to = n mod divisor` for a constant divisor above 1.
pub fn remainder(e: &mut Emitter<'_>, to: Register, n: Register, divisor: u32) {
    if divisor.is_power_of_two() {
        return e.line(format_args!("and.b32 {to}, {n}, {};", divisor - 1));
    }
    let (quotient, whole) = (e.temporary(File::Temporary), e.temporary(File::Temporary));
    divide(e, quotient, n, divisor);
    e.line(format_args!("mul.lo.u32 {whole}, {quotient}, {divisor};"));
    e.line(format_args!("sub.u32 {to}, {n}, {whole};"));
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    fn quotient(n: u32, divisor: u32) -> u32 {
        match Divisor::new(divisor) {
            Divisor::PowerOfTwo { shift } => n >> shift,
            Divisor::Other { multiplier, shift } => {
                let high = ((u64::from(n) * u64::from(multiplier)) >> 32) as u32;
                (((n - high) >> 1) + high) >> shift
            }
        }
    }

    /// All small divisors, edges and a spread of others; numbers around multiples of the divisor and of 2^k.
    #[test]
    fn quotients_are_exact() {
        let spread = (0..2000_u32).map(|i| i.wrapping_mul(0x9E37_79B9) >> (i % 31));
        let edges = (0..32).flat_map(|k| [(1_u32 << k).wrapping_sub(1), 1 << k, (1 << k) + 1]);
        for divisor in (2..3000).chain(edges).chain(spread).chain([u32::MAX]).filter(|&divisor| divisor > 1) {
            let multiples = [1, 2, 3, u32::MAX / divisor / 2, u32::MAX / divisor];
            let around = multiples.into_iter().map(|factor| divisor.wrapping_mul(factor));
            for n in around.chain((0..32).map(|k| 1 << k)).chain([u32::MAX]) {
                for n in [n.wrapping_sub(1), n, n.wrapping_add(1)] {
                    assert_eq!(quotient(n, divisor), n / divisor, "{n} / {divisor}");
                }
            }
        }
    }
}
