//! From rows of a file to the planes of a group.

use super::weight::{GROUP_ROWS, Plane, WeightFormat, WeightLayout};
use crate::format::blocks::{BlockFormat, DecodedRow, decode_row, half_fields};
use crate::numerics::w16::W16Row;

/// Makes the planes of one group of 16 rows after the other; keeps what it needs to take rows apart.
#[derive(Debug)]
pub struct GroupPacker {
    layout: WeightLayout,
    row: DecodedRow,
}

impl GroupPacker {
    /// For the groups of a matrix.
    pub fn new(layout: WeightLayout) -> Self {
        Self { layout, row: DecodedRow::new() }
    }

    /// Bytes of a row of quantised blocks.
    pub fn row_len_bytes(&self) -> usize {
        match self.layout.format() {
            WeightFormat::Block(format) => self.layout.width() as usize / format.elems() * format.len_bytes(),
            WeightFormat::W16 => 0,
        }
    }

    /// Packs up to 16 rows of quantised blocks, one after the other as the file has them and checked by
    /// [`crate::format::blocks::check_row`]; rows that are missing are zeros. `group` is replaced.
    ///
    /// # Panics
    /// If `rows` is not 1 to 16 whole rows, `group` is not [`WeightLayout::group_len`] long, or the matrix is W16.
    pub fn pack(&mut self, rows: &[u8], group: &mut [u32]) {
        let WeightFormat::Block(format) = self.layout.format() else { panic!("W16 is packed by pack_w16") };
        let row_len_bytes = self.row_len_bytes();
        self.start(rows.len().div_ceil(row_len_bytes), rows.len().is_multiple_of(row_len_bytes), group);
        for (r, bytes) in rows.chunks_exact(row_len_bytes).enumerate() {
            decode_row(format, bytes, &mut self.row);
            self.integers(r, group);
            for (index, block) in bytes.chunks_exact(format.len_bytes()).enumerate() {
                self.scales(format, r, index, block, group);
            }
        }
    }

