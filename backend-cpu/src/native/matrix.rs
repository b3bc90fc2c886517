//! Weight matrices as kernels read them: panels of 16 rows, each a contiguous run of superblocks.
//!
//! A superblock of a panel holds up to 8 tiles ([`super::quants`]) and then, for all 16 rows side by side:
//!
//! - blocks of 32: the f16 scales of each tile, then the f16 minima of each tile; f32 scales for MXFP4, whose range is wider;
//! - sub-blocks: the signed byte scales of each sub-block, the byte minima of each sub-block, the f16 scale `d` and the
//!   f16 `dmin`;
//!
//! filled up to a multiple of 64 bytes. A float matrix (W16) has tiles only: the two byte planes, then the f32 scales.
//! Rows that fill the last panel are zero. [`super::packing`] makes panels from a file's rows.

use unisonic_core::format::blocks::{BlockFormat, DecodedRow, f16_to_f32};
use unisonic_core::numerics::embedding::{embed_row, embed_w16_row};
use unisonic_core::numerics::w16::W16Row;
use unisonic_core::plan::{DeviceError, Encoding, Weight};

use super::quants::{
    Bytes, Doubled, Five, Levels, Nibbles, Quants, Six, TILE_LEN, Ternary, Three, Tile, Two, VECTORS,
};
use crate::memory::Lines;
use crate::simd::{LANES, Portable};

/// Tiles of a whole superblock.
pub const SUPERBLOCK_TILES: usize = 8;

/// Bytes of a W16 tile: two planes and the scales.
pub const W16_TILE_LEN_BYTES: usize = 2 * Bytes::LEN_BYTES + 4 * LANES;

/// Tiles of superblock `s` in a row of `tiles`.
pub fn tiles_of_superblock(tiles: usize, s: usize) -> usize {
    (tiles - s * SUPERBLOCK_TILES).min(SUPERBLOCK_TILES)
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A quantised format.
    Block(BlockFormat),
    /// A float matrix.
    W16,
}

impl Packing {
    /// The packing of a weight of a plan; none for a vector.
    pub fn of(encoding: Encoding) -> Option<Self> {
        match encoding {
            Encoding::Block(format) => Some(Packing::Block(format)),
            Encoding::W16(_) => Some(Packing::W16),
            Encoding::F32(_) | Encoding::Router(_) => None,
        }
    }

    /// Bytes of a panel of `tiles` tiles.
    pub fn panel_len_bytes(self, tiles: usize) -> usize {
        match self {
            Packing::Block(format) => Layout::of(format).panel_len_bytes(tiles),
            Packing::W16 => tiles * W16_TILE_LEN_BYTES,
        }
    }
}

/// A packed matrix.
#[derive(Debug)]
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
    /// Bytes of the panels of a weight; none for a vector.
    pub fn len_bytes(weight: &Weight) -> Option<usize> {
        let tiles = (weight.cols as usize).div_ceil(TILE_LEN);
        let panel_len_bytes = Packing::of(weight.encoding)?.panel_len_bytes(tiles);
        Some((weight.rows as usize).div_ceil(LANES).saturating_mul(panel_len_bytes))
    }

    /// Zeroed memory for a matrix, to be packed into; none for a vector.
    pub fn allocate(weight: &Weight) -> Result<Option<Self>, DeviceError> {
        let (Some(packing), Some(len_bytes)) = (Packing::of(weight.encoding), Self::len_bytes(weight)) else {
            return Ok(None);
        };
        let (rows, tiles) = (weight.rows as usize, (weight.cols as usize).div_ceil(TILE_LEN));
        let panel_len_bytes = packing.panel_len_bytes(tiles);
        let lines = Lines::zeroed("a weight matrix", len_bytes)?.in_large_pages();
        Ok(Some(Self { packing, rows, tiles, panel_len_bytes, lines }))
    }

    /// All panels, to be packed into.
    pub fn panels_mut(&mut self) -> &mut [u8] {
        self.lines.bytes_mut()
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// One panel.
    pub fn panel(&self, panel: usize) -> &[u8] {
        let start = panel * self.panel_len_bytes;
        // SAFETY: what writes the panels, `panels_mut`, takes the matrix exclusively.
        unsafe { self.lines.bytes(start..start + self.panel_len_bytes) }
    }

    /// A row as an embedding: unpacked, then `core::numerics::embedding`.
    pub fn embed(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (self.panel(row / LANES), row % LANES);
        match self.packing {
            Packing::Block(format) => {
                embed_row(&Layout::of(format).decode(format, panel, self.tiles, lane), out)
            }
            Packing::W16 => {
                let (mut high, mut low, mut scales) = (Vec::new(), Vec::new(), Vec::new());
                for tile in panel.chunks_exact(W16_TILE_LEN_BYTES) {
                    let signed = |q: u8| (q ^ 0x80) as i8;
                    high.extend(unpack_lane::<Bytes>(tile, lane).map(signed));
                    low.extend(unpack_lane::<Bytes>(&tile[Bytes::LEN_BYTES..], lane).map(signed));
                    scales.push(f32_at(&tile[2 * Bytes::LEN_BYTES..], lane));
                }
                embed_w16_row(&W16Row { high: &high, low: &low, scales: &scales }, out);
            }
        }
    }
}

