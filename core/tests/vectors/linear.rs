use serde_json::Value;
use unisonic_core::format::blocks::{BlockFormat, DecodedRow, ScaleLayout, check_row, decode_row};
use unisonic_core::numerics::embedding::embed_row;
use unisonic_core::numerics::linear::{
    dot_row, linear_row, scaled_dot, scaled_sum, sub_block_dot, sub_block_sum, superblock_total, whole_dot,
};

use crate::a16::Row;
use crate::json::{assert_bits, bytes, flag, float, floats, integer, integers, list, load, text};

pub fn all_formats() {
    for format in BlockFormat::ALL {
        let file = load(&format!("linear_{format}"));
        assert_eq!(text(&file["format"]), format.name());
        assert_eq!(integer(&file["block_elems"]), format.elems() as i64);
        assert_eq!(integer(&file["block_bytes"]), format.len_bytes() as i64);
        for case in list(&file["cases"]) {
            one_case(format, case);
        }
    }
}

fn one_case(format: BlockFormat, case: &Value) {
    let name = format!("{format}, {}, K {}", text(&case["name"]), integer(&case["K"]));
    let x = floats(&case["x"]);
    assert_eq!(x.len() as i64, integer(&case["K"]), "{name}");
    let activation = Row::quantize(&x);
    assert_eq!(!activation.in_range, flag(&case["range"]), "{name}");
    let bias = float(&case["bias"]);
    let mut row = DecodedRow::new();
    for expected in list(&case["rows"]) {
        let blocks = bytes(&expected["blocks"]);
        check_row(format, &blocks).unwrap();
        decode_row(format, &blocks, &mut row);
        assert_eq!(row.q.len(), x.len(), "{name}");
        first_superblock(&name, &row, &activation, &expected["first"]);
        assert_bits(&[linear_row(&row, &activation.view(), None)], &expected["y"], &name);
        assert_bits(&[linear_row(&row, &activation.view(), Some(bias))], &expected["y_bias"], &name);
        if let Some(embedding) = expected.get("embed") {
            let mut out = vec![f32::NAN; x.len()];
            embed_row(&row, &mut out);
            assert_bits(&out, embedding, &name);
        }
    }
}

/// Every intermediate value of superblock 0.
fn first_superblock(name: &str, row: &DecodedRow, activation: &Row, first: &Value) {
    let x = activation.view();
    for (key, value) in first.as_object().unwrap() {
        let what = format!("{name}: {key}");
        match key.as_str() {
            "d_act" => assert_bits(&activation.scales[..1], value, &what),
            "T" => assert_bits(&[superblock_total(row, &x, 0)], value, &what),
            "acc" => {
                assert_bits(&[0.0 + superblock_total(row, &x, 0) * activation.scales[0]], value, &what);
                if activation.scales.len() == 1 {
                    assert_bits(&[dot_row(row, &x)], value, &what);
                }
            }
            "Ih" => assert_eq!(plane_sums(row, activation, |sums| sums.0), numbers(value), "{what}"),
            "Il" => assert_eq!(plane_sums(row, activation, |sums| sums.1), numbers(value), "{what}"),
            "bs" => {
                let sums: Vec<i64> = (0..8).map(|b| i64::from(sub_block_sum::<32>(&x, b))).collect();
                assert_eq!(sums, integers(value), "{what}");
            }
            "I2" => {
                let sum = match row.format.scale_layout() {
                    ScaleLayout::Sub16 => scaled_sum::<16>(row, &x, 0),
                    ScaleLayout::Sub32 => scaled_sum::<32>(row, &x, 0),
                    layout => panic!("{what}: no minima in {layout:?}"),
                };
                assert_eq!(i64::from(sum), integer(value), "{what}");
            }
            _ => panic!("{what}: no check"),
        }
    }
}

fn plane_sums(row: &DecodedRow, activation: &Row, plane: impl Fn((i32, i32)) -> i32) -> Vec<i64> {
    let x = activation.view();
    let sums = match row.format.scale_layout() {
        ScaleLayout::Block32 => (0..8).map(|b| sub_block_dot::<32>(row, &x, b)).collect(),
        ScaleLayout::Sub16 => vec![scaled_dot::<16>(row, &x, 0)],
        ScaleLayout::Sub32 => vec![scaled_dot::<32>(row, &x, 0)],
        ScaleLayout::Block256 => vec![whole_dot(row, &x, 0)],
    };
    sums.into_iter().map(|sums| i64::from(plane(sums))).collect()
}

/// One integer or a list of them.
fn numbers(value: &Value) -> Vec<i64> {
    if value.is_array() { integers(value) } else { vec![integer(value)] }
}
