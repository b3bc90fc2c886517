use unisonic_core::numerics::activation::{gelu_gate, swiglu};
use unisonic_core::numerics::float::tree256;
use unisonic_core::numerics::norm::{inverse_rms, layer_norm, mean, rms_norm, sum_of_squares};

use crate::json::{assert_bits, flag, float, floats, integer, list, load, text};

pub fn norms() {
    for case in list(&load("norm")["cases"]) {
        let name = format!("{}, {}", text(&case["kind"]), text(&case["name"]));
        let (x, weight, eps) = (floats(&case["x"]), floats(&case["w"]), float(&case["eps"]));
        let n = x.len();
        assert_eq!(n as i64, integer(&case["n"]), "{name}");
        let mut out = vec![f32::NAN; n];
        let in_range = match text(&case["kind"]) {
            "rmsnorm" => {
                if let Some(squares) = case.get("L0") {
                    assert_bits(&[sum_of_squares(&x)], squares, &name);
                    assert_bits(&[inverse_rms(sum_of_squares(&x), n, eps)], &case["r"], &name);
                }
                rms_norm(&x, &weight, eps, &mut out)
            }
            "layernorm" => {
                if let Some(expected) = case.get("mean") {
                    let mean = mean(&x);
                    assert_bits(&[mean], expected, &name);
                    let deviations: Vec<f32> = x.iter().map(|&x| x - mean).collect();
                    assert_bits(&[inverse_rms(sum_of_squares(&deviations), n, eps)], &case["r"], &name);
                }
                layer_norm(&x, &weight, &floats(&case["b"]), eps, &mut out)
            }
            kind => panic!("no check for {kind}"),
        };
        assert_eq!(!in_range, flag(&case["range"]), "{name}: range");
        assert_bits(&out, &case["y"], &name);
    }
}

pub fn gates() {
    for case in list(&load("norm")["elementwise"]) {
        let gate = match text(&case["kind"]) {
            "swiglu" => swiglu,
            "gelu_gate" => gelu_gate,
            kind => panic!("no check for {kind}"),
        };
        let y: Vec<f32> =
            floats(&case["g"]).into_iter().zip(floats(&case["u"])).map(|(g, u)| gate(g, u)).collect();
        assert_bits(&y, &case["y"], text(&case["kind"]));
    }
}

pub fn trees() {
    for case in list(&load("norm")["tree"]) {
        let x = floats(&case["x"]);
        assert_eq!(x.len() as i64, integer(&case["n"]));
        assert_bits(&[tree256(x)], &case["sum"], "tree256");
    }
}
