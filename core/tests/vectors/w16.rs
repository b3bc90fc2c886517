use serde_json::Value;
use unisonic_core::format::blocks::expand_floats;
use unisonic_core::numerics::embedding::embed_w16_row;
use unisonic_core::numerics::w16::{
    W16Row, quantize_w16, w16_block_dot, w16_dot_row, w16_linear_row, w16_plane_len, w16_scales_len,
    w16_superblock_total,
};
use unisonic_core::plan::FloatSource;

use crate::a16::Row;
use crate::json::{assert_bits, bytes, flag, float, floats, integer, integers, list, load, plane, text};

/// A W16 row that owns its planes.
pub struct Weights {
    high: Vec<i8>,
    low: Vec<i8>,
    scales: Vec<f32>,
}

impl Weights {
    pub fn quantize(weights: &[f32]) -> Self {
        let planes = w16_plane_len(weights.len());
        let scales = vec![f32::NAN; w16_scales_len(weights.len())];
        let mut row = Self { high: vec![-128; planes], low: vec![-128; planes], scales };
        quantize_w16(weights, &mut row.high, &mut row.low, &mut row.scales).unwrap();
        row
    }

    pub fn view(&self) -> W16Row<'_> {
        W16Row { high: &self.high, low: &self.low, scales: &self.scales }
    }
}

pub fn cases() {
    let file = load("linear_W16");
    assert_eq!(text(&file["format"]), "W16");
    for case in list(&file["cases"]) {
        let source = match text(&case["source"]) {
            "f32" => FloatSource::F32,
            "f16" => FloatSource::F16,
            "bf16" => FloatSource::BF16,
            other => panic!("no source {other}"),
        };
        let name = format!("{source:?}, {}, K {}", text(&case["name"]), integer(&case["K"]));
        let x = floats(&case["x"]);
        assert_eq!(x.len() as i64, integer(&case["K"]), "{name}");
        let activation = Row::quantize(&x);
        assert_eq!(!activation.in_range, flag(&case["range"]), "{name}");
        for expected in list(&case["rows"]) {
            let mut weights = Vec::new();
            expand_floats(source, &bytes(&expected["raw"]), &mut weights);
            let row = Weights::quantize(&weights);
            first_superblock(&name, &row, &activation, &expected["first"]);
            let (view, x) = (row.view(), activation.view());
            assert_bits(&[w16_linear_row(&view, &x, None)], &expected["y"], &name);
            let bias = float(&case["bias"]);
            assert_bits(&[w16_linear_row(&view, &x, Some(bias))], &expected["y_bias"], &name);
            if let Some(embedding) = expected.get("embed") {
                let mut out = vec![f32::NAN; weights.len()];
                embed_w16_row(&view, &mut out);
                assert_bits(&out, embedding, &name);
            }
        }
    }
}

/// Every intermediate value of superblock 0.
fn first_superblock(name: &str, weights: &Weights, activation: &Row, first: &Value) {
    let (row, x) = (weights.view(), activation.view());
    for (key, value) in first.as_object().unwrap() {
        let what = format!("{name}: {key}");
        let dots = || (0..8).map(|b| w16_block_dot(&row, &x, b));
        match key.as_str() {
            "d_act" => assert_bits(&activation.scales[..1], value, &what),
            "HH" => assert_eq!(dots().map(|d| i64::from(d.0)).collect::<Vec<_>>(), integers(value), "{what}"),
            "C" => assert_eq!(dots().map(|d| i64::from(d.1)).collect::<Vec<_>>(), integers(value), "{what}"),
            "T" => assert_bits(&[w16_superblock_total(&row, &x, 0)], value, &what),
            "acc" => {
                if activation.scales.len() == 1 {
                    assert_bits(&[w16_dot_row(&row, &x)], value, &what);
                } else {
                    // The chain of one superblock: the row cut off after 256 elements.
                    let head =
                        W16Row { high: &row.high[..256], low: &row.low[..256], scales: &row.scales[..8] };
                    let mut cut = x;
                    (cut.high, cut.low, cut.scales) = (&x.high[..256], &x.low[..256], &x.scales[..1]);
                    assert_bits(&[w16_dot_row(&head, &cut)], value, &what);
                }
            }
            "w_h0" => assert_eq!(row.high[..32], plane(value), "{what}"),
            "w_l0" => assert_eq!(row.low[..32], plane(value), "{what}"),
            "w_d" => assert_bits(&row.scales[..8], value, &what),
            _ => panic!("{what}: no check"),
        }
    }
}
