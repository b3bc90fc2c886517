//! What buffers of cases hold: edge values in every combination, then random ones; never what an operation
//! excludes.

use super::super::Scalar;
use super::super::op::Op;

/// What a buffer holds at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Integers or bytes.
    Words,
    /// Finite floats.
    Floats,
    /// 0 and 1.
    Bools,
    /// What is no 0.
    Divisors,
    /// Below 32.
    ShiftAmounts,
    /// Pairs of halves, no infinity or NaN.
    Halves,
    /// What the kernel writes over.
    Output,
}

/// Which floats a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floats {
    /// All finite ones: for devices that keep subnormals.
    Finite,
    /// Those whose sums and products are normal or 0 (docs/numerics.md, "Why flush-to-zero cannot matter").
    Normal,
}

const WORD_EDGES: &[u32] = &[
    0,
    1,
    2,
    0xFF,
    0x80,
    0x7F,
    0x8080_8080,
    0x7F7F_7F7F,
    0xFFFF_FFFF,
    0x8000_0000,
    0x7FFF_FFFF,
    0x0100_0001,
];
/// 0, -0, 1, -1, odd and even mantissas around ties, the range of the contract.
const FLOAT_EDGES: &[u32] = &[
    0,
    0x8000_0000,
    0x3F80_0000,
    0xBF80_0000,
    0x3F80_0001,
    0x3F7F_FFFF,
    0x3380_0000,
    0xB380_0000,
    0x33FF_FFFF,
    0x4B40_0000,
    0x4B40_0001,
    0x2180_0000,
    0xA1FF_FFFF,
    0x5D80_0000,
];
/// The smallest and largest subnormals, the smallest normal number, the largest one.
const OUTER_FLOAT_EDGES: &[u32] =
    &[0x0000_0001, 0x8000_0001, 0x007F_FFFF, 0x0080_0000, 0x8080_0001, 0x7F7F_FFFF];
const HALF_EDGES: &[u32] = &[0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x3C00, 0x3555];
/// What outputs hold before they are written.
const UNWRITTEN: u32 = 0xDEAD_BEEF;

impl Contents {
    /// What operand `number` of an operation may be.
    pub fn of_operand(op: Op, number: usize, scalar: Scalar) -> Self {
        match (op, number) {
            (Op::UDiv | Op::URem, 1) => Contents::Divisors,
            (Op::Shl | Op::Shr, 1) => Contents::ShiftAmounts,
            (Op::Half, _) => Contents::Halves,
            _ => Contents::of(scalar),
        }
    }

    /// All that a type has.
    pub fn of(scalar: Scalar) -> Self {
        match scalar {
            Scalar::F32 => Contents::Floats,
            Scalar::Bool => Contents::Bools,
            Scalar::U32 | Scalar::I32 | Scalar::I8x4 | Scalar::U8x4 => Contents::Words,
        }
    }

    /// Values that are special, for floats of both kinds.
    fn edges(self) -> Vec<u32> {
        match self {
            Contents::Words => WORD_EDGES.to_vec(),
            Contents::Floats => FLOAT_EDGES.to_vec(),
            Contents::Bools => vec![0, 1],
            Contents::Divisors => WORD_EDGES.iter().copied().filter(|&word| word != 0).collect(),
            Contents::ShiftAmounts => vec![0, 1, 16, 31],
            Contents::Halves => HALF_EDGES.iter().map(|&half| half << 16 | half).collect(),
            Contents::Output => vec![UNWRITTEN],
        }
    }

    /// Constants that stand for an operand. No float is 0: a driver that does not keep the signs of zeros may
    /// take `x + 0` for x.
    pub fn constants(self) -> Vec<u32> {
        let is_zero = |word: u32| self == Contents::Floats && word << 1 == 0;
        self.edges().into_iter().filter(|&word| !is_zero(word)).collect()
    }

    fn random(self, floats: Floats, word: u64) -> u32 {
        let (low, high) = (word as u32, (word >> 32) as u32);
        match self {
            Contents::Words => low,
            Contents::Floats => {
                // Exponents of 2^-60 to 2^60, or of every finite number.
                let exponent = if floats == Floats::Normal { 67 + high % 121 } else { high % 255 };
                (low & 0x807F_FFFF) | exponent << 23
            }
            Contents::Bools => low & 1,
            // Small ones too.
            Contents::Divisors => (low >> (high & 31)).max(1),
            Contents::ShiftAmounts => low & 31,
            Contents::Halves => {
                let half = |half: u32| if half & 0x7C00 == 0x7C00 { half & !0x0400 } else { half };
                half(low & 0xFFFF) | half(low >> 16) << 16
            }
            Contents::Output => UNWRITTEN,
        }
    }
}

/// Bytes of buffers of so many words: the edge values of each meet those of the others, as far as half of a
/// buffer goes; then come random ones, the same in every run.
pub fn fill(buffers: &[(Contents, u32)], floats: Floats) -> Vec<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    let mut turns = 1;
    let mut filled = Vec::new();
    for &(contents, len) in buffers {
        let mut edges = contents.edges();
        if (contents, floats) == (Contents::Floats, Floats::Finite) {
            edges.extend(OUTER_FLOAT_EDGES);
        }
        let len = len as usize;
        let all_met = (turns * edges.len()).min(len / 2);
        let words = (0..len).map(|i| match i < all_met {
            true => edges[i / turns % edges.len()],
            false => contents.random(floats, next()),
        });
        filled.push(words.flat_map(u32::to_le_bytes).collect());
        turns = (turns * edges.len()).min(len.max(1));
    }
    filled
}
