//! Digits: the sums of an activation over sub-blocks as bytes, which a matrix instruction multiplies with
//! integer minima.
//!
//! A format with integer minima subtracts `dmin * sum over j of m_j*bs_j`, bs_j the sum of X over sub-block j
//! (docs/numerics.md, linear layers), and a sum is no byte. So `bs = u + 1024*v`,
//! `u = ((bs + 512) & 1023) - 512`, and u and v each are a weighted sum of digits, which are bytes
//! ([`Digits::weights`]):
//!
//! | digits | formats | sub-blocks | minima | u and v | digits of x |
//! |---|---|---|---|---|---|
//! | [`Digits::Eight`] | Q4_K, Q5_K | 8 of 32 | up to 63 | `e0 + 2*(e1 + e2 + e3)` | `e0 = x & 1`, `w = x >> 1` (arithmetic), `e1 = clamp(w, -127, 127)`, `e2 = clamp(w - e1, -127, 127)`, `e3 = w - e1 - e2` |
//! | [`Digits::Sixteen`] | Q2_K | 16 of 16 | up to 15 | `e0 + 8*e1` | `e0 = x & 7`, `e1 = x >> 3` |
//!
//! Digit e of sub-block j is byte `k = sub-blocks*e + j` of 32, of u and of v; where bytes lie says
//! [`super::activation::ActivationLayout::digit_index`]. The weights of digits are
//! multiplied with the minima instead: a minimum times the largest of them is a byte too.

use super::weight::WeightFormat;
use crate::format::blocks::BlockFormat;
use crate::numerics::a16::SUPERBLOCK;

/// The digits that a weight format needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digits {
    /// Of the sums over 8 sub-blocks of 32: Q4_K, Q5_K.
    Eight,
    /// Of the sums over 16 sub-blocks of 16: Q2_K.
    Sixteen,
}

impl Digits {
    /// All.
    pub const ALL: [Digits; 2] = [Digits::Eight, Digits::Sixteen];

    /// Those that weights of a format are multiplied with; none without integer minima.
    pub fn of(format: WeightFormat) -> Option<Self> {
        match format {
            WeightFormat::Block(BlockFormat::Q4_K | BlockFormat::Q5_K) => Some(Digits::Eight),
            WeightFormat::Block(BlockFormat::Q2_K) => Some(Digits::Sixteen),
            _ => None,
        }
    }

    /// Sub-blocks of a superblock.
    pub fn sub_blocks(self) -> usize {
        match self {
            Digits::Eight => 8,
            Digits::Sixteen => 16,
        }
    }

    /// Elements of a sub-block.
    pub fn sub_block(self) -> usize {
        SUPERBLOCK / self.sub_blocks()
    }

    /// Powers of two that digits are multiplied with, one a digit: `32 / sub-blocks` of them.
    pub fn weights(self) -> &'static [i32] {
        match self {
            Digits::Eight => &[1, 2, 2, 2],
            Digits::Sixteen => &[1, 8],
        }
    }

    /// The digits of the sum of a sub-block, for u and for v: `[u, v][e]`, as many as weights.
    pub fn split(self, sum: i32) -> [[i8; 4]; 2] {
        let u = ((sum + 512) & 1023) - 512;
        [u, (sum - u) >> 10].map(|x| match self {
            Digits::Eight => {
                let half = x >> 1;
                let e1 = half.clamp(-127, 127);
                let e2 = (half - e1).clamp(-127, 127);
                [x & 1, e1, e2, half - e1 - e2].map(|digit| digit as i8)
            }
            Digits::Sixteen => [x & 7, x >> 3, 0, 0].map(|digit| digit as i8),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digits of every sum that can occur give it back, weighted as the kernels weigh them.
    #[test]
    fn digits_are_their_sum() {
        for digits in Digits::ALL {
            assert_eq!(digits.weights().len() * digits.sub_blocks(), 32);
            let limit = digits.sub_block() as i32 * 16319;
            for sum in -limit..=limit {
                let [u, v] = digits.split(sum).map(|parts| {
                    let weighted = parts.iter().zip(digits.weights());
                    weighted.map(|(&digit, weight)| i32::from(digit) * weight).sum::<i32>()
                });
                assert_eq!(u + 1024 * v, sum, "{digits:?}");
                assert!(digits.split(sum).as_flattened().iter().all(|&digit| digit > -128), "{sum}");
            }
        }
    }

    /// A format has digits exactly where the reference subtracts minima of sub-blocks; those of blocks are
    /// sums.
    #[test]
    fn formats_with_integer_minima_have_digits() {
        for format in BlockFormat::ALL {
            let has_minima = format.has_minimum() && format.elems() == SUPERBLOCK;
            assert_eq!(Digits::of(WeightFormat::Block(format)).is_some(), has_minima, "{}", format.name());
        }
        assert_eq!(Digits::of(WeightFormat::W16), None);
    }
}
