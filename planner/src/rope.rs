//! Frequencies of position tables from what a model's file says (docs/numerics.md "Position tables").

use unisonic_core::numerics::rope::{Yarn, divide_by_factors, inverse_frequencies, scale_linear, scale_yarn};

use crate::graph::{RopeScaling, RopeSpec};

/// Inverse frequencies, one a pair, and the factor of cosine and sine. `factors`, one a pair, divide the frequencies.
pub fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> (Vec<f64>, f64) {
    let mut inverse = inverse_frequencies(spec.base, spec.rotary_len);
    if let Some(factors) = factors {
        divide_by_factors(&mut inverse, factors);
    }
    let scale = match spec.scaling {
        RopeScaling::None => spec.attention_factor,
        RopeScaling::Linear { factor } => {
            scale_linear(&mut inverse, factor);
            spec.attention_factor
        }
        RopeScaling::Yarn { factor, original_context_len } => {
            let original_context = f64::from(original_context_len);
            let yarn = Yarn { factor, original_context, attention_factor: spec.attention_factor };
            scale_yarn(&mut inverse, spec.base, &yarn)
        }
    };
    (inverse, scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::plan::RopeStyle;

    #[test]
    fn attention_factor_scales_with_and_without_yarn() {
        let spec = |scaling| RopeSpec {
            style: RopeStyle::HalfSplit,
            rotary_len: 64,
            base: 1e4,
            scaling,
            attention_factor: 1.25,
            factors: None,
        };
        assert_eq!(frequencies(&spec(RopeScaling::None), None).1, 1.25);
        assert_eq!(frequencies(&spec(RopeScaling::Linear { factor: 2.0 }), None).1, 1.25);
        let yarn = RopeScaling::Yarn { factor: 4.0, original_context_len: 128 };
        assert_eq!(frequencies(&spec(yarn), None).1, 1.25 * (1.0 + 0.1 * libm::log(4.0)));
    }
}
