//! How the integers of 16 weight rows lie side by side, and how they come apart.
//!
//! A *tile* is 32 elements of 16 rows. Unpacked it is 8 vectors of 4 bytes a lane: lane r of vector g holds elements
//! `4g .. 4g+4` of row r, as unsigned bytes. Packed it is one to three bit planes:
//!
//! | plane | bytes | content |
//! |---|---|---|
//! | nibbles | 256 | vector g in the low, vector g+4 in the high half of the bytes of part g, g = 0..4 |
//! | pairs | 128 | vector 4p+j in bits 2j, 2j+1 of part p, p = 0..2 |
//! | bits | 64 | vector g in bit g |
//! | bytes | 512 | vector g as it is |
//!
//! Every row of 32 elements takes as many bits as in the file, and a kernel loads whole vectors.

use crate::simd::{LANES, Simd};

/// Elements of a tile row.
pub const TILE_LEN: usize = 32;
/// Vectors of an unpacked tile.
pub const VECTORS: usize = 8;

/// A tile as unsigned integers, by row.
pub type Tile = [[u8; TILE_LEN]; LANES];

/// A packing of tiles.
pub trait Quants: 'static {
    /// Bytes of a packed tile.
    const LEN_BYTES: usize;
    /// What is added to a weight to make its unsigned integer.
    const OFFSET: i32;
    /// Whether the unpacked bytes are biased by 128 and use all their bits ([`Simd::dot4_wide`]).
    const WIDE: bool = false;

    /// Packs integers of `0..` as many bits as the packing has.
    fn pack(tile: &Tile, to: &mut [u8]);

    /// The 8 vectors of a tile.
    ///
    /// # Safety
    /// As for [`Simd`]; `from` points to `LEN_BYTES` readable bytes.
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS];
}

/// Four bits; OFFSET is that of the format.
pub struct Nibbles<const OFFSET: i32>;
/// Four bits and one.
pub struct Five<const OFFSET: i32>;
/// Four bits and two, offset 32.
pub struct Six;
/// Two bits.
pub struct Two;
/// Two bits and one, offset 4.
pub struct Three;
/// Signed bytes, biased by 128.
pub struct Bytes;
/// Four bits that stand for the 16 levels of IQ4_NL and IQ4_XS, biased by 128.
pub struct Levels;
/// Four bits that stand for the doubled values of MXFP4, biased by 128.
pub struct Doubled;
/// Two bits, offset 1.
pub struct Ternary;

const NIBBLES_LEN: usize = 256;
const PAIRS_LEN: usize = 128;
const BITS_LEN: usize = 64;

/// The elements of a row as words: word g is the row's lane of vector g.
fn words(row: &[u8; TILE_LEN]) -> [u32; VECTORS] {
    std::array::from_fn(|g| u32::from_le_bytes(std::array::from_fn(|i| row[4 * g + i])))
}

/// Writes the lane of each row into the parts of a plane; `part(words, p)` makes the lane of part p.
fn pack_parts(tile: &Tile, to: &mut [u8], part: impl Fn(&[u32; VECTORS], usize) -> u32) {
    for (row, elements) in tile.iter().enumerate() {
        let words = words(elements);
        for (p, to) in to.chunks_exact_mut(64).enumerate() {
            to[4 * row..][..4].copy_from_slice(&part(&words, p).to_le_bytes());
        }
    }
}

/// The low four bits of each element.
fn pack_nibbles(tile: &Tile, to: &mut [u8]) {
    pack_parts(tile, to, |w, p| (w[p] & 0x0F0F_0F0F) | ((w[p + 4] & 0x0F0F_0F0F) << 4));
}

/// Two bits of each element, from bit `shift`.
fn pack_pairs(tile: &Tile, to: &mut [u8], shift: u32) {
    pack_parts(tile, to, |w, p| (0..4).map(|j| ((w[4 * p + j] >> shift) & 0x0303_0303) << (2 * j)).sum());
}

