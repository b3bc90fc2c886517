//! What a device may make of subnormals: the interpreter with flushed operands, flushed results or both.

use unisonic_core::kir::interp::{Launch, Watch, run_watched};
use unisonic_core::kir::kernel::{Inst, Kernel};
use unisonic_core::kir::{Op, Scalar};

/// Whether buffers are what a device leaves that flushes.
pub fn explains(kernel: &Kernel, launch: &Launch, found: &[Vec<u8>]) -> bool {
    const WAYS: [Flush; 3] = [
        Flush { operands: false, results: true },
        Flush { operands: true, results: true },
        Flush { operands: true, results: false },
    ];
    WAYS.into_iter().any(|mut flush| {
        let mut launch = Launch { fuel: u64::MAX, ..launch.clone() };
        run_watched(kernel, &mut launch, &mut flush).is_ok() && launch.buffers == found
    })
}

/// Whether a kernel has operations whose results may be flushed.
pub fn concerns(kernel: &Kernel) -> bool {
    kernel.types.iter().any(|ty| ty.scalar == Scalar::F32)
}

struct Flush {
    operands: bool,
    results: bool,
}

fn flushed(word: u32, flushes: bool) -> u32 {
    let is_subnormal = f32::from_bits(word).is_subnormal();
    if flushes && is_subnormal { word & 0x8000_0000 } else { word }
}

impl Watch for Flush {
    fn after(&mut self, inst: &Inst, operands: &[&[u32]], _: &[bool], result: &mut [u32]) {
        let compute = match inst.op {
            Op::FAdd => |a: f32, b: f32| a + b,
            Op::FSub => |a: f32, b: f32| a - b,
            Op::FMul => |a: f32, b: f32| a * b,
            _ => return,
        };
        let [a, b] = operands else { return };
        for (result, (&a, &b)) in result.iter_mut().zip(a.iter().zip(*b)) {
            let [a, b] = [a, b].map(|word| f32::from_bits(flushed(word, self.operands)));
            *result = flushed(compute(a, b).to_bits(), self.results);
        }
    }
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::build::kernel;

    use super::*;

    #[test]
    fn a_flushed_product_is_explained_and_a_wrong_one_is_not() {
        let kernel = kernel("product", 1, |k| {
            let (x, y) = (k.read("x", Scalar::F32), k.write("y", Scalar::F32));
            y.store(k.local_id(), x.load(k.u32(0)) * x.load(k.u32(1)));
        });
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // 2^-100 times -2^-40.
        let x = bytes(&[0x0D80_0000, 0xAB80_0000]);
        let launch = Launch { groups: 1, params: vec![], buffers: vec![x.clone(), bytes(&[0])], fuel: 100 };
        for (found, expected) in [(0x8000_0000, true), (0, false), (0x8000_0001, false)] {
            assert_eq!(explains(&kernel, &launch, &[x.clone(), bytes(&[found])]), expected, "{found:x}");
        }
        assert!(concerns(&kernel));
    }
}
