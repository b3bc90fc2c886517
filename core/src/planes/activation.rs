//! A16 rows on a GPU: the layout that quantising kernels write and linear layers read.
//!
//! Up to four regions, each an object of its own, all in units of *(tile of 4 rows, superblock s of 256 elements)*, units in
//! order `[tile][s]`; only the first is as large as the row:
//!
//! | region | element | unit | what |
//! |---|---|---|---|
//! | planes | i8x4 | `[c 0..3][column n][t 0..3][4]` | h and l in fragment order |
//! | scales | f32 | `[row of the tile]` | D |
//! | digits | i8x4 | `[column n][t 0..3][2]` | the sums of X over sub-blocks, for weights with integer minima |
//! | sums | f32 | `[row of the tile][b 0..7]` | the sums of X over blocks of 32, for weights with f16 minima |
//!
//! **Columns.** Row r is row `r mod 4` of tile `r / 4`; columns `n = 2*(r mod 4)` and `n + 1` are its planes h and l (in
//! digits: u and v). One row has 2 columns a unit, two rows 4, more rows 8 ([`ActivationLayout::columns`]). What lies in
//! columns of rows that do not exist is never looked at and need not be written.
//!
//! **Planes.** Chunk c holds sub-blocks b = 2c and 2c + 1 of 32 elements. The four words for invocation `4n + t` are
//! elements `4t..4t+3` and `16+4t..16+4t+3` of sub-block 2c, then the same of 2c + 1. So four elements `4i..4i+3` of a row are
//! one word: [`ActivationLayout::word_index`]. The last superblock of a row is as long as the others: every word past the
//! row, to a multiple of 256, is written as zero.
//!
//! **Digits.** The sums bs_j of X over sub-blocks, as bytes that a matrix instruction multiplies with the minima:
//! `bs = u + 1024*v`, `u = ((bs + 512) & 1023) - 512`. [`Digits::Eight`] (Q4_K, Q5_K: 8 sub-blocks of 32, minima up to 63):
//! u and v each are `e0 + 2*(e1 + e2 + e3)`: `e0 = u & 1`, `w = u >> 1` (arithmetic), `e1 = clamp(w, -127, 127)`,
//! `e2 = clamp(w - e1, -127, 127)`, `e3 = w - e1 - e2`; digit e of sub-block j is byte `k = 8e + j`. [`Digits::Sixteen`]
//! (Q2_K: 16 sub-blocks of 16, minima up to 15): `e0 + 8*e1`: `e0 = u & 7`, `e1 = u >> 3`; digit e of sub-block j is byte
//! `k = 16e + j`. Byte k is byte `k mod 4` of the word with `t = (k mod 16) / 4` and number `k / 16`:
//! [`ActivationLayout::digit_index`].
//!
//! **Sums.** bs_b as f32, which is exact: |bs| < 2^19.

use super::LayoutError;
use crate::numerics::a16::{A16Row, SUPERBLOCK};
use crate::numerics::integer::join;

/// Rows of a tile: with two planes each, the 8 columns of a matrix instruction.
pub const TILE_ROWS: usize = 4;

/// The digits that a weight format needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digits {
    /// Of the sums over 8 sub-blocks of 32: Q4_K, Q5_K.
    Eight,
    /// Of the sums over 16 sub-blocks of 16: Q2_K.
    Sixteen,
}

impl Digits {
    /// Elements of a sub-block.
    pub fn sub_block(self) -> usize {
        match self {
            Digits::Eight => 32,
            Digits::Sixteen => 16,
        }
    }

    /// The digits of the sum of a sub-block, for u and for v: `[u, v][e]`, as many as `32 / sub-blocks`.
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

/// Where everything of an A16 buffer lies, as indices of elements (words) of its regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActivationLayout {
    rows: u32,
    width: u32,
}

impl ActivationLayout {
    /// Layout of `rows` rows of `width` values.
    pub fn new(rows: usize, width: usize) -> Result<Self, LayoutError> {
        if rows == 0 || width == 0 {
            return Err(LayoutError::Empty { rows, width });
        }
        let too_large = LayoutError::TooLarge { rows, width };
        // A byte an element and plane; a unit of one row is as long as the fragments of two columns.
        let padded = width.checked_next_multiple_of(SUPERBLOCK).ok_or(too_large)?;
        let words = rows.checked_next_multiple_of(TILE_ROWS).and_then(|rows| rows.checked_mul(padded / 2));
        match (words, u32::try_from(rows), u32::try_from(width)) {
            (Some(words), Ok(rows), Ok(width)) if u32::try_from(words).is_ok() => Ok(Self { rows, width }),
            _ => Err(too_large),
        }
    }

    /// Rows.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// Values of a row.
    pub fn width(self) -> u32 {
        self.width
    }