/// Elements of one lane of a packed tile.
fn unpack_lane<Q: Quants>(tile: &[u8], lane: usize) -> [u8; TILE_LEN] {
    assert!(tile.len() >= Q::LEN_BYTES, "a packed tile has {} bytes", Q::LEN_BYTES);
    // SAFETY: the tile is long enough, and Portable needs no special instructions.
    let vectors: [_; VECTORS] = unsafe { Q::unpack::<Portable>(tile.as_ptr()) };
    std::array::from_fn(|k| vectors[k / 4][lane][k % 4])
}

fn f16_at(bytes: &[u8], index: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
}

fn f32_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes(std::array::from_fn(|i| bytes[4 * index + i]))
}

/// How a format is packed.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Bytes of a tile.
    pub tile_len_bytes: usize,
    /// What is added to a weight to make its unsigned integer.
    pub offset: i32,
    /// Packs a tile.
    pub pack: fn(&Tile, &mut [u8]),
    unpack_lane: fn(&[u8], usize) -> [u8; TILE_LEN],
    /// Elements of a sub-block; 0 for blocks of 32. Formats with one scale for 256 elements have sub-blocks of scale 1.
    pub sub_len: usize,
    /// Bytes of the scale of a block of 32.
    pub block_scale_len_bytes: usize,
    /// Whether there are minima.
    pub has_minimum: bool,
}

impl Layout {
    fn new<Q: Quants>(sub_len: usize, has_minimum: bool) -> Self {
        let (tile_len_bytes, offset) = (Q::LEN_BYTES, Q::OFFSET);
        Self {
            tile_len_bytes,
            offset,
            pack: Q::pack,
            unpack_lane: unpack_lane::<Q>,
            sub_len,
            block_scale_len_bytes: 2,
            has_minimum,
        }
    }

    /// The packing of a format; `linear::panel` has the same table with kernels.
    pub fn of(format: BlockFormat) -> Self {
        match format {
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
            BlockFormat::MXFP4 => Self { block_scale_len_bytes: 4, ..Self::new::<Doubled>(0, false) },
            BlockFormat::TQ1_0 | BlockFormat::TQ2_0 => Self::new::<Ternary>(32, false),
        }
    }

    /// Bytes of the scales that follow `tiles` tiles, minima included, without filling.
    fn scales_len_bytes(&self, tiles: usize) -> usize {
        let scales = match self.sub_len {
            0 => self.block_scale_len_bytes * LANES * tiles,
            _ => 2 * LANES + LANES * self.sub_blocks(tiles),
        };
        if self.has_minimum { 2 * scales } else { scales }
    }

    /// Sub-blocks of `tiles` tiles; 0 for blocks of 32.
    pub fn sub_blocks(&self, tiles: usize) -> usize {
        (tiles * TILE_LEN).checked_div(self.sub_len).unwrap_or(0)
    }

    /// Bytes of a superblock of `tiles` tiles.
    pub fn superblock_len_bytes(&self, tiles: usize) -> usize {
        (tiles * self.tile_len_bytes + self.scales_len_bytes(tiles)).next_multiple_of(64)
    }

    /// Bytes of a panel of `tiles` tiles.
    pub fn panel_len_bytes(&self, tiles: usize) -> usize {
        let superblocks = 0..tiles.div_ceil(SUPERBLOCK_TILES);
        superblocks.map(|s| self.superblock_len_bytes(tiles_of_superblock(tiles, s))).sum()
    }

    /// The row in one lane of a panel: the inverse of packing.
    fn decode(&self, format: BlockFormat, panel: &[u8], tiles: usize, lane: usize) -> DecodedRow {
        let mut row = DecodedRow { format, ..DecodedRow::new() };
        let mut rest = panel;
        for s in 0..tiles.div_ceil(SUPERBLOCK_TILES) {
            let count = tiles_of_superblock(tiles, s);
            let (superblock, after) = rest.split_at(self.superblock_len_bytes(count));
            let (quants, scales) = superblock.split_at(count * self.tile_len_bytes);
            for tile in quants.chunks_exact(self.tile_len_bytes) {
                let q = (self.unpack_lane)(tile, lane);
                row.q.extend(q.map(|q| (i32::from(q) - self.offset) as i8));
            }
            let subs = self.sub_blocks(count);
            let halves = if self.sub_len == 0 { count } else { 1 };
            let (sub_scales, scales) = scales.split_at(subs * LANES);
            let (sub_minima, scales) = scales.split_at(if self.has_minimum { subs * LANES } else { 0 });
            row.sub_scales.extend(sub_scales.iter().skip(lane).step_by(LANES).map(|&x| x as i8));
            row.sub_minima.extend(sub_minima.iter().skip(lane).step_by(LANES).map(|&x| x as i8));
            row.scales.extend((0..halves).map(|i| match self.block_scale_len_bytes {
                4 => f32_at(scales, i * LANES + lane),
                _ => f16_at(scales, i * LANES + lane),
            }));
            if self.has_minimum {
                row.minima.extend((0..halves).map(|i| f16_at(scales, (halves + i) * LANES + lane)));
            }
            rest = after;
        }
        row
    }
}