    /// Packs up to 16 rows of W16.
    ///
    /// # Panics
    /// If `rows` are not 1 to 16 rows of the matrix, `group` is not [`WeightLayout::group_len`] long, or the matrix is not
    /// W16.
    pub fn pack_w16(&mut self, rows: &[W16Row<'_>], group: &mut [u32]) {
        assert_eq!(self.layout.format(), WeightFormat::W16);
        let blocks = self.layout.blocks() as usize;
        let whole =
            rows.iter().all(|row| [row.high.len(), row.low.len(), 32 * row.scales.len()] == [32 * blocks; 3]);
        self.start(rows.len(), whole, group);
        for (r, row) in rows.iter().enumerate() {
            for (plane, bytes) in [(Plane::Bytes, row.high), (Plane::LowBytes, row.low)] {
                let plane = self.plane(plane, group);
                each_word(r, bytes, |b, lane, p, word| plane[(b * 32 + lane) * 4 + p] = word);
            }
            let scales = self.plane(Plane::FloatScales, group);
            for (b, scale) in row.scales.iter().enumerate() {
                scales[b / 8 * 128 + r * 8 + b % 8] = scale.to_bits();
            }
        }
    }

    fn start(&self, rows: usize, whole: bool, group: &mut [u32]) {
        assert!(whole && (1..=GROUP_ROWS).contains(&rows), "a group is 1 to 16 whole rows, not {rows}");
        assert_eq!(group.len(), self.layout.group_len() as usize, "words of a group");
        group.fill(0);
    }

    fn plane<'a>(&self, plane: Plane, group: &'a mut [u32]) -> &'a mut [u32] {
        let (offset, len) = (self.layout.plane_offset(plane), self.layout.plane_len(plane));
        &mut group[offset as usize..][..len as usize]
    }

    /// Puts the codes of row `r` into the planes of integers.
    fn integers(&mut self, r: usize, group: &mut [u32]) {
        let format = self.layout.format();
        match format.levels() {
            Some(levels) => self.row.q.iter_mut().for_each(|q| {
                // Every integer of the row is one of the levels; of equal ones any will do.
                *q = levels.iter().position(|level| level == q).unwrap_or_default() as i8;
            }),
            None => self.row.q.iter_mut().for_each(|q| *q = q.wrapping_add_unsigned(format.offset())),
        }
        let codes = &self.row.q;
        if format.has(Plane::Bytes) {
            let plane = self.plane(Plane::Bytes, group);
            each_word(r, codes, |b, lane, p, word| plane[(b * 32 + lane) * 4 + p] = word);
        }
        let mut taken_bits = 0;
        if format.has(Plane::Nibbles) {
            let plane = self.plane(Plane::Nibbles, group);
            each_word(r, codes, |b, lane, p, word| {
                plane[(b / 2 * 32 + lane) * 4 + 2 * (b % 2) + p % 2] |= (word & 0x0F0F_0F0F) << (4 * (p / 2));
            });
            taken_bits += 4;
        }
        if format.has(Plane::Pairs) {
            let plane = self.plane(Plane::Pairs, group);
            each_word(r, codes, |b, lane, p, word| {
                plane[(b / 4 * 32 + lane) * 4 + b % 4] |= (word >> taken_bits & 0x0303_0303) << (2 * p);
            });
            taken_bits += 2;
        }
        if format.has(Plane::Bits) {
            let plane = self.plane(Plane::Bits, group);
            each_word(r, codes, |b, lane, p, word| {
                let bits = (word >> taken_bits & 0x0101_0101) << (p + 4 * (b % 2));
                plane[(b / 8 * 32 + lane) * 4 + b % 8 / 2] |= bits;
            });
        }
    }

    /// Puts the scales of a block of row `r` into their planes.
    fn scales(&self, format: BlockFormat, r: usize, index: usize, block: &[u8], group: &mut [u32]) {
        let half = |field: usize| {
            let (_, at) = half_fields(format)[field];
            u32::from(u16::from_le_bytes([block[at], block[at + 1]]))
        };
        let shift = |halves: usize| 16 * (halves % 2) as u32;
        for (field, plane) in [Plane::BlockScales, Plane::BlockMinima].into_iter().enumerate() {
            if self.layout.format().has(plane) {
                let at = index / 8 * 64 + r * 4 + index % 8 / 2;
                self.plane(plane, group)[at] |= half(field) << shift(index);
            }
        }
        if self.layout.format().has(Plane::SubScales) {
            let mut bytes = [0; 16];
            match format {
                BlockFormat::Q2_K => bytes.copy_from_slice(&block[..16]),
                BlockFormat::Q4_K | BlockFormat::Q5_K => {
                    bytes[..12].copy_from_slice(&block[4..16]);
                    bytes[12..].copy_from_slice(&block[..4]);
                }
                _ => {
                    let scales = self.row.sub_scales[16 * index..].first_chunk::<16>();
                    bytes = scales.expect("16 scales a superblock").map(|scale| scale as u8);
                }
            }
            let to = &mut self.plane(Plane::SubScales, group)[index * 64 + r * 4..][..4];
            for (to, bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
                *to = u32::from_le_bytes(*bytes);
            }
        }
        if self.layout.format().has(Plane::BlockBytes) {
            let plane = self.plane(Plane::BlockBytes, group);
            let mut put = |b: usize, byte: u8| {
                plane[b / 8 * 32 + r * 2 + b % 8 / 4] |= u32::from(byte) << (8 * (b % 4));
            };
            match format {
                BlockFormat::MXFP4 => put(index, block[0]),
                _ => (8 * index..8 * index + 8).for_each(|b| put(b, self.row.sub_scales[b] as u8)),
            }
        }
        if self.layout.format().has(Plane::Halves) {
            let plane = self.plane(Plane::Halves, group);
            match format {
                BlockFormat::Q2_K => plane[index * 16 + r] = half(0) | half(1) << 16,
                _ => plane[index * 8 + r % 8] |= half(0) << shift(r / 8),
            }
        }
    }
}

/// For each four elements of row `r`: their block, lane and register, and the word.
fn each_word(r: usize, integers: &[i8], mut place: impl FnMut(usize, usize, usize, u32)) {
    for (i, four) in integers.as_chunks::<4>().0.iter().enumerate() {
        let (b, half, t) = (i / 8, i / 4 % 2, i % 4);
        place(b, 4 * (r % 8) + t, 2 * half + r / 8, u32::from_le_bytes(four.map(|q| q as u8)));
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