    /// Superblocks of a row.
    pub fn superblocks(self) -> u32 {
        self.width.div_ceil(SUPERBLOCK as u32)
    }

    /// Tiles of 4 rows.
    pub fn tiles(self) -> u32 {
        self.rows.div_ceil(TILE_ROWS as u32)
    }

    /// Rows of a tile that have a place: 1, 2 or 4.
    pub fn tile_rows(self) -> u32 {
        self.rows.next_power_of_two().min(TILE_ROWS as u32)
    }

    /// Columns of a unit: 2, 4 or 8.
    pub fn columns(self) -> u32 {
        2 * self.tile_rows()
    }

    /// Words of planes of a unit; a chunk has a quarter of them.
    pub fn unit_planes_len(self) -> u32 {
        64 * self.columns()
    }

    /// Words of digits of a unit.
    pub fn unit_digits_len(self) -> u32 {
        8 * self.columns()
    }

    /// Sums of a unit.
    pub fn unit_sums_len(self) -> u32 {
        8 * self.tile_rows()
    }

    /// Units.
    pub fn units(self) -> u32 {
        self.tiles() * self.superblocks()
    }

    /// Words of the planes.
    pub fn planes_len(self) -> u32 {
        self.units() * self.unit_planes_len()
    }

    /// Scales.
    pub fn scales_len(self) -> u32 {
        self.units() * self.tile_rows()
    }

    /// Words of digits.
    pub fn digits_len(self) -> u32 {
        self.units() * self.unit_digits_len()
    }

    /// Sums.
    pub fn sums_len(self) -> u32 {
        self.units() * self.unit_sums_len()
    }

    /// The unit of superblock `s` of a row, `tile*superblocks + s`.
    pub fn unit(self, row: u32, s: u32) -> u32 {
        row / TILE_ROWS as u32 * self.superblocks() + s
    }

    /// The word of the planes that holds elements `4i..4i+3` of a plane (0 = h, 1 = l) of a row.
    ///
    /// With `s = i/64`, `b = i/8 % 8`, `half = i/4 % 2`, `t = i % 4`, `n = 2*(row % 4) + plane`:
    /// `unit*unit_planes_len + (((b/2)*columns + n)*4 + t)*4 + 2*(b%2) + half`.
    pub fn word_index(self, row: u32, plane: u32, i: u32) -> u32 {
        let (s, b, half, t) = (i / 64, i / 8 % 8, i / 4 % 2, i % 4);
        let column = 2 * (row % TILE_ROWS as u32) + plane;
        self.unit(row, s) * self.unit_planes_len()
            + (((b / 2) * self.columns() + column) * 4 + t) * 4
            + 2 * (b % 2)
            + half
    }

    /// The scale of superblock `s` of a row.
    pub fn scale_index(self, row: u32, s: u32) -> u32 {
        self.unit(row, s) * self.tile_rows() + row % TILE_ROWS as u32
    }

    /// The word of digits that holds bytes `4i..4i+3` (i 0..7) of u (part 0) or v (part 1) of superblock `s` of a row:
    /// `unit*unit_digits_len + n*8 + 2*(i%4) + i/4`.
    pub fn digit_index(self, row: u32, s: u32, part: u32, i: u32) -> u32 {
        let column = 2 * (row % TILE_ROWS as u32) + part;
        self.unit(row, s) * self.unit_digits_len() + column * 8 + 2 * (i % 4) + i / 4
    }

    /// The sum of block `b` of superblock `s` of a row.
    pub fn sum_index(self, row: u32, s: u32, b: u32) -> u32 {
        self.unit(row, s) * self.unit_sums_len() + row % TILE_ROWS as u32 * 8 + b
    }
}

/// The regions of A16 rows, as a host makes them to check what a device made.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedActivation {
    /// h and l.
    pub planes: Vec<[i8; 4]>,
    /// D.
    pub scales: Vec<f32>,
    /// Digits of the sums over sub-blocks.
    pub digits: Vec<[i8; 4]>,
    /// Sums over blocks of 32.
    pub sums: Vec<f32>,
}

