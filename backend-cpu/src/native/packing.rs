//! From a file's rows to panels ([`super::matrix`] has the layout).

use half::f16;
use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row};
use unisonic_core::plan::{DeviceError, W16Matrix};

use super::matrix::{
    Layout, PackedMatrix, Packing, SUPERBLOCK_TILES, W16_TILE_LEN_BYTES, tiles_of_superblock,
};
use super::quants::{Bytes, Quants, TILE_LEN};
use crate::memory::Lines;
use crate::simd::LANES;

/// Rows of blocks, as the file holds them.
pub struct BlockRows<'a> {
    /// Their format.
    pub format: BlockFormat,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Bytes of a row.
    pub row_len_bytes: usize,
    /// All rows.
    pub bytes: &'a [u8],
}

/// Packs rows of blocks.
pub fn pack_blocks(from: &BlockRows<'_>, layout: Layout) -> Result<PackedMatrix, DeviceError> {
    let BlockRows { format, rows, cols, row_len_bytes, bytes } = *from;
    let tiles = cols / TILE_LEN;
    let panel_len_bytes = layout.panel_len_bytes(tiles);
    let mut lines = Lines::zeroed("packed weights", rows.div_ceil(LANES) * panel_len_bytes)?;
    let mut decoded = vec![DecodedRow::new(); LANES];
    for (panel, to) in lines.bytes_mut().chunks_exact_mut(panel_len_bytes).enumerate() {
        let panel_rows = LANES.min(rows - panel * LANES);
        for (row, decoded) in decoded.iter_mut().enumerate().take(panel_rows) {
            let from = (panel * LANES + row) * row_len_bytes;
            decode_row(format, &bytes[from..from + row_len_bytes], decoded);
        }
        let mut rest = to;
        for s in 0..tiles.div_ceil(SUPERBLOCK_TILES) {
            let tiles = tiles_of_superblock(tiles, s);
            let (to, after) = rest.split_at_mut(layout.superblock_len_bytes(tiles));
            pack_superblock(layout, &decoded[..panel_rows], s, tiles, to);
            rest = after;
        }
    }
    Ok(PackedMatrix { packing: Packing::Block(format), rows, tiles, panel_len_bytes, lines })
}

fn pack_superblock(layout: Layout, rows: &[DecodedRow], s: usize, tiles: usize, to: &mut [u8]) {
    let (quants, scales) = to.split_at_mut(tiles * layout.tile_len_bytes);
    let first = s * SUPERBLOCK_TILES;
    for (b, to) in quants.chunks_exact_mut(layout.tile_len_bytes).enumerate() {
        // A row that only fills the panel holds zero weights, so that its integer is the offset.
        let mut tile = [[layout.offset as u8; TILE_LEN]; LANES];
        for (tile, row) in tile.iter_mut().zip(rows) {
            let q = &row.q[(first + b) * TILE_LEN..][..TILE_LEN];
            *tile = std::array::from_fn(|k| (i32::from(q[k]) + layout.offset) as u8);
        }
        (layout.pack)(&tile, to);
    }
    let mut to = Fields { rows, to: scales, written: 0 };
    // Blocks of 32 have a scale for each tile and no sub-blocks.
    let subs = layout.sub_blocks(SUPERBLOCK_TILES);
    let (first_half, halves) = if subs == 0 { (first, tiles) } else { (s, 1) };
    to.bytes(s * subs, subs, |row| &row.sub_scales);
    if layout.has_minimum {
        to.bytes(s * subs, subs, |row| &row.sub_minima);
    }
    to.halves(first_half, halves, |row| &row.scales);
    if layout.has_minimum {
        to.halves(first_half, halves, |row| &row.minima);
    }
}

/// Writes fields of 16 rows side by side, one group of fields after the other.
struct Fields<'a> {
    rows: &'a [DecodedRow],
    to: &'a mut [u8],
    written: usize,
}

impl Fields<'_> {
    fn halves(&mut self, first: usize, count: usize, field: impl Fn(&DecodedRow) -> &Vec<f32>) {
        for (row, decoded) in self.rows.iter().enumerate() {
            for i in 0..count {
                // Scales come from f16 fields, so this is exact.
                let half = f16::from_f32(field(decoded)[first + i]).to_le_bytes();
                self.to[self.written + 2 * (i * LANES + row)..][..2].copy_from_slice(&half);
            }
        }
        self.written += 2 * LANES * count;
    }

    fn bytes(&mut self, first: usize, count: usize, field: impl Fn(&DecodedRow) -> &Vec<i8>) {
        for (row, decoded) in self.rows.iter().enumerate() {
            for i in 0..count {
                self.to[self.written + i * LANES + row] = field(decoded)[first + i] as u8;
            }
        }
        self.written += LANES * count;
    }
}

/// Packs a float matrix.
pub fn pack_w16(rows: usize, cols: usize, matrix: &W16Matrix) -> Result<PackedMatrix, DeviceError> {
    let tiles = cols.div_ceil(TILE_LEN);
    let panel_len_bytes = tiles * W16_TILE_LEN_BYTES;
    let mut lines = Lines::zeroed("packed weights", rows.div_ceil(LANES) * panel_len_bytes)?;
    for (panel, to) in lines.bytes_mut().chunks_exact_mut(panel_len_bytes).enumerate() {
        let first = panel * LANES;
        for (b, to) in to.chunks_exact_mut(W16_TILE_LEN_BYTES).enumerate() {
            let (high, rest) = to.split_at_mut(Bytes::LEN_BYTES);
            let (low, scales) = rest.split_at_mut(Bytes::LEN_BYTES);
            let mut tiles = [[[128_u8; TILE_LEN]; LANES]; 2];
            for row in 0..LANES.min(rows - first) {
                let from = matrix.row(first + row);
                let biased = |plane: &[i8]| std::array::from_fn(|k| (plane[b * TILE_LEN + k] as u8) ^ 0x80);
                tiles[0][row] = biased(from.high);
                tiles[1][row] = biased(from.low);
                scales[4 * row..][..4].copy_from_slice(&from.scales[b].to_le_bytes());
            }
            Bytes::pack(&tiles[0], high);
            Bytes::pack(&tiles[1], low);
        }
    }
    Ok(PackedMatrix { packing: Packing::W16, rows, tiles, panel_len_bytes, lines })
}