/// Bit `shift` of each element.
fn pack_bits(tile: &Tile, to: &mut [u8], shift: u32) {
    pack_parts(tile, to, |w, _| (0..VECTORS).map(|g| ((w[g] >> shift) & 0x0101_0101) << g).sum());
}

#[inline(always)]
unsafe fn nibbles<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise; 4 parts of 64 bytes.
    unsafe {
        let part = |g: usize| S::load_b(from.add(64 * g));
        let parts = [part(0), part(1), part(2), part(3)];
        let low = |g: usize| S::and_b(parts[g], 15);
        let high = |g: usize| S::and_b(S::shr_b::<4>(parts[g]), 15);
        [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
    }
}

/// Two bits of each vector, at bit 0.
#[inline(always)]
unsafe fn pairs<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise; 2 parts of 64 bytes.
    unsafe {
        let (a, b) = (S::load_b(from), S::load_b(from.add(64)));
        [
            S::and_b(a, 3),
            S::and_b(S::shr_b::<2>(a), 3),
            S::and_b(S::shr_b::<4>(a), 3),
            S::and_b(S::shr_b::<6>(a), 3),
            S::and_b(b, 3),
            S::and_b(S::shr_b::<2>(b), 3),
            S::and_b(S::shr_b::<4>(b), 3),
            S::and_b(S::shr_b::<6>(b), 3),
        ]
    }
}

/// Two bits of each vector, at bit 4.
#[inline(always)]
unsafe fn pairs_at_4<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise; 2 parts of 64 bytes.
    unsafe {
        let (a, b) = (S::load_b(from), S::load_b(from.add(64)));
        [
            S::and_b(S::shl_b::<4>(a), 0x30),
            S::and_b(S::shl_b::<2>(a), 0x30),
            S::and_b(a, 0x30),
            S::and_b(S::shr_b::<2>(a), 0x30),
            S::and_b(S::shl_b::<4>(b), 0x30),
            S::and_b(S::shl_b::<2>(b), 0x30),
            S::and_b(b, 0x30),
            S::and_b(S::shr_b::<2>(b), 0x30),
        ]
    }
}

/// One bit of each vector, at bit 4.
#[inline(always)]
unsafe fn bits_at_4<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise; 64 bytes.
    unsafe {
        let a = S::load_b(from);
        [
            S::and_b(S::shl_b::<4>(a), 0x10),
            S::and_b(S::shl_b::<3>(a), 0x10),
            S::and_b(S::shl_b::<2>(a), 0x10),
            S::and_b(S::shl_b::<1>(a), 0x10),
            S::and_b(a, 0x10),
            S::and_b(S::shr_b::<1>(a), 0x10),
            S::and_b(S::shr_b::<2>(a), 0x10),
            S::and_b(S::shr_b::<3>(a), 0x10),
        ]
    }
}

/// One bit of each vector, at bit 2.
#[inline(always)]
unsafe fn bits_at_2<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise; 64 bytes.
    unsafe {
        let a = S::load_b(from);
        [
            S::and_b(S::shl_b::<2>(a), 4),
            S::and_b(S::shl_b::<1>(a), 4),
            S::and_b(a, 4),
            S::and_b(S::shr_b::<1>(a), 4),
            S::and_b(S::shr_b::<2>(a), 4),
            S::and_b(S::shr_b::<3>(a), 4),
            S::and_b(S::shr_b::<4>(a), 4),
            S::and_b(S::shr_b::<5>(a), 4),
        ]
    }
}

#[inline(always)]
unsafe fn join<S: Simd>(a: [S::B; VECTORS], b: [S::B; VECTORS]) -> [S::B; VECTORS] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|g| unsafe { S::or_b(a[g], b[g]) })
}

