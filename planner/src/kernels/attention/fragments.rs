//! Operands of integer matrix products over the dimensions of heads: planes of queries (A) and of keys (B), as
//! [`unisonic_core::kir::op::Op::Mma32`] takes them.
//!
//! A product's sum over dimensions is exact, so which dimension is which k of an instruction is free, if it is
//! the same for queries and keys. Invocation `4g + t` loads, of row or column g, 16 bytes: the sixteen
//! dimensions of block t of four. Their words are the operands of two instructions. Up to three blocks are left
//! over; of these it loads word t.

use unisonic_core::kir::build::{Build, Mem, V};

/// A row of a plane in memory: word w of block e (16 dimensions, 4 words) at `first + e*stride + w`.
#[derive(Clone, Copy)]
pub struct PlaneRow<'k> {
    /// Where.
    pub mem: Mem<'k>,
    /// Its first word.
    pub first: V<'k>,
    /// Words from a block to the next.
    pub stride: u32,
}

/// What an invocation has of a row for some instructions: the words of each, two or, in the last of a row, one.
pub type Fragments<'k> = Vec<Vec<V<'k>>>;

/// Parts in which a row of `blocks` blocks is loaded.
pub fn parts(blocks: u32) -> u32 {
    blocks / 4 + (blocks % 4).div_ceil(2)
}

impl<'k> PlaneRow<'k> {
    /// Loads what invocation `4g + t` has of part `part` of a row of `blocks` blocks.
    pub fn load(&self, t: V<'k>, blocks: u32, part: u32) -> Fragments<'k> {
        let whole = blocks / 4;
        if part < whole {
            let at = self.first + t * self.stride + 4 * part * self.stride;
            let words = self.mem.load_vector(at, 4);
            return vec![vec![words.part(0), words.part(1)], vec![words.part(2), words.part(3)]];
        }
        let first = 4 * whole + 2 * (part - whole);
        let left = first..blocks.min(first + 2);
        vec![left.map(|block| self.mem.load(self.first + t + block * self.stride)).collect()]
    }
}

/// Operands A of rows g and g + 8.
pub fn rows_of_a<'k>(k: &'k Build, upper: &Fragments<'k>, lower: &Fragments<'k>) -> Vec<V<'k>> {
    let operand = |(upper, lower): (&Vec<V<'k>>, &Vec<V<'k>>)| match (&upper[..], &lower[..]) {
        (&[a0, a2], &[a1, a3]) => k.vector([a0, a1, a2, a3]),
        _ => k.vector([upper[0], lower[0]]),
    };
    upper.iter().zip(lower).map(operand).collect()
}

/// `sum + a*b` over the dimensions of a part.
pub fn multiply<'k>(k: &'k Build, a: &[V<'k>], b: &Fragments<'k>, sum: V<'k>) -> V<'k> {
    a.iter().zip(b).fold(sum, |sum, (&a, b)| match b[..] {
        [b0, b1] => k.mma(a, k.vector([b0, b1]), sum),
        _ => k.mma(a, b[0], sum),
    })
}
