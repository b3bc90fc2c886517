//! Linear layers: 16 weight rows by a few activation rows at a time (docs/numerics.md "Linear layer").
//!
//! Each lane is one weight row, so every output element is computed in the order that the arithmetic states, whatever
//! the tile of rows and tokens. Weights are unpacked once for `N` tokens.

use unisonic_core::format::blocks::BlockFormat;

use super::matrix::{Packing, SUPERBLOCK_TILES, W16_TILE_LEN_BYTES};
use super::quants::{
    Bytes, Doubled, Five, Levels, Nibbles, Quants, Six, TILE_LEN, Ternary, Three, Two, VECTORS,
};
use crate::simd::{LANES, Simd};

/// Quantised activation rows as kernels read them.
#[derive(Clone, Copy)]
pub struct Activations {
    /// High plane, `width` a row.
    pub high: *const i8,
    /// Low plane, `width` a row.
    pub low: *const i8,
    /// One scale a superblock.
    pub scales: *const f32,
    /// Sums of the high plane over each 16 elements.
    pub sums_high: *const i32,
    /// Sums of the low plane over each 16 elements.
    pub sums_low: *const i32,
    /// Elements of a row, a multiple of 32.
    pub width: usize,
}

impl Activations {
    /// The rows from `row` on.
    ///
    /// # Safety
    /// The buffers have that many rows.
    #[inline(always)]
    pub unsafe fn starting_at(self, row: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                high: self.high.add(row * self.width),
                low: self.low.add(row * self.width),
                scales: self.scales.add(row * self.width.div_ceil(SUPERBLOCK_TILES * TILE_LEN)),
                sums_high: self.sums_high.add(row * self.width / 16),
                sums_low: self.sums_low.add(row * self.width / 16),
                width: self.width,
            }
        }
    }
}

/// Multiplies one panel with `rows` activation rows: `out[row * 16 + lane] = acc`, before bias and snap.
///
/// # Safety
/// As for [`Simd`]; `panel` is a panel of `tiles` tiles in this packing, `x` has `rows` rows of as many tiles, `out` has
/// room for `16 * rows` values.
#[inline(always)]
pub unsafe fn panel<S: Simd>(
    packing: Packing,
    panel: *const u8,
    tiles: usize,
    x: Activations,
    rows: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise; the table is that of `matrix::Layout::of`.
    unsafe {
        match packing {
            Packing::W16 => w16_rows::<S>(panel, tiles, x, rows, out),
            Packing::Block(format) => match format {
                BlockFormat::Q4_0 => block_rows::<S, Nibbles<8>, 0, false>(panel, tiles, x, rows, out),
                BlockFormat::Q4_1 => block_rows::<S, Nibbles<0>, 0, true>(panel, tiles, x, rows, out),
                BlockFormat::Q5_0 => block_rows::<S, Five<16>, 0, false>(panel, tiles, x, rows, out),
                BlockFormat::Q5_1 => block_rows::<S, Five<0>, 0, true>(panel, tiles, x, rows, out),
                BlockFormat::Q8_0 => block_rows::<S, Bytes, 0, false>(panel, tiles, x, rows, out),
                BlockFormat::IQ4_NL => block_rows::<S, Levels, 0, false>(panel, tiles, x, rows, out),
                BlockFormat::Q2_K => block_rows::<S, Two, 16, true>(panel, tiles, x, rows, out),
                BlockFormat::Q3_K => block_rows::<S, Three, 16, false>(panel, tiles, x, rows, out),
                BlockFormat::Q4_K => block_rows::<S, Nibbles<0>, 32, true>(panel, tiles, x, rows, out),
                BlockFormat::Q5_K => block_rows::<S, Five<0>, 32, true>(panel, tiles, x, rows, out),
                BlockFormat::Q6_K => block_rows::<S, Six, 16, false>(panel, tiles, x, rows, out),
                BlockFormat::IQ4_XS => block_rows::<S, Levels, 32, false>(panel, tiles, x, rows, out),
                BlockFormat::MXFP4 => block_rows::<S, Doubled, FLOATS, false>(panel, tiles, x, rows, out),
                BlockFormat::TQ1_0 | BlockFormat::TQ2_0 => {
                    block_rows::<S, Ternary, 32, false>(panel, tiles, x, rows, out)
                }
            },
        }
    }
}