impl<const OFFSET: i32> Quants for Nibbles<OFFSET> {
    const LEN_BYTES: usize = NIBBLES_LEN;
    const OFFSET: i32 = OFFSET;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_nibbles(tile, to);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S>(from) }
    }
}

impl<const OFFSET: i32> Quants for Five<OFFSET> {
    const LEN_BYTES: usize = NIBBLES_LEN + BITS_LEN;
    const OFFSET: i32 = OFFSET;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_nibbles(tile, &mut to[..NIBBLES_LEN]);
        pack_bits(tile, &mut to[NIBBLES_LEN..], 4);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise; the bits follow the nibbles.
        unsafe { join::<S>(nibbles::<S>(from), bits_at_4::<S>(from.add(NIBBLES_LEN))) }
    }
}

impl Quants for Six {
    const LEN_BYTES: usize = NIBBLES_LEN + PAIRS_LEN;
    const OFFSET: i32 = 32;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_nibbles(tile, &mut to[..NIBBLES_LEN]);
        pack_pairs(tile, &mut to[NIBBLES_LEN..], 4);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise; the pairs follow the nibbles.
        unsafe { join::<S>(nibbles::<S>(from), pairs_at_4::<S>(from.add(NIBBLES_LEN))) }
    }
}

impl Quants for Two {
    const LEN_BYTES: usize = PAIRS_LEN;
    const OFFSET: i32 = 0;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_pairs(tile, to, 0);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        unsafe { pairs::<S>(from) }
    }
}

impl Quants for Ternary {
    const LEN_BYTES: usize = PAIRS_LEN;
    const OFFSET: i32 = 1;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_pairs(tile, to, 0);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        unsafe { pairs::<S>(from) }
    }
}

impl Quants for Three {
    const LEN_BYTES: usize = PAIRS_LEN + BITS_LEN;
    const OFFSET: i32 = 4;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_pairs(tile, &mut to[..PAIRS_LEN], 0);
        pack_bits(tile, &mut to[PAIRS_LEN..], 2);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise; the bits follow the pairs.
        unsafe { join::<S>(pairs::<S>(from), bits_at_2::<S>(from.add(PAIRS_LEN))) }
    }
}

impl Quants for Bytes {
    const LEN_BYTES: usize = VECTORS * 64;
    const OFFSET: i32 = 128;
    const WIDE: bool = true;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_parts(tile, to, |w, p| w[p]);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        std::array::from_fn(|g| unsafe { S::load_b(from.add(64 * g)) })
    }
}

/// Takes biased levels, not their numbers: the inverse of unpacking. Of equal levels any number will do.
fn pack_levels(tile: &Tile, levels: &[u8; 16], to: &mut [u8]) {
    let number = |level: u8| levels.iter().position(|&l| l == level).unwrap_or(0) as u8;
    pack_nibbles(&tile.map(|row| row.map(number)), to);
}

/// The levels of `core::format::blocks` (IQ4_NL), biased by 128.
const LEVELS: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

impl Quants for Levels {
    const LEN_BYTES: usize = NIBBLES_LEN;
    const OFFSET: i32 = 128;
    const WIDE: bool = true;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_levels(tile, &LEVELS, to);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S>(from).map(|numbers| S::lookup(numbers, &LEVELS)) }
    }
}

/// The values of `core::format::blocks` (MXFP4), biased by 128.
const DOUBLED: [u8; 16] = [128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116];

impl Quants for Doubled {
    const LEN_BYTES: usize = NIBBLES_LEN;
    const OFFSET: i32 = 128;
    const WIDE: bool = true;

    fn pack(tile: &Tile, to: &mut [u8]) {
        pack_levels(tile, &DOUBLED, to);
    }

    #[inline(always)]
    unsafe fn unpack<S: Simd>(from: *const u8) -> [S::B; VECTORS] {
        // SAFETY: the caller's promise.
        unsafe { nibbles::<S>(from).map(|numbers| S::lookup(numbers, &DOUBLED)) }
    }
}
