use unisonic_core::numerics::moe::{
    Denominator, add_expert, add_shared_expert, choose_experts, route, router_dot,
};

use crate::json::{assert_bits, flag, float, floats, integer, integers, list, load, text};

pub fn router_dots() {
    for case in list(&load("norm")["router_dot"]) {
        let z = router_dot(&floats(&case["x"]), &floats(&case["w"]));
        assert_bits(&[z], &case["z"], text(&case["name"]));
    }
}

pub fn cases() {
    let file = load("norm");
    let inputs = &file["moe_inputs"];
    let router: Vec<Vec<f32>> = list(&inputs["router"]).iter().map(floats).collect();
    let outputs: Vec<Vec<f32>> = list(&inputs["expert_out"]).iter().map(floats).collect();
    for case in list(&file["moe"]) {
        let name = text(&case["name"]);
        let x = floats(&case["x"]);
        let z: Vec<f32> = router.iter().map(|w| router_dot(&x, w)).collect();
        assert_bits(&z, &case["z"], name);
        let k = integer(&case["k"]) as usize;
        assert_eq!(ids(&choose_experts(&z, k)), integers(&case["chosen"]), "{name}");
        let denominator = if flag(&case["norm_topk"]) { Denominator::Chosen } else { Denominator::All };
        let scale = case["expert_scale"].is_string().then(|| float(&case["expert_scale"]));
        let routing = route(&z, k, denominator, scale);
        assert_eq!(ids(&routing.experts), integers(&case["ascending"]), "{name}");
        assert_bits(&[routing.denominator], &case["den"], name);
        assert_bits(&routing.weights, &case["w"], name);
        let mut y = vec![0.0; outputs[0].len()];
        for (&expert, &weight) in routing.experts.iter().zip(&routing.weights) {
            add_expert(&mut y, weight, &outputs[expert]);
        }
        if flag(&case["shared"]) {
            add_shared_expert(&mut y, float(&inputs["shared_gate"]), &floats(&inputs["shared_out"]));
        }
        assert_bits(&y, &case["y"], name);
    }
}

fn ids(experts: &[usize]) -> Vec<i64> {
    experts.iter().map(|&expert| expert as i64).collect()
}