/// In the place of the elements of a sub-block: blocks of 32 with f32 scales, where 0 is those with f16 scales.
const FLOATS: usize = 1;

/// Tokens that share an unpacked weight tile: what 32 vector registers hold.
const BLOCK_TOKENS: usize = 4;

#[inline(always)]
unsafe fn block_rows<S: Simd, Q: Quants, const SUB: usize, const MIN: bool>(
    panel: *const u8,
    tiles: usize,
    x: Activations,
    rows: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut row = 0;
        while row + BLOCK_TOKENS <= rows {
            let to = out.add(row * LANES);
            block_tokens::<S, Q, SUB, MIN, BLOCK_TOKENS>(panel, tiles, x.starting_at(row), row == 0, to);
            row += BLOCK_TOKENS;
        }
        while row < rows {
            let to = out.add(row * LANES);
            block_tokens::<S, Q, SUB, MIN, 1>(panel, tiles, x.starting_at(row), row == 0, to);
            row += 1;
        }
    }
}

/// `acc = acc + T_s*D_s`, superblocks ascending, for N tokens. `is_first`: the panel comes from memory; for later tokens it is
/// in the cache.
#[inline(always)]
unsafe fn block_tokens<S: Simd, Q: Quants, const SUB: usize, const MIN: bool, const N: usize>(
    panel: *const u8,
    tiles: usize,
    x: Activations,
    is_first: bool,
    out: *mut f32,
) {
    // SAFETY: the caller's promise; the walk over the panel is that of `packing::pack_superblock`.
    unsafe {
        let superblocks = tiles.div_ceil(SUPERBLOCK_TILES);
        let mut acc = [S::splat_f(0.0); N];
        let mut from = panel;
        for s in 0..superblocks {
            let first = s * SUPERBLOCK_TILES;
            let count = (tiles - first).min(SUPERBLOCK_TILES);
            let scales = from.add(count * Q::LEN_BYTES);
            let both = if MIN { 2 } else { 1 };
            let scales_len = match SUB {
                0 => count * 2 * LANES,
                FLOATS => count * 4 * LANES,
                _ => sub_scales_len(SUB) + 2 * LANES,
            };
            let len_bytes = (count * Q::LEN_BYTES + both * scales_len).next_multiple_of(64);
            if is_first {
                prefetch_ahead::<S>(from, len_bytes);
            }
            let totals = if SUB == 0 || SUB == FLOATS {
                blocks_of_32::<S, Q, SUB, MIN, N>(from, scales, first, count, x)
            } else {
                sub_blocks::<S, Q, SUB, MIN, N>(from, scales, first, x)
            };
            for t in 0..N {
                let scale = *x.scales.add(t * superblocks + s);
                acc[t] = S::add_f(acc[t], S::mul_f(totals[t], S::splat_f(scale)));
            }
            from = from.add(len_bytes);
        }
        for (t, acc) in acc.into_iter().enumerate() {
            S::store_f(out.add(t * LANES), acc);
        }
    }
}

/// How far ahead of the kernel weights are asked for: some microseconds of work, and little enough for the first cache.
/// Processors guess that memory is read on and on, but late and in pieces. What it gains is in `benches/results/`.
const PREFETCH_DISTANCE_BYTES: usize = 6144;

/// Asks for the weights that follow at a distance: as many bytes as are about to be used.
#[inline(always)]
fn prefetch_ahead<S: Simd>(from: *const u8, len_bytes: usize) {
    for line in (0..len_bytes).step_by(64) {
        S::prefetch(from.wrapping_add(PREFETCH_DISTANCE_BYTES + line));
    }
}

/// Sum of 16 lanes' dot products over the vectors `FROM..FROM + COUNT` of a tile, from `init`.
#[inline(always)]
unsafe fn dots<S: Simd, Q: Quants, const FROM: usize, const COUNT: usize>(
    w: &[S::B; VECTORS],
    x: *const i8,
    init: i32,
) -> S::I {
    // SAFETY: the caller's promise; 4 bytes of x for each vector.
    unsafe {
        let mut sum = S::splat_i(init);
        let mut i = FROM;
        while i < FROM + COUNT {
            let word = x.add(4 * i).cast::<i32>().read_unaligned();
            sum = if Q::WIDE { S::dot4_wide(sum, w[i], word) } else { S::dot4(sum, w[i], word) };
            i += 1;
        }
        sum
    }
}

