//! Rows, bytes and launches for the tests of templates.

use unisonic_core::kir::Kernel;
use unisonic_core::kir::interp::{Launch, run};
use unisonic_core::kir::legal::{Caps, legalize};
use unisonic_core::kir::verify;

use super::RowKernel;

/// Random words, always the same for the same seed.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Values of either sign whose magnitudes differ widely, some of them zero.
pub fn rows(count: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut next = random(seed);
    let mut value = move || {
        let word = next();
        let exponent = 127 - 12 + (word >> 40) as u32 % 24;
        if word >> 60 == 0 { 0.0 } else { f32::from_bits((word as u32 & 0x807F_FFFF) | exponent << 23) }
    };
    (0..count * width).map(|_| value()).collect()
}

/// Little-endian bytes.
pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Little-endian bytes.
pub fn word_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Words of little-endian bytes.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Floats of little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).into_iter().map(f32::from_bits).collect()
}

/// Bit patterns: what tests compare.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Verifies a kernel and runs it for some rows; the buffers afterwards.
pub fn launch(template: &RowKernel, rows: usize, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    launch_groups(&template.kernel, rows as u32 * template.groups_a_row, vec![], buffers)
}

/// Verifies a kernel and runs it, on a device that has everything and, legalised, on one that has next to nothing; the buffers
/// afterwards.
pub fn launch_groups(kernel: &Kernel, groups: u32, params: Vec<u32>, buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let found = launch_on(Caps::ALL, kernel, groups, params.clone(), buffers.clone());
    let weakest = Caps { subgroup: 8, ..Caps::NONE };
    let alike = launch_on(weakest, kernel, groups, params, buffers) == found;
    assert!(alike, "{}: results differ on {weakest:?}", kernel.name);
    found
}

/// The same, on one device.
pub fn launch_on(
    caps: Caps,
    kernel: &Kernel,
    groups: u32,
    params: Vec<u32>,
    buffers: Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    assert_eq!(verify(kernel), [], "{kernel}");
    let legal = legalize(kernel, &caps);
    assert_eq!(verify(&legal), [], "{caps:?}");
    let mut launch = Launch { groups, params, buffers, fuel: u64::MAX };
    run(&legal, &mut launch).unwrap_or_else(|trap| panic!("{}, {caps:?}: {trap}", kernel.name));
    launch.buffers
}
