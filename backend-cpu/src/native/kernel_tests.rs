//! The kernels of every set of instructions that this machine has, against known answers and `core::numerics`, bit for
//! bit.
//!
//! What kernels write to holds poison first, so that every value is seen to be written.

mod attention;
mod heads;
mod linear;
mod rows;

#[path = "../../../core/tests/support/attention_input.rs"]
mod attention_input;
#[path = "../../../core/tests/support/generator.rs"]
mod generator;
#[path = "../../../core/tests/vectors/json.rs"]
#[allow(dead_code, reason = "not every reader is needed here")]
mod json;

use unisonic_core::numerics::range::ACTIVATION_LIMIT;

use super::linear::Activations;
use super::rows::A16Mut;
use crate::isa::{Isa, Kernels};
use generator::splitmix64;
use json::bits;

/// Runs a check with the kernels of every set of instructions that this machine has.
fn each_isa(check: impl Fn(Isa, &Kernels)) {
    for isa in Isa::ALL {
        if let Some(kernels) = isa.kernels() {
            check(isa, kernels);
        }
    }
}

#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], what: impl Fn() -> String) {
    assert_eq!(found.len(), expected.len(), "{}: length", what());
    for (i, (found, expected)) in bits(found).into_iter().zip(bits(expected)).enumerate() {
        assert_eq!(found, expected, "{}, element {i}: {found:08x}, expected {expected:08x}", what());
    }
}

/// A stream of words.
struct Random {
    seed: u64,
    count: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    fn word(&mut self) -> u64 {
        self.count += 1;
        splitmix64(self.seed, self.count)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A float of either sign with this exponent.
    fn float(&mut self, exponent: i32) -> f32 {
        let word = self.word() as u32;
        f32::from_bits((word & 0x807F_FFFF) | ((127 + exponent) as u32) << 23)
    }

    /// A row whose magnitudes differ widely between and inside its blocks of 256, with zeros of either sign.
    fn row(&mut self, len: usize) -> Vec<f32> {
        let mut row = Vec::with_capacity(len);
        for block in 0..len.div_ceil(256) {
            let largest = self.pick(&[-41, -38, -20, -3, 0, 4, 20, 60]);
            for _ in 0..256.min(len - block * 256) {
                let below = self.pick(&[0, 1, 2, 3, 8, 14, 30]);
                row.push(match self.below(16) {
                    0 => 0.0,
                    1 => -0.0,
                    _ => self.float(largest - below),
                });
            }
        }
        row
    }
}

/// Quantised rows that a kernel has made.
struct Quantized {
    width: usize,
    planes: [Vec<i8>; 2],
    scales: Vec<f32>,
    sums: [Vec<i32>; 2],
    in_range: Vec<bool>,
}

impl Quantized {
    fn of_rows<'a>(kernels: &Kernels, rows: impl ExactSizeIterator<Item = &'a [f32]>, len: usize) -> Self {
        let (count, width) = (rows.len(), len.next_multiple_of(32));
        let (superblocks, sums) = (width.div_ceil(256), width / 16);
        let mut to = Self {
            width,
            planes: [vec![-128; count * width], vec![-128; count * width]],
            scales: vec![f32::NAN; count * superblocks],
            sums: [vec![i32::MIN; count * sums], vec![i32::MIN; count * sums]],
            in_range: Vec::new(),
        };
        for (row, x) in rows.enumerate() {
            assert_eq!(x.len(), len);
            let ([high, low], [sums_high, sums_low]) = (&mut to.planes, &mut to.sums);
            let mut to_row = A16Mut {
                high: &mut high[row * width..][..width],
                low: &mut low[row * width..][..width],
                scales: &mut to.scales[row * superblocks..][..superblocks],
                sums_high: &mut sums_high[row * sums..][..sums],
                sums_low: &mut sums_low[row * sums..][..sums],
            };
            // SAFETY: `Isa::kernels` has asked for the instructions; rows are multiples of 16 long and the planes padded.
            to.in_range.push(unsafe { (kernels.quantize_a16)(x, ACTIVATION_LIMIT, &mut to_row) });
        }
        to
    }

    fn activations(&self) -> Activations {
        Activations {
            high: self.planes[0].as_ptr(),
            low: self.planes[1].as_ptr(),
            scales: self.scales.as_ptr(),
            sums_high: self.sums[0].as_ptr(),
            sums_low: self.sums[1].as_ptr(),
            width: self.width,
        }
    }
}
