//! Weight matrices as kernels read them: panels of 16 rows, each a contiguous run of superblocks.
//!
//! A superblock of a panel holds up to 8 tiles ([`super::quants`]) and then, for all 16 rows side by side:
//!
//! - blocks of 32: the f16 scales of each tile, then the f16 minima of each tile;
//! - sub-blocks: the signed byte scales of each sub-block, the byte minima of each sub-block, the f16 scale `d` and the
//!   f16 `dmin`;
//! - W16: the two byte planes of each tile, then the f32 scales of each tile;
//!
//! filled up to a multiple of 64 bytes. Rows that fill the last panel are zero.

use half::f16;
use unisonic_core::format::blocks::{BlockFormat, DecodedRow, decode_row};
use unisonic_core::plan::{LoadedWeight, W16Matrix, Weight};

use super::quants::{Bytes, Five, Levels, Nibbles, Quants, Six, TILE_LEN, Three, Tile, Two};
use crate::simd::LANES;

/// Tiles of a whole superblock.
pub const SUPERBLOCK_TILES: usize = 8;

/// Memory that starts and ends at cache lines.
#[derive(Clone, Debug)]
pub struct Lines(Vec<Line>);

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Lines {
    fn zeroed(len_bytes: usize) -> Self {
        Self(vec![Line([0; 64]); len_bytes.div_ceil(64)])
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_flattened_bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_flattened_bytes_mut()
    }
}

trait FlattenBytes {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

impl FlattenBytes for Vec<Line> {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: a Line is 64 bytes without padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len() * 64) }
    }

    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a Line is 64 bytes without padding, and any bytes are a Line.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len() * 64) }
    }
}

/// Where the scales of a packing lie and how its tiles are made: what a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A quantised format.
    Block(BlockFormat),
    /// A float matrix.
    W16,
}

/// A packed matrix.
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    /// How it is packed.
    pub packing: Packing,
    /// Rows, without filling.
    pub rows: usize,
    /// Tiles of a row.
    pub tiles: usize,
    /// Bytes of a panel.
    pub panel_len_bytes: usize,
    lines: Lines,
}

impl PackedMatrix {
    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// One panel.
    pub fn panel(&self, panel: usize) -> &[u8] {
        &self.lines.bytes()[panel * self.panel_len_bytes..][..self.panel_len_bytes]
    }

    /// Packs a loaded matrix; none for a vector or a format without a kernel.
    pub fn pack(weight: &Weight, loaded: &LoadedWeight) -> Option<Self> {
        let rows = weight.rows as usize;
        match loaded {
            LoadedWeight::F32(_) => None,
            LoadedWeight::W16(matrix) => Some(pack_w16(rows, weight.cols as usize, matrix)),
            LoadedWeight::Blocks { format, bytes } => {
                let layout = Layout::of(*format)?;
                let cols = weight.cols as usize;
                Some(pack_blocks(*format, layout, rows, cols, weight.row_len_bytes(), bytes))
            }
        }
    }
}

/// What packing a format needs to know.
#[derive(Clone, Copy)]
struct Layout {
    tile_len_bytes: usize,
    offset: i32,
    pack: fn(&Tile, &mut [u8]),
    /// Elements of a sub-block; 0 for blocks of 32.
    sub_len: usize,
    has_minimum: bool,
}

impl Layout {
    fn new<Q: Quants>(sub_len: usize, has_minimum: bool) -> Self {
        Self { tile_len_bytes: Q::LEN_BYTES, offset: Q::OFFSET, pack: Q::pack, sub_len, has_minimum }
    }

