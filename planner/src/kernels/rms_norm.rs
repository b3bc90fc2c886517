//! RMSNorm of rows.

use unisonic_core::kir::{Kernel, Scalar, build::kernel};
use unisonic_core::numerics::float::reciprocal_of_len;
use unisonic_core::numerics::range::SQUARES_LIMIT;

use super::ROW_LANES;
use super::elementary::{is_below, rsqrt, snap};
use super::reduce::tree256;

/// `y = snap((x*r)*w)`, `r = rsqrt(tree256(snap(x*x))*f32(1/width) + eps)`, one workgroup a row
/// (`core::numerics::norm::rms_norm`).
///
/// Buffers: `x` and `y` rows of `width` values, `weight` one row, `flags` a word a row: 1 where the row is out of range, whose
/// `y` is +0; else 0. Reads x twice and the weight once, writes y: 16 bytes an element, of which the second x comes from a
/// cache.
pub fn rms_norm(width: u32, eps: f32) -> Kernel {
    kernel("rms_norm", ROW_LANES, |k| {
        let (x, weight) = (k.read("x", Scalar::F32), k.read("weight", Scalar::F32));
        let (y, flags) = (k.write("y", Scalar::F32), k.write("flags", Scalar::U32));
        let scratch = k.shared("scratch", Scalar::F32, ROW_LANES);
        let (row, lane) = (k.group_id(), k.local_id());
        let (first, end) = (row * width, k.u32(width));

        let [lane_sum] = k.fold(lane, end, ROW_LANES, [k.f32(0.0)], |i, [sum]| {
            let x = x.load(first + i);
            [sum + snap(k, x * x)]
        });
        let squares = tree256(k, scratch, lane_sum);
        let in_range = is_below(k, squares, SQUARES_LIMIT);
        let r = rsqrt(k, squares * k.f32(reciprocal_of_len(width as usize)) + k.f32(eps));
        k.each(lane, end, ROW_LANES, |i| {
            let normed = snap(k, (x.load(first + i) * r) * weight.load(i));
            y.store(first + i, in_range.select(normed, k.f32(0.0)));
        });
        k.when(lane.eq(k.u32(0)), || flags.store(row, in_range.select(k.u32(0), k.u32(1))));
    })
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::interp::{Launch, run};
    use unisonic_core::kir::verify;
    use unisonic_core::numerics::norm;

    use super::super::tests::{bytes, floats, rows, words};

    /// Rows of real models, rows that are no whole workgroups, and rows out of range.
    #[test]
    fn equals_the_reference() {
        for width in [16, 64, 255, 256, 576, 640, 896, 1536, 4864] {
            let kernel = super::rms_norm(width as u32, 1e-5);
            assert_eq!(verify(&kernel), [], "{kernel}");
            let (mut x, weight) = (rows(4, width, 1), rows(1, width, 2));
            x[3 * width + width / 2] = f32::from_bits(0x7200_0000);
            let mut launch = Launch {
                groups: 4,
                params: vec![],
                buffers: vec![bytes(&x), bytes(&weight), vec![0; 16 * width], vec![0xFF; 16]],
                fuel: u64::MAX,
            };
            run(&kernel, &mut launch).unwrap_or_else(|trap| panic!("{width}: {trap}"));
            let (found, flags) = (floats(&launch.buffers[2]), words(&launch.buffers[3]));
            for (row, x) in x.chunks(width).enumerate() {
                let mut expected = vec![f32::NAN; width];
                let in_range = norm::rms_norm(x, &weight, 1e-5, &mut expected);
                assert_eq!(flags[row], u32::from(!in_range), "{width}, row {row}");
                assert_eq!(in_range, row != 3);
                let found = &found[row * width..][..width];
                assert!(
                    found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{width}, row {row}"
                );
            }
        }
    }
}
