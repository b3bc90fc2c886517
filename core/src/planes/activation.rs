//! A16 rows on a GPU: the layout that quantising kernels write and linear layers read.
//!
//! Up to five regions ([`Region`]), each an object of its own, all in units of *(tile of 4 rows, superblock s
//! of 256 elements)*, units in order `[tile][s]`; only the first is as large as the row. Planes and scales
//! are always there, of the others those that the weights need which read the rows
//! ([`Regions`](super::region::Regions)):
//!
//! | region | element | unit | what |
//! |---|---|---|---|
//! | planes | i8x4 | `[c 0..3][column n][t 0..3][4]` | h and l in fragment order |
//! | scales | f32 | `[row of the tile]` | D |
//! | digits8, digits16 | i8x4 | `[column n][t 0..3][2]` | the sums of X over sub-blocks, for weights with integer minima |
//! | sums | f32 | `[row of the tile][b 0..7]` | the sums of X over blocks of 32, for weights with f16 minima |
//!
//! **Columns.** Row r is row `r mod 4` of tile `r / 4`; columns `n = 2*(r mod 4)` and `n + 1` are its planes
//! h and l (in digits: u and v). One row has 2 columns a unit, two rows 4, more rows 8
//! ([`ActivationLayout::columns`]). What lies in columns of rows that do not exist is never looked at and
//! need not be written.
//!
//! **Planes.** Chunk c holds sub-blocks b = 2c and 2c + 1 of 32 elements. The four words for invocation
//! `4n + t` are elements `4t..4t+3` and `16+4t..16+4t+3` of sub-block 2c, then the same of 2c + 1. So four
//! elements `4i..4i+3` of a row are one word: [`ActivationLayout::word_index`]. The last superblock of a row
//! is as long as the others: every word past the row, to a multiple of 256, is written as zero.
//!
//! **Digits.** [`digits`](super::digits) says what they are: 32 bytes k for u and for v. Byte k is byte
//! `k mod 4` of the word with `t = (k mod 16) / 4` and number `k / 16`: [`ActivationLayout::digit_index`].
//!
//! **Sums.** bs_b as f32, which is exact: |bs| < 2^19.

use super::LayoutError;
use super::region::Region;
use crate::kir::abi::MAX_OBJECT_LEN;
use crate::numerics::a16::{A16Row, SUPERBLOCK};
use crate::numerics::integer::join;

/// Rows of a tile: with two planes each, the 8 columns of a matrix instruction.
pub const TILE_ROWS: usize = 4;

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
            (Some(words), Ok(rows), Ok(width)) if words <= MAX_OBJECT_LEN as usize => {
                Ok(Self { rows, width })
            }
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

    /// Words of a region of a unit.
    pub fn unit_len(self, region: Region) -> u32 {
        region.unit_len(self.tile_rows())
    }

    /// Units.
    pub fn units(self) -> u32 {
        self.tiles() * self.superblocks()
    }

    /// Words of a region.
    pub fn len(self, region: Region) -> u32 {
        self.units() * self.unit_len(region)
    }

    /// The unit of superblock `s` of a row, `tile*superblocks + s`.
    pub fn unit(self, row: u32, s: u32) -> u32 {
        row / TILE_ROWS as u32 * self.superblocks() + s
    }

    /// The word of the planes that holds elements `4i..4i+3` of a plane (0 = h, 1 = l) of a row.
    ///
    /// With `s = i/64`, `b = i/8 % 8`, `half = i/4 % 2`, `t = i % 4`, `n = 2*(row % 4) + plane`:
    /// `unit*unit_len + (((b/2)*columns + n)*4 + t)*4 + 2*(b%2) + half`.
    pub fn word_index(self, row: u32, plane: u32, i: u32) -> u32 {
        let (s, b, half, t) = (i / 64, i / 8 % 8, i / 4 % 2, i % 4);
        let column = 2 * (row % TILE_ROWS as u32) + plane;
        self.unit(row, s) * self.unit_len(Region::Planes)
            + (((b / 2) * self.columns() + column) * 4 + t) * 4
            + 2 * (b % 2)
            + half
    }

    /// The scale of superblock `s` of a row.
    pub fn scale_index(self, row: u32, s: u32) -> u32 {
        self.unit(row, s) * self.tile_rows() + row % TILE_ROWS as u32
    }

    /// The word of digits of either kind that holds bytes `4i..4i+3` (i 0..7) of u (part 0) or v (part 1) of
    /// superblock `s` of a row: `16*tile_rows*unit + n*8 + 2*(i%4) + i/4`.
    pub fn digit_index(self, row: u32, s: u32, part: u32, i: u32) -> u32 {
        let column = 2 * (row % TILE_ROWS as u32) + part;
        self.unit(row, s) * self.columns() * 8 + column * 8 + 2 * (i % 4) + i / 4
    }

    /// The sum of block `b` of superblock `s` of a row.
    pub fn sum_index(self, row: u32, s: u32, b: u32) -> u32 {
        self.unit(row, s) * self.unit_len(Region::Sums) + row % TILE_ROWS as u32 * 8 + b
    }
}

