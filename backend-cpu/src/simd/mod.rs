//! Sixteen lanes, on whatever the processor has: the alphabet that every kernel is written in once.
//!
//! A kernel is generic over [`Simd`] and is compiled once for each implementation, inside a function that enables the
//! implementation's instructions ([`crate::isa`]). Operations are those of `core::numerics` ("Ground rules"): integer
//! arithmetic and single rounded float operations, so every implementation gives the same bits.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use portable::Portable;

/// Lanes of every vector.
pub const LANES: usize = 16;

/// Vectors of 16 lanes.
///
/// # Safety
/// Every unsafe function needs the instructions of the implementation; one that takes a pointer reads or writes as many
/// bytes as its comment says, at any alignment.
#[allow(missing_docs, reason = "operations are named for what they do")]
pub unsafe trait Simd: Copy + 'static {
    /// 16 i32 values.
    type I: Copy;
    /// 16 f32 values.
    type F: Copy;
    /// 64 bytes: 4 for each lane.
    type B: Copy;

    /// Whether [`Simd::dot4_wide`] takes its bytes as they are (true: the caller subtracts 128 times the sum of x) or
    /// subtracts the bias of 128 itself.
    const WIDE_IS_BIASED: bool;

    /// Asks for the cache line of an address, which may be any: a hint.
    fn prefetch(at: *const u8);

    unsafe fn splat_i(x: i32) -> Self::I;
    /// Reads 64 bytes.
    unsafe fn load_i(from: *const i32) -> Self::I;
    /// Writes 64 bytes.
    unsafe fn store_i(to: *mut i32, x: Self::I);
    /// Reads 16 bytes.
    unsafe fn load_i8(from: *const i8) -> Self::I;
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// The low 32 bits of the product.
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn and_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shl_i<const N: u32>(a: Self::I) -> Self::I;
    /// Arithmetic shift.
    unsafe fn sar_i<const N: u32>(a: Self::I) -> Self::I;
    /// Signed.
    unsafe fn min_i(a: Self::I, b: Self::I) -> Self::I;
    /// Signed.
    unsafe fn max_i(a: Self::I, b: Self::I) -> Self::I;
    /// `a < b ? x : y`, signed, lane by lane.
    unsafe fn select_lt(a: Self::I, b: Self::I, x: Self::I, y: Self::I) -> Self::I;
    /// Lane i gets lane i^N; N is 1, 2, 4 or 8.
    unsafe fn swap_i<const N: usize>(a: Self::I) -> Self::I;
    /// Writes each lane as a signed byte, in which its value fits: 16 bytes.
    unsafe fn store_low_bytes(to: *mut i8, x: Self::I);

    unsafe fn splat_f(x: f32) -> Self::F;
    /// Reads 64 bytes.
    unsafe fn load_f(from: *const f32) -> Self::F;
    /// Writes 64 bytes.
    unsafe fn store_f(to: *mut f32, x: Self::F);
    /// Reads 32 bytes: 16 binary16 values, converted exactly, subnormals included.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    unsafe fn add_f(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub_f(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul_f(a: Self::F, b: Self::F) -> Self::F;
    /// Correctly rounded.
    unsafe fn to_f(a: Self::I) -> Self::F;
    unsafe fn bits(a: Self::F) -> Self::I;
    unsafe fn from_bits(a: Self::I) -> Self::F;

    /// Reads 64 bytes.
    unsafe fn load_b(from: *const u8) -> Self::B;
    unsafe fn and_b(a: Self::B, mask: u8) -> Self::B;
    unsafe fn or_b(a: Self::B, b: Self::B) -> Self::B;
    /// Each byte shifted right; what is shifted in from the neighbour must be masked off.
    unsafe fn shr_b<const N: u32>(a: Self::B) -> Self::B;
    /// Each byte shifted left; what is shifted in from the neighbour must be masked off.
    unsafe fn shl_b<const N: u32>(a: Self::B) -> Self::B;
    /// `table[byte]` for bytes 0 to 15.
    unsafe fn lookup(a: Self::B, table: &[u8; 16]) -> Self::B;

    /// Each lane: `acc + sum of 4 w_i*x_i`, w unsigned and at most 127, x the 4 signed bytes of the word, not -128.
    unsafe fn dot4(acc: Self::I, w: Self::B, x: i32) -> Self::I;
    /// As [`Simd::dot4`] for bytes biased by 128, any value; see [`Simd::WIDE_IS_BIASED`].
    unsafe fn dot4_wide(acc: Self::I, w: Self::B, x: i32) -> Self::I;
    /// Each lane d: `acc + w0*v[2d] + w1*v[2d + 1]`, w0 and w1 the low and high signed halves of `w`. Reads 32 bytes.
    unsafe fn dot2(acc: Self::I, v: *const i8, w: i32) -> Self::I;
}