impl PackedActivation {
    /// Packs rows whose number and width are those of the layout. What belongs to no row is zero.
    pub fn pack(layout: ActivationLayout, digits: Digits, rows: &[A16Row<'_>]) -> Self {
        let mut packed = Self {
            planes: vec![[0; 4]; layout.planes_len() as usize],
            scales: vec![0.0; layout.scales_len() as usize],
            digits: vec![[0; 4]; layout.digits_len() as usize],
            sums: vec![0.0; layout.sums_len() as usize],
        };
        for (row, x) in (0..).zip(rows) {
            for (plane, bytes) in (0..).zip([x.high, x.low]) {
                for (i, &word) in (0..).zip(bytes.as_chunks::<4>().0) {
                    packed.planes[layout.word_index(row, plane, i) as usize] = word;
                }
            }
            for (s, &scale) in (0..).zip(x.scales) {
                packed.scales[layout.scale_index(row, s) as usize] = scale;
            }
            let integers: Vec<i32> = x.high.iter().zip(x.low).map(|(&h, &l)| join(h, l)).collect();
            for (block, integers) in (0..).zip(integers.chunks(32)) {
                let sum = integers.iter().sum::<i32>() as f32;
                packed.sums[layout.sum_index(row, block / 8, block % 8) as usize] = sum;
            }
            let sub_blocks = SUPERBLOCK / digits.sub_block();
            for (j, integers) in integers.chunks(digits.sub_block()).enumerate() {
                let (s, j) = ((j / sub_blocks) as u32, j % sub_blocks);
                for (part, split) in (0..).zip(digits.split(integers.iter().sum())) {
                    for (e, &digit) in split[..32 / sub_blocks].iter().enumerate() {
                        let k = sub_blocks * e + j;
                        let at = layout.digit_index(row, s, part, k as u32 / 4) as usize;
                        packed.digits[at][k % 4] = digit;
                    }
                }
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digits of every sum that can occur give it back, weighted as the kernels weigh them.
    #[test]
    fn digits_are_their_sum() {
        for (digits, limit, weights) in
            [(Digits::Eight, 32 * 16319, [1, 2, 2, 2]), (Digits::Sixteen, 16 * 16319, [1, 8, 0, 0])]
        {
            for sum in -limit..=limit {
                let [u, v] = digits.split(sum).map(|parts| {
                    parts.iter().zip(weights).map(|(&digit, weight)| i32::from(digit) * weight).sum::<i32>()
                });
                assert_eq!(u + 1024 * v, sum, "{digits:?}");
                assert!(digits.split(sum).as_flattened().iter().all(|&digit| digit > -128), "{sum}");
            }
        }
    }

    /// Every element of every region has one place.
    #[test]
    fn indices_are_a_bijection() {
        for (rows, width) in [(1, 256), (2, 576), (3, 96), (4, 640), (5, 512), (9, 300)] {
            let layout = ActivationLayout::new(rows, width).unwrap();
            let (rows, s) = (layout.rows(), layout.superblocks());
            let complete = rows == layout.tiles() * layout.tile_rows();
            let check = |len: u32, indices: Vec<u32>| {
                let mut sorted = indices.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), indices.len(), "{layout:?}");
                assert!(sorted.last().is_some_and(|&last| last < len), "{layout:?}");
                assert_eq!(sorted.len() == len as usize, complete, "{layout:?}");
            };
            let every = |parts: u32, index: &dyn Fn(u32, u32) -> u32| {
                (0..rows)
                    .flat_map(|row| (0..parts).map(move |part| (row, part)))
                    .map(|(r, p)| index(r, p))
                    .collect()
            };
            check(layout.planes_len(), every(128 * s, &|r, p| layout.word_index(r, p % 2, p / 2)));
            check(layout.scales_len(), every(s, &|r, p| layout.scale_index(r, p)));
            check(
                layout.digits_len(),
                every(16 * s, &|r, p| layout.digit_index(r, p / 16, p % 2, p / 2 % 8)),
            );
            check(layout.sums_len(), every(8 * s, &|r, p| layout.sum_index(r, p / 8, p % 8)));
        }
    }

    /// The order that the matrix instructions fix, at places worked out by hand.
    #[test]
    fn fragments_are_where_the_instructions_take_them() {
        let layout = ActivationLayout::new(6, 640).unwrap();
        assert_eq!((layout.tiles(), layout.superblocks(), layout.columns()), (2, 3, 8));
        // Row 5, plane l: tile 1, column 3. Element 256 + 32*3 + 16 + 4*2: s 1, chunk 1, t 2, last word.
        assert_eq!(layout.word_index(5, 1, (256 + 96 + 16 + 8) / 4), 4 * 512 + 128 + (3 * 4 + 2) * 4 + 3);
        let layout = ActivationLayout::new(1, 256).unwrap();
        assert_eq!(layout.planes_len(), 128);
        assert_eq!(layout.word_index(0, 1, 0), 16);
        // Digit e2 of sub-block 5: byte 21, the second word of t 1.
        assert_eq!(layout.digit_index(0, 0, 0, 21 / 4), 3);
    }

    #[test]
    fn sizes_that_do_not_fit_are_errors() {
        assert_eq!(ActivationLayout::new(0, 5), Err(LayoutError::Empty { rows: 0, width: 5 }));
        assert!(ActivationLayout::new(1 << 20, 1 << 20).is_err());
        assert!(ActivationLayout::new(usize::MAX, usize::MAX).is_err());
    }
}