/// A region of rows whose number and width are those of the layout, as words: what a host compares with what
/// a device made. What belongs to no row is zero.
pub fn pack(layout: ActivationLayout, region: Region, rows: &[A16Row<'_>]) -> Vec<u32> {
    let mut words = vec![0; layout.len(region) as usize];
    for (row, x) in (0..).zip(rows) {
        let mut put = |at: u32, word: u32| words[at as usize] |= word;
        match region {
            Region::Planes => {
                for (plane, bytes) in (0..).zip([x.high, x.low]) {
                    for (i, &word) in (0..).zip(bytes.as_chunks::<4>().0) {
                        put(
                            layout.word_index(row, plane, i),
                            u32::from_le_bytes(word.map(i8::cast_unsigned)),
                        );
                    }
                }
            }
            Region::Scales => {
                for (s, scale) in (0..).zip(x.scales) {
                    put(layout.scale_index(row, s), scale.to_bits());
                }
            }
            Region::Digits(digits) => {
                let sub_blocks = digits.sub_blocks() as u32;
                for (j, sum) in (0..).zip(block_sums(x, digits.sub_block())) {
                    let (s, j) = (j / sub_blocks, j % sub_blocks);
                    for (part, of_sum) in (0..).zip(digits.split(sum)) {
                        for (e, &digit) in (0..).zip(&of_sum[..digits.weights().len()]) {
                            let k = sub_blocks * e + j;
                            let byte = u32::from(digit.cast_unsigned()) << (8 * (k % 4));
                            put(layout.digit_index(row, s, part, k / 4), byte);
                        }
                    }
                }
            }
            Region::Sums => {
                for (block, sum) in (0..).zip(block_sums(x, 32)) {
                    put(layout.sum_index(row, block / 8, block % 8), (sum as f32).to_bits());
                }
            }
        }
    }
    words
}

/// The sums of X over blocks of `len` elements.
fn block_sums(x: &A16Row<'_>, len: usize) -> impl Iterator<Item = i32> {
    let blocks = x.high.chunks(len).zip(x.low.chunks(len));
    blocks.map(|(high, low)| high.iter().zip(low).map(|(&h, &l)| join(h, l)).sum())
}

#[cfg(test)]
mod tests {
    use super::super::digits::Digits;
    use super::*;

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
            check(layout.len(Region::Planes), every(128 * s, &|r, p| layout.word_index(r, p % 2, p / 2)));
            check(layout.len(Region::Scales), every(s, &|r, p| layout.scale_index(r, p)));
            for digits in Digits::ALL {
                let len = layout.len(Region::Digits(digits));
                check(len, every(16 * s, &|r, p| layout.digit_index(r, p / 16, p % 2, p / 2 % 8)));
            }
            check(layout.len(Region::Sums), every(8 * s, &|r, p| layout.sum_index(r, p / 8, p % 8)));
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
        assert_eq!(layout.len(Region::Planes), 128);
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
