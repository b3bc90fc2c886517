use serde_json::Value;
use unisonic_core::numerics::activation::{GELU_C1, GELU_C2, soft_cap};
use unisonic_core::numerics::attention::{default_kappa, default_scale, kappa_with_soft_cap};
use unisonic_core::numerics::elementary::{
    EXP2, LOG, LOG_LN2_HIGH, LOG_LN2_LOW, LOG1M_DIRECT, exp2, exp2_pair, log, log1m, recip, rsqrt, sigmoid,
};
use unisonic_core::numerics::float::{
    INV_127, INV_16319, LOG2E, i2f, reciprocal_constant, reciprocal_of_len, rne, snap,
};

use crate::json::{WordHash, assert_bits, integer, list, load, text, word};

pub fn constants() {
    let file = load("elementary");
    let constants = file["constants"].as_object().unwrap();
    for (name, value) in constants {
        let single = match name.as_str() {
            "INV16319" => INV_16319,
            "INV127" => INV_127,
            "LOG2E" => LOG2E,
            "LOG_Q1" => LOG_LN2_LOW,
            "LOG_Q2" => LOG_LN2_HIGH,
            "LOG1M_T" => LOG1M_DIRECT,
            "GELU_C1" => GELU_C1,
            "GELU_C2" => GELU_C2,
            "INV30" => reciprocal_constant(30.0),
            "INV50" => reciprocal_constant(50.0),
            "EXP2_C0_TO_C5" => {
                assert_bits(&EXP2, value, name);
                continue;
            }
            "LOG_P" => {
                assert_bits(&LOG, value, name);
                continue;
            }
            "kappa" => {
                by_length(value, default_kappa);
                continue;
            }
            "kappa_softcap" => {
                by_length(value, |head_len| kappa_with_soft_cap(default_scale(head_len)));
                continue;
            }
            "inv_n" => {
                by_length(value, |n| reciprocal_of_len(n as usize));
                continue;
            }
            _ => panic!("no check for constant {name}"),
        };
        assert_bits(&[single], value, name);
    }
}

fn by_length(table: &Value, constant: impl Fn(u32) -> f32) {
    for (len, value) in table.as_object().unwrap() {
        assert_bits(&[constant(len.parse().unwrap())], value, len);
    }
}

pub fn i2f_samples() {
    let file = load("elementary");
    for sample in list(&file["i2f"]) {
        assert_bits(&[i2f(integer(&sample[0]) as i32)], &sample[1], "i2f");
    }
}

/// A function of the sweeps, on patterns; the second word is unused where there is one word an input.
fn function(name: &str) -> fn(u32) -> [u32; 2] {
    macro_rules! of {
        ($function:expr) => {
            |x| [$function(f32::from_bits(x)).to_bits(), 0]
        };
    }
    match name {
        "exp2" => of!(exp2),
        "exp2_pair" => |x| {
            let (p, n) = exp2_pair(f32::from_bits(x));
            [p.to_bits(), n as u32]
        },
        "recip" => of!(recip),
        "rsqrt" => of!(rsqrt),
        "sigmoid" => of!(sigmoid),
        "log" => of!(log),
        "log1m" => of!(log1m),
        "snap" => of!(snap),
        "rne" => |x| [rne(f32::from_bits(x)) as u32, 0],
        "softcap30" => of!(|x| soft_cap(x, 30.0)),
        "softcap50" => of!(|x| soft_cap(x, 50.0)),
        _ => panic!("no function {name}"),
    }
}

pub fn sweeps() {
    let file = load("elementary");
    for entry in list(&file["functions"]) {
        let name = text(&entry["function"]);
        let function = function(name);
        let words_per_input = integer(&entry["words_per_input"]) as usize;
        let (mut count, mut hash, mut words) = (0, WordHash::new(), Vec::new());
        for range in list(&entry["sweep"]) {
            let end = u64::from_str_radix(text(&range[1]), 16).unwrap();
            let step = integer(&range[2]) as usize;
            for x in (u64::from(word(&range[0]))..end).step_by(step) {
                words.extend_from_slice(&function(x as u32)[..words_per_input]);
                count += 1;
                if words.len() >= 1 << 16 {
                    hash.add(&words);
                    words.clear();
                }
            }
        }
        hash.add(&words);
        assert_eq!(count, integer(&entry["count"]), "{name}: inputs");
        for sample in list(&entry["samples"]) {
            let x = word(&sample[0]);
            let expected: Vec<u32> = list(sample)[1..].iter().map(word).collect();
            assert_eq!(function(x)[..words_per_input], expected, "{name} of {x:08x}");
        }
        assert_eq!(hash.finish(), text(&entry["sha256"]), "{name}: hash of the sweep");
    }
}
