//! The generator of long inputs that `tests/data/vectors/README.md` describes.

/// Output `i` of splitmix64.
pub fn splitmix64(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// `(sum of the four 16-bit fields of splitmix64(seed, i) - 131070) * 2^-15`, exact.
pub fn gauss(seed: u64, i: u64) -> f32 {
    let word = splitmix64(seed, i);
    let sum: i32 = (0..4).map(|field| ((word >> (16 * field)) & 0xFFFF) as i32).sum();
    (sum - 131_070) as f32 * f32::from_bits((127 - 15) << 23)
}

/// The first `len` values of [`gauss`].
pub fn gauss_row(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| gauss(seed, i)).collect()
}
