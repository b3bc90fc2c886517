use unisonic_core::numerics::a16::{A16Row, plane_len, quantize_a16, scales_len};
use unisonic_core::numerics::linear::sub_block_sum;

use crate::json::{assert_bits, flag, floats, integer, integers, list, load, plane, text};

/// An activation row that owns its planes.
pub struct Row {
    pub high: Vec<i8>,
    pub low: Vec<i8>,
    pub scales: Vec<f32>,
    pub in_range: bool,
}

impl Row {
    pub fn quantize(x: &[f32]) -> Self {
        // Poisoned, so that every value is seen to be written.
        let planes = plane_len(x.len());
        let mut row = Self {
            high: vec![-128; planes],
            low: vec![-128; planes],
            scales: vec![f32::NAN; scales_len(x.len())],
            in_range: false,
        };
        row.in_range = quantize_a16(x, &mut row.high, &mut row.low, &mut row.scales);
        row
    }

    pub fn view(&self) -> A16Row<'_> {
        A16Row { high: &self.high, low: &self.low, scales: &self.scales }
    }
}

pub fn cases() {
    for case in list(&load("a16")["cases"]) {
        let name = text(&case["name"]);
        let x = floats(&case["x"]);
        assert_eq!(x.len(), integer(&case["n"]) as usize, "{name}");
        let row = Row::quantize(&x);
        assert_eq!(row.high, plane(&case["h"]), "{name}: high plane");
        assert_eq!(row.low, plane(&case["l"]), "{name}: low plane");
        assert_bits(&row.scales, &case["D"], name);
        assert_eq!(!row.in_range, flag(&case["range"]), "{name}: range");
        let sums: Vec<i64> =
            (0..x.len() / 32).map(|b| i64::from(sub_block_sum::<32>(&row.view(), b))).collect();
        assert_eq!(sums, integers(&case["bs32"]), "{name}: sums");
    }
}
