//! W16 rows that are not a multiple of 32: the last block and the activation's planes are padded with zeros. Known
//! answers from an independent implementation.

#[path = "support/generator.rs"]
mod generator;

use generator::gauss_row;
use unisonic_core::numerics::a16::{A16Row, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::embedding::embed_w16_row;
use unisonic_core::numerics::w16::{W16Row, quantize_w16, w16_linear_row, w16_plane_len, w16_scales_len};

/// Length, y, y with bias 0.3125, last scale, last element as an embedding.
const KNOWN: [(usize, [u32; 4]); 4] = [
    (1, [0xBF79_C5AD, 0xBF29_C5AD, 0x3807_4F6D, 0x3F06_C600]),
    (40, [0x414A_46D5, 0x414F_46D5, 0x3929_FF28, 0xC029_5281]),
    (300, [0xC1AF_249E, 0xC1AC_A49E, 0x3900_FD82, 0x3FDD_FC46]),
    (531, [0xC21F_C2ED, 0xC21E_82ED, 0x3924_4052, 0xBF9C_0CFC]),
];

#[test]
fn w16_rows_of_any_length() {
    for (n, expected) in KNOWN {
        let (weights, x) = (gauss_row(31 + n as u64, n), gauss_row(32 + n as u64, n));
        let planes = w16_plane_len(n);
        let (mut wh, mut wl) = (vec![-128; planes], vec![-128; planes]);
        let mut w_scales = vec![f32::NAN; w16_scales_len(n)];
        quantize_w16(&weights, &mut wh, &mut wl, &mut w_scales).unwrap();
        let (mut xh, mut xl) = (vec![-128; plane_len(n)], vec![-128; plane_len(n)]);
        let mut x_scales = vec![f32::NAN; scales_len(n)];
        assert!(quantize_a16(&x, &mut xh, &mut xl, &mut x_scales));
        for plane in [&wh, &wl, &xh, &xl] {
            assert!(plane[n..].iter().all(|&padding| padding == 0), "{n} elements");
        }
        let row = W16Row { high: &wh, low: &wl, scales: &w_scales };
        let x = A16Row { high: &xh, low: &xl, scales: &x_scales };
        let mut embedding = vec![f32::NAN; n];
        embed_w16_row(&row, &mut embedding);
        let found = [
            w16_linear_row(&row, &x, None),
            w16_linear_row(&row, &x, Some(0.3125)),
            w_scales[w_scales.len() - 1],
            embedding[n - 1],
        ];
        assert_eq!(found.map(f32::to_bits), expected, "{n} elements");
    }
}
