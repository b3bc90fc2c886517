use serde_json::Value;
use unisonic_core::numerics::rope::{
    Yarn, divide_by_factors, inverse_frequencies, rotate, scale_linear, scale_yarn, table_row,
};
use unisonic_core::plan::RopeStyle;

use crate::json::{WordHash, assert_bits, bits, floats, integer, integers, list, load, text};

struct Table {
    inverse: Vec<f64>,
    scale: f64,
}

impl Table {
    fn of_case(case: &Value) -> Self {
        let base = case["base"].as_f64().unwrap();
        let rot = integer(&case["rot"]) as u32;
        let mut inverse = inverse_frequencies(base, rot);
        let mut scale = 1.0;
        for (name, value) in case["params"].as_object().unwrap() {
            let numbers =
                |value: &Value| -> Vec<f64> { list(value).iter().map(|v| v.as_f64().unwrap()).collect() };
            match name.as_str() {
                "freqs" => {
                    let factors: Vec<f32> = numbers(value).into_iter().map(|factor| factor as f32).collect();
                    divide_by_factors(&mut inverse, &factors);
                }
                "linear" => scale_linear(&mut inverse, value.as_f64().unwrap()),
                "yarn" => {
                    let [factor, original_context, attention_factor] = numbers(value)[..] else { panic!() };
                    scale =
                        scale_yarn(&mut inverse, base, &Yarn { factor, original_context, attention_factor });
                }
                _ => panic!("no check for parameter {name}"),
            }
        }
        Self { inverse, scale }
    }

    /// c and s of every pair, alternating.
    fn row(&self, position: u32) -> Vec<f32> {
        let pairs = self.inverse.len();
        let (mut cosines, mut sines) = (vec![f32::NAN; pairs], vec![f32::NAN; pairs]);
        table_row(&self.inverse, self.scale, position, &mut cosines, &mut sines);
        cosines.into_iter().zip(sines).flat_map(|(c, s)| [c, s]).collect()
    }

    fn hash(&self, positions: impl Iterator<Item = u32>) -> String {
        let mut hash = WordHash::new();
        for position in positions {
            hash.add(&bits(&self.row(position)));
        }
        hash.finish()
    }
}

pub fn tables() {
    for case in list(&load("rope")["cases"]) {
        let name = text(&case["name"]);
        let table = Table::of_case(case);
        let inverse: Vec<String> = table.inverse.iter().map(|v| format!("{:016x}", v.to_bits())).collect();
        let expected: Vec<&str> = list(&case["inv_f64"]).iter().map(text).collect();
        assert_eq!(inverse, expected, "{name}: inverse frequencies");
        assert_eq!(format!("{:016x}", table.scale.to_bits()), text(&case["mscale_f64"]), "{name}: mscale");
        for sample in list(&case["samples"]).iter().chain(list(&case["sensitive"])) {
            let (position, pair) = (integer(&sample[0]) as u32, integer(&sample[1]) as usize);
            let row = table.row(position);
            assert_bits(&row[2 * pair..2 * pair + 1], &sample[2], name);
            assert_bits(&row[2 * pair + 1..2 * pair + 2], &sample[3], name);
        }
        assert_eq!(text(&case["positions"]), "0..2047");
        assert_eq!(table.hash(0..2048), text(&case["sha256"]), "{name}: positions 0..2047");
        let far = integers(&case["far_positions"]);
        let far = far.into_iter().map(|position| position as u32);
        assert_eq!(table.hash(far), text(&case["far_sha256"]), "{name}: far positions");
    }
}

pub fn rotations() {
    for case in list(&load("norm")["rope_apply"]) {
        let (rot, position) = (integer(&case["rot"]) as u32, integer(&case["pos"]) as u32);
        let inverse = inverse_frequencies(case["base"].as_f64().unwrap(), rot);
        let table = Table { inverse, scale: 1.0 };
        let row = table.row(position);
        let (cosines, sines): (Vec<f32>, Vec<f32>) = row.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        assert_bits(&cosines, &case["c"], "cosines");
        assert_bits(&sines, &case["s"], "sines");
        let style = match text(&case["style"]) {
            "interleaved" => RopeStyle::Interleaved,
            "half" => RopeStyle::HalfSplit,
            style => panic!("no style {style}"),
        };
        let mut head = floats(&case["x"]);
        assert_eq!(head.len() as i64, integer(&case["hd"]));
        rotate(style, &mut head, &cosines, &sines);
        assert_bits(&head, &case["y"], text(&case["style"]));
    }
}
