//! Kernel templates: what a GPU runs for each step, written once with `core::kir::build`.
//!
//! A template is a function from the constants of a step to a kernel. What it computes is defined by a function of
//! `core::numerics`, and tests compare the two bit for bit in the interpreter. Start reading at [`rms_norm()`];
//! [`elementary`] has the functions that all of them use, [`reduce`] the one order of float sums.

pub mod elementary;
pub mod linear;
mod quantize;
pub mod reduce;
mod rms_norm;

pub use quantize::quantize_a16;
pub use rms_norm::rms_norm;

/// Invocations of a workgroup of a kernel that works on rows: the virtual lanes of
/// [`unisonic_core::numerics::float::tree256`].
pub const ROW_LANES: u32 = 256;

#[cfg(test)]
mod tests {
    //! Rows and bytes for the tests of templates.

    /// Values of either sign whose magnitudes differ widely, some of them zero.
    pub fn rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut value = move || {
            let word = next();
            let exponent = 127 - 12 + (word >> 40) as u32 % 24;
            if word >> 60 == 0 { 0.0 } else { f32::from_bits((word as u32 & 0x807F_FFFF) | exponent << 23) }
        };
        (0..count * width).map(|_| value()).collect()
    }

    pub fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    pub fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    pub fn floats(bytes: &[u8]) -> Vec<f32> {
        words(bytes).into_iter().map(f32::from_bits).collect()
    }
}