/// What the offset of the unsigned integers adds to a dot product, to start from: `-offset * sum of x`.
#[inline(always)]
fn correction<S: Simd, Q: Quants>(sum: i32) -> i32 {
    if Q::WIDE && !S::WIDE_IS_BIASED { 0 } else { -Q::OFFSET * sum }
}

/// `F(I) = i2f(I(h))*128 + i2f(I(l))`.
#[inline(always)]
unsafe fn join_planes<S: Simd>(high: S::I, low: S::I) -> S::F {
    // SAFETY: the caller's promise.
    unsafe { S::add_f(S::mul_f(S::to_f(high), S::splat_f(128.0)), S::to_f(low)) }
}

/// T of a superblock of blocks of 32: `T = T + F(I_b)*d_b [, T = T + i2f(bs_b)*m_b]`, b ascending.
#[inline(always)]
unsafe fn blocks_of_32<S: Simd, Q: Quants, const SUB: usize, const MIN: bool, const N: usize>(
    quants: *const u8,
    scales: *const u8,
    first: usize,
    count: usize,
    x: Activations,
) -> [S::F; N] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut totals = [S::splat_f(0.0); N];
        for b in 0..count {
            let w = Q::unpack::<S>(quants.add(b * Q::LEN_BYTES));
            let d = match SUB {
                FLOATS => S::load_f(scales.cast::<f32>().add(b * LANES)),
                _ => S::load_f16(scales.cast::<u16>().add(b * LANES)),
            };
            let m = if MIN { S::load_f16(scales.cast::<u16>().add((count + b) * LANES)) } else { d };
            for (t, total) in totals.iter_mut().enumerate() {
                let at = t * x.width + (first + b) * TILE_LEN;
                let sums = at / 16;
                let sum_high = *x.sums_high.add(sums) + *x.sums_high.add(sums + 1);
                let sum_low = *x.sums_low.add(sums) + *x.sums_low.add(sums + 1);
                let high = dots::<S, Q, 0, VECTORS>(&w, x.high.add(at), correction::<S, Q>(sum_high));
                let low = dots::<S, Q, 0, VECTORS>(&w, x.low.add(at), correction::<S, Q>(sum_low));
                *total = S::add_f(*total, S::mul_f(join_planes::<S>(high, low), d));
                if MIN {
                    let bs = (128 * sum_high + sum_low) as f32;
                    *total = S::add_f(*total, S::mul_f(S::splat_f(bs), m));
                }
            }
        }
        totals
    }
}

/// Bytes of the scales, or of the minima, of a superblock's sub-blocks.
const fn sub_scales_len(sub_len: usize) -> usize {
    SUPERBLOCK_TILES * TILE_LEN / sub_len * LANES
}

