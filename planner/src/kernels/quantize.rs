//! A16 of rows.

use unisonic_core::kir::build::{V, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::a16::{MAX_16, SUPERBLOCK, plane_len, scales_len};
use unisonic_core::numerics::float::INV_16319;
use unisonic_core::numerics::range::{ACTIVATION_LIMIT, QUANTIZER_FLOOR};

use super::ROW_LANES;
use super::elementary::{abs_bits, is_below, recip, rne};
use super::reduce::max256;

/// The values of the three invocations that follow one whose number is a multiple of 4.
fn neighbours(value: V<'_>) -> [V<'_>; 3] {
    [value.shuffle_xor(8, 1), value.shuffle_xor(8, 2), value.shuffle_xor(8, 3)]
}

/// A16 of rows of `width` values, one workgroup a superblock of a row (`core::numerics::a16::quantize_a16`).
///
/// Buffers: `x` rows; `high` and `low` planes of [`plane_len`] bytes a row; `scales`, [`scales_len`] a row; `flags` a word a
/// superblock: 1 where it is out of range. Reads 4 bytes an element and writes 2.
pub fn quantize_a16(width: u32) -> Kernel {
    let superblocks = scales_len(width as usize) as u32;
    let plane_words = plane_len(width as usize) as u32 / 4;
    kernel("quantize_a16", ROW_LANES, |k| {
        let x = k.read("x", Scalar::F32);
        let (high, low) = (k.write("high", Scalar::I8x4), k.write("low", Scalar::I8x4));
        let (scales, flags) = (k.write("scales", Scalar::F32), k.write("flags", Scalar::U32));
        let scratch = k.shared("scratch", Scalar::I32, ROW_LANES);
        let (group, lane) = (k.group_id(), k.local_id());
        let (row, superblock) = (group / superblocks, group % superblocks);
        let i = superblock * SUPERBLOCK as u32 + lane;

        // Past the row are zeros, which change no maximum.
        let [x] = k.choose(i.lt(k.u32(width)), || [x.load(row * width + i)], || [k.f32(0.0)]);
        let amax = max256(k, scratch, abs_bits(x)).cast(Scalar::F32);
        let in_range = is_below(k, amax, ACTIVATION_LIMIT);
        let is_zero = in_range.select(is_below(k, amax, QUANTIZER_FLOOR), k.constant(Scalar::Bool.into(), 1));
        let steps = recip(k, amax) * k.f32(16319.0);
        let rounded = rne(k, x * steps).max(k.i32(-MAX_16)).min(k.i32(MAX_16));
        let integer = is_zero.select(k.i32(0), rounded);
        let h = (integer + 64) >> 7;
        let l = integer - (h << 7);

        // Four neighbours make a word.
        let ([h1, h2, h3], [l1, l2, l3]) = (neighbours(h), neighbours(l));
        let word = i >> 2;
        let is_first =
            (lane & 3).eq(k.u32(0)).select(word.lt(k.u32(plane_words)), k.constant(Scalar::Bool.into(), 0));
        k.when(is_first, || {
            let at = row * plane_words + word;
            high.store(at, k.pack([h, h1, h2, h3]));
            low.store(at, k.pack([l, l1, l2, l3]));
        });
        k.when(lane.eq(k.u32(0)), || {
            scales.store(group, is_zero.select(k.f32(0.0), amax * k.f32(INV_16319)));
            flags.store(group, in_range.select(k.u32(0), k.u32(1)));
        });
    })
}

#[cfg(test)]
mod tests {
    use unisonic_core::kir::interp::{Launch, run};
    use unisonic_core::kir::verify;
    use unisonic_core::numerics::a16::{plane_len, quantize_a16, scales_len};

    use super::super::tests::{bytes, floats, rows, words};

    /// Rows that end inside a superblock and inside a block of 32, zeros, small values, values out of range.
    #[test]
    fn equals_the_reference() {
        for width in [16, 48, 256, 272, 576, 640, 896, 1024] {
            let kernel = super::quantize_a16(width as u32);
            assert_eq!(verify(&kernel), [], "{kernel}");
            let (planes, superblocks) = (plane_len(width), scales_len(width));
            let mut x = rows(5, width, 3);
            x[width..2 * width].fill(-0.0);
            x[2 * width..3 * width].iter_mut().for_each(|x| *x *= f32::from_bits(0x2980_0000));
            x[4 * width - 1] = f32::from_bits(0x5F80_0000);
            let zeros = |len: usize| vec![0xEE; 5 * len];
            let mut launch = Launch {
                groups: 5 * superblocks as u32,
                params: vec![],
                buffers: vec![
                    bytes(&x),
                    zeros(planes),
                    zeros(planes),
                    zeros(4 * superblocks),
                    zeros(4 * superblocks),
                ],
                fuel: u64::MAX,
            };
            run(&kernel, &mut launch).unwrap_or_else(|trap| panic!("{width}: {trap}"));
            let [_, high, low, scales, flags] = &launch.buffers[..] else { panic!("five buffers") };
            for (row, x) in x.chunks(width).enumerate() {
                let (mut h, mut l, mut s) = (vec![0; planes], vec![0; planes], vec![0.0; superblocks]);
                let in_range = quantize_a16(x, &mut h, &mut l, &mut s);
                let signed = |plane: &[u8]| -> Vec<i8> {
                    plane[row * planes..][..planes].iter().map(|&b| b as i8).collect()
                };
                assert_eq!((signed(high), signed(low)), (h, l), "{width}, row {row}");
                let of_row = row * superblocks..(row + 1) * superblocks;
                let found: Vec<u32> = floats(scales)[of_row.clone()].iter().map(|s| s.to_bits()).collect();
                assert_eq!(found, s.iter().map(|s| s.to_bits()).collect::<Vec<_>>(), "{width}, row {row}");
                assert_eq!(
                    words(flags)[of_row].iter().all(|&flag| flag == 0),
                    in_range,
                    "{width}, row {row}"
                );
                assert_eq!(in_range, row != 3, "{width}");
            }
        }
    }
}
