//! From a file's rows to panels ([`super::matrix`] has the layout).

use std::ops::Range;

use half::f16;
use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row};
use unisonic_core::plan::{LoadedWeight, W16Matrix};

use super::matrix::{Layout, Packing, SUPERBLOCK_TILES, W16_TILE_LEN_BYTES, tiles_of_superblock};
use super::quants::{Bytes, Quants, TILE_LEN};
use crate::simd::LANES;

/// Packs rows of a matrix into panels that hold zeros, the last of which may be filled up with zero rows: the scales of those
/// are not written.
///
/// # Panics
/// If the rows are not of this packing and length, or not as many as the panels hold.
pub fn pack_rows(packing: Packing, rows: usize, tiles: usize, from: &LoadedWeight, to: &mut [u8]) {
    let panels = to.chunks_exact_mut(packing.panel_len_bytes(tiles));
    assert_eq!(panels.len(), rows.div_ceil(LANES), "panels of {rows} rows");
    match (packing, from) {
        (Packing::Block(packed), LoadedWeight::Blocks { format, bytes }) if packed == *format => {
            let layout = Layout::of(packed);
            let row_len_bytes = bytes.len() / rows;
            let panels = panels.zip(bytes.chunks(LANES * row_len_bytes));
            panels.for_each(|(to, rows)| {
                pack_panel(packed, &layout, tiles, rows.chunks_exact(row_len_bytes), to);
            });
        }
        (Packing::W16, LoadedWeight::W16(matrix)) => {
            for (panel, to) in panels.enumerate() {
                let first = panel * LANES;
                pack_w16_panel(matrix, first..rows.min(first + LANES), to);
            }
        }
        _ => panic!("rows of another packing"),
    }
}

fn pack_panel<'a>(
    format: BlockFormat,
    layout: &Layout,
    tiles: usize,
    rows: impl Iterator<Item = &'a [u8]>,
    to: &mut [u8],
) {
    let decoded: Vec<DecodedRow> = rows
        .map(|row| {
            let mut decoded = DecodedRow::new();
            decode_row(format, row, &mut decoded);
            decoded
        })
        .collect();
    let mut rest = to;
    for s in 0..tiles.div_ceil(SUPERBLOCK_TILES) {
        let tiles = tiles_of_superblock(tiles, s);
        let (to, after) = rest.split_at_mut(layout.superblock_len_bytes(tiles));
        pack_superblock(layout, &decoded, s, tiles, to);
        rest = after;
    }
}

fn pack_superblock(layout: &Layout, rows: &[DecodedRow], s: usize, tiles: usize, to: &mut [u8]) {
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
    // Where a superblock has one scale, that of its sub-blocks is 1.
    to.bytes(s * subs, subs, |row, i| row.sub_scales.get(i).copied().unwrap_or(1));
    if layout.has_minimum {
        to.bytes(s * subs, subs, |row, i| row.sub_minima[i]);
    }
    match layout.block_scale_len_bytes {
        4 => to.floats(first_half, halves, |row| &row.scales),
        _ => to.halves(first_half, halves, |row| &row.scales),
    }
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
    fn halves(&mut self, first: usize, count: usize, field: impl Fn(&DecodedRow) -> &[f32]) {
        for (row, decoded) in self.rows.iter().enumerate() {
            for i in 0..count {
                // Scales come from f16 fields, so this is exact.
                let half = f16::from_f32(field(decoded)[first + i]).to_le_bytes();
                self.to[self.written + 2 * (i * LANES + row)..][..2].copy_from_slice(&half);
            }
        }
        self.written += 2 * LANES * count;
    }

    fn floats(&mut self, first: usize, count: usize, field: impl Fn(&DecodedRow) -> &[f32]) {
        for (row, decoded) in self.rows.iter().enumerate() {
            for i in 0..count {
                let bytes = field(decoded)[first + i].to_le_bytes();
                self.to[self.written + 4 * (i * LANES + row)..][..4].copy_from_slice(&bytes);
            }
        }
        self.written += 4 * LANES * count;
    }

    fn bytes(&mut self, first: usize, count: usize, field: impl Fn(&DecodedRow, usize) -> i8) {
        for (row, decoded) in self.rows.iter().enumerate() {
            for i in 0..count {
                self.to[self.written + i * LANES + row] = field(decoded, first + i) as u8;
            }
        }
        self.written += LANES * count;
    }
}

fn pack_w16_panel(matrix: &W16Matrix, rows: Range<usize>, to: &mut [u8]) {
    for (b, to) in to.chunks_exact_mut(W16_TILE_LEN_BYTES).enumerate() {
        let (high, rest) = to.split_at_mut(Bytes::LEN_BYTES);
        let (low, scales) = rest.split_at_mut(Bytes::LEN_BYTES);
        let mut tiles = [[[128_u8; TILE_LEN]; LANES]; 2];
        for (lane, row) in rows.clone().enumerate() {
            let from = matrix.row(row);
            let biased = |plane: &[i8]| std::array::from_fn(|k| (plane[b * TILE_LEN + k] as u8) ^ 0x80);
            tiles[0][lane] = biased(from.high);
            tiles[1][lane] = biased(from.low);
            scales[4 * lane..][..4].copy_from_slice(&from.scales[b].to_le_bytes());
        }
        Bytes::pack(&tiles[0], high);
        Bytes::pack(&tiles[1], low);
    }
}
