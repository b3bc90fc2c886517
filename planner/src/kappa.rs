//! The score scale of attention as it enters the arithmetic (docs/numerics.md "KV cache and attention").

/// `f32(log2(e) / sqrt(n))`: the default scale 1/sqrt(n) times log2(e), the real number rounded once. n is the head
/// length, or what a model divides by in its place; 1 to 2^20.
///
/// Computed in f64 with an error far below an f32 step; a test compares every n with exact integers.
pub fn kappa(n: u32) -> f32 {
    (std::f64::consts::LOG2_E / f64::from(n).sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::kappa;

    #[test]
    fn known_answers() {
        let table = [
            (32, 0x3E82_93EE),
            (64, 0x3E38_AA3B),
            (80, 0x3E25_2B5C),
            (96, 0x3E16_C740),
            (112, 0x3E0B_97F6),
            (128, 0x3E02_93EE),
            (192, 0x3DD5_3B95),
            (256, 0x3DB8_AA3B),
            (512, 0x3D82_93EE),
        ];
        for (n, bits) in table {
            assert_eq!(kappa(n).to_bits(), bits, "{n}");
        }
    }

    /// The square of a midpoint between floats, times n, is on the right side of log2(e)^2.
    #[test]
    fn rounded_correctly_for_every_length() {
        // floor(log2(e)^2 * 2^120)
        const LOG2_E_SQUARED: u128 = 0x214_D498_F853_F343_ED13_FDA0_8F3F_DF79;
        for n in 1..=1u32 << 20 {
            let bits = kappa(n).to_bits();
            // Twice the mantissa, and the exponent of half a unit in the last place: value = twice * 2^-half.
            let twice = u128::from((bits & 0x7F_FFFF) | 0x80_0000) * 2;
            let half = 151 - (bits >> 23);
            // midpoint^2 * n * 2^120, the midpoints being (twice ± 1) * 2^-half.
            let shift = 120 - 2 * half;
            let (below, above) = (twice - 1, twice + 1);
            assert!((below * below * u128::from(n)) << shift <= LOG2_E_SQUARED, "{n}");
            assert!((above * above * u128::from(n)) << shift > LOG2_E_SQUARED, "{n}");
        }
    }
}