    /// The pairs of format and packing; [`super::linear`] has the same table with kernels.
    fn of(format: BlockFormat) -> Option<Self> {
        Some(match format {
            BlockFormat::Q4_0 => Self::new::<Nibbles<8>>(0, false),
            BlockFormat::Q4_1 => Self::new::<Nibbles<0>>(0, true),
            BlockFormat::Q5_0 => Self::new::<Five<16>>(0, false),
            BlockFormat::Q5_1 => Self::new::<Five<0>>(0, true),
            BlockFormat::Q8_0 => Self::new::<Bytes>(0, false),
            BlockFormat::IQ4_NL => Self::new::<Levels>(0, false),
            BlockFormat::Q2_K => Self::new::<Two>(16, true),
            BlockFormat::Q3_K => Self::new::<Three>(16, false),
            BlockFormat::Q4_K => Self::new::<Nibbles<0>>(32, true),
            BlockFormat::Q5_K => Self::new::<Five<0>>(32, true),
            BlockFormat::Q6_K => Self::new::<Six>(16, false),
            BlockFormat::IQ4_XS => Self::new::<Levels>(32, false),
            BlockFormat::MXFP4 | BlockFormat::TQ1_0 | BlockFormat::TQ2_0 => return None,
        })
    }

    /// Bytes of a superblock of `tiles` tiles.
    fn superblock_len_bytes(&self, tiles: usize) -> usize {
        let scales = if self.sub_len == 0 { 2 * LANES * tiles } else { 2 * LANES };
        let sub_scales = if self.sub_len == 0 { 0 } else { LANES * (tiles * TILE_LEN / self.sub_len) };
        let both = if self.has_minimum { 2 } else { 1 };
        (tiles * self.tile_len_bytes + both * (scales + sub_scales)).next_multiple_of(64)
    }
}

fn pack_blocks(
    format: BlockFormat,
    layout: Layout,
    rows: usize,
    cols: usize,
    row_len_bytes: usize,
    bytes: &[u8],
) -> PackedMatrix {
    let tiles = cols / TILE_LEN;
    let superblocks = tiles.div_ceil(SUPERBLOCK_TILES);
    let superblock_tiles = |s: usize| (tiles - s * SUPERBLOCK_TILES).min(SUPERBLOCK_TILES);
    let panel_len_bytes = (0..superblocks).map(|s| layout.superblock_len_bytes(superblock_tiles(s))).sum();
    let mut lines = Lines::zeroed(rows.div_ceil(LANES) * panel_len_bytes);
    let mut decoded = vec![DecodedRow::new(); LANES];
    for (panel, to) in lines.bytes_mut().chunks_exact_mut(panel_len_bytes).enumerate() {
        let panel_rows = LANES.min(rows - panel * LANES);
        for (row, decoded) in decoded.iter_mut().enumerate().take(panel_rows) {
            let from = (panel * LANES + row) * row_len_bytes;
            decode_row(format, &bytes[from..from + row_len_bytes], decoded);
        }
        let mut rest = to;
        for s in 0..superblocks {
            let tiles = superblock_tiles(s);
            let (to, after) = rest.split_at_mut(layout.superblock_len_bytes(tiles));
            pack_superblock(layout, &decoded[..panel_rows], s, tiles, to);
            rest = after;
        }
    }
    PackedMatrix { packing: Packing::Block(format), rows, tiles, panel_len_bytes, lines }
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
    if layout.sub_len == 0 {
        to.halves(first, tiles, |row| &row.scales);
        if layout.has_minimum {
            to.halves(first, tiles, |row| &row.minima);
        }
    } else {
        let subs = SUPERBLOCK_TILES * TILE_LEN / layout.sub_len;
        to.bytes(s * subs, subs, |row| &row.sub_scales);
        if layout.has_minimum {
            to.bytes(s * subs, subs, |row| &row.sub_minima);
        }
        to.halves(s, 1, |row| &row.scales);
        if layout.has_minimum {
            to.halves(s, 1, |row| &row.minima);
        }
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

/// Bytes of a W16 tile: two planes and the scales.
pub const W16_TILE_LEN_BYTES: usize = 2 * Bytes::LEN_BYTES + 4 * LANES;

fn pack_w16(rows: usize, cols: usize, matrix: &W16Matrix) -> PackedMatrix {
    let tiles = cols.div_ceil(TILE_LEN);
    let panel_len_bytes = tiles * W16_TILE_LEN_BYTES;
    let mut lines = Lines::zeroed(rows.div_ceil(LANES) * panel_len_bytes);
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
    PackedMatrix { packing: Packing::W16, rows, tiles, panel_len_bytes, lines }
}