/// T of a superblock with sub-blocks: `I = sum sc_j*I_j, I2 = sum mn_j*bs_j; T = F(I)*d [- i2f(I2)*dmin]`.
#[inline(always)]
unsafe fn sub_blocks<S: Simd, Q: Quants, const SUB: usize, const MIN: bool, const N: usize>(
    quants: *const u8,
    scales: *const u8,
    first: usize,
    x: Activations,
) -> [S::F; N] {
    // SAFETY: the caller's promise; a superblock with sub-blocks is whole.
    unsafe {
        let sub_scales = scales.cast::<i8>();
        let sub_minima = sub_scales.add(sub_scales_len(SUB));
        let zero = S::splat_i(0);
        let (mut high, mut low, mut minimum) = ([zero; N], [zero; N], [zero; N]);
        for b in 0..SUPERBLOCK_TILES {
            let w = Q::unpack::<S>(quants.add(b * Q::LEN_BYTES));
            for j in 0..TILE_LEN / SUB {
                let sub = (b * (TILE_LEN / SUB) + j) * LANES;
                let scale = S::load_i8(sub_scales.add(sub));
                let sub_minimum = if MIN { S::load_i8(sub_minima.add(sub)) } else { zero };
                for t in 0..N {
                    let at = t * x.width + (first + b) * TILE_LEN;
                    let (xh, xl) = (x.high.add(at), x.low.add(at));
                    let sums = at / 16;
                    let (sum_high, sum_low, h, l);
                    if SUB == 32 {
                        sum_high = *x.sums_high.add(sums) + *x.sums_high.add(sums + 1);
                        sum_low = *x.sums_low.add(sums) + *x.sums_low.add(sums + 1);
                        h = dots::<S, Q, 0, 8>(&w, xh, correction::<S, Q>(sum_high));
                        l = dots::<S, Q, 0, 8>(&w, xl, correction::<S, Q>(sum_low));
                    } else {
                        sum_high = *x.sums_high.add(sums + j);
                        sum_low = *x.sums_low.add(sums + j);
                        let (from_h, from_l) = (correction::<S, Q>(sum_high), correction::<S, Q>(sum_low));
                        (h, l) = if j == 0 {
                            (dots::<S, Q, 0, 4>(&w, xh, from_h), dots::<S, Q, 0, 4>(&w, xl, from_l))
                        } else {
                            (dots::<S, Q, 4, 4>(&w, xh, from_h), dots::<S, Q, 4, 4>(&w, xl, from_l))
                        };
                    }
                    high[t] = S::add_i(high[t], S::mul_i(scale, h));
                    low[t] = S::add_i(low[t], S::mul_i(scale, l));
                    if MIN {
                        let bs = S::splat_i(128 * sum_high + sum_low);
                        minimum[t] = S::add_i(minimum[t], S::mul_i(sub_minimum, bs));
                    }
                }
            }
        }
        let both = if MIN { 2 } else { 1 };
        let halves = sub_scales.add(both * sub_scales_len(SUB)).cast::<u16>();
        let d = S::load_f16(halves);
        std::array::from_fn(|t| {
            let total = S::mul_f(join_planes::<S>(high[t], low[t]), d);
            if MIN {
                let dmin = S::load_f16(halves.add(LANES));
                S::sub_f(total, S::mul_f(S::to_f(minimum[t]), dmin))
            } else {
                total
            }
        })
    }
}

/// `acc = acc + snap(T_s*(D_s*128))` with `T = T + (i2f(HH_b)*128 + i2f(C_b))*d_b`, row by row.
#[inline(always)]
unsafe fn w16_rows<S: Simd>(panel: *const u8, tiles: usize, x: Activations, rows: usize, out: *mut f32) {
    // SAFETY: the caller's promise; the walk over the panel is that of `packing::pack_w16_panel`.
    unsafe {
        let superblocks = tiles.div_ceil(SUPERBLOCK_TILES);
        for row in 0..rows {
            let x = x.starting_at(row);
            let mut acc = S::splat_f(0.0);
            let mut from = panel;
            for s in 0..superblocks {
                let first = s * SUPERBLOCK_TILES;
                let mut total = S::splat_f(0.0);
                for b in first..tiles.min(first + SUPERBLOCK_TILES) {
                    if row == 0 {
                        prefetch_ahead::<S>(from, W16_TILE_LEN_BYTES);
                    }
                    let high = Bytes::unpack::<S>(from);
                    let low = Bytes::unpack::<S>(from.add(Bytes::LEN_BYTES));
                    let d = S::load_f(from.add(2 * Bytes::LEN_BYTES).cast());
                    let (xh, xl) = (x.high.add(b * TILE_LEN), x.low.add(b * TILE_LEN));
                    let sum = |sums: *const i32| *sums.add(2 * b) + *sums.add(2 * b + 1);
                    let from_high = correction::<S, Bytes>(sum(x.sums_high));
                    let from_low = correction::<S, Bytes>(sum(x.sums_low));
                    let hh = dots::<S, Bytes, 0, VECTORS>(&high, xh, from_high);
                    let hl = dots::<S, Bytes, 0, VECTORS>(&high, xl, from_low);
                    let lh = dots::<S, Bytes, 0, VECTORS>(&low, xh, from_high);
                    let joined = join_planes::<S>(hh, S::add_i(hl, lh));
                    total = S::add_f(total, S::mul_f(joined, d));
                    from = from.add(W16_TILE_LEN_BYTES);
                }
                let scale = S::splat_f(*x.scales.add(s) * 128.0);
                acc = S::add_f(acc, super::elementary::snap::<S>(S::mul_f(total, scale)));
            }
            S::store_f(out.add(row * LANES), acc);
        }
    }
}
