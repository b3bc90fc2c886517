//! Frequencies of position tables, in f64 on the host (docs/numerics.md "Position tables").
//!
//! `inv_i = base^(-2i/rot)`, divided by the file's factors, then stretched. Each line is one rounded operation in the
//! order of the specification; `pow` and `log` are those of one exact version of the libm crate, because no two
//! libraries agree in the last bit.

use crate::graph::{RopeScaling, RopeSpec};

const YARN_BETA_FAST: f64 = 32.0;
const YARN_BETA_SLOW: f64 = 1.0;

/// Inverse frequencies, one a pair, and the factor of cosine and sine.
///
/// `factors`, one a pair, divide the frequencies.
pub fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> (Vec<f64>, f64) {
    let rotary_len = f64::from(spec.rotary_len);
    let pairs = spec.rotary_len / 2;
    let mut inverse: Vec<f64> =
        (0..pairs).map(|i| libm::pow(spec.base, -(2.0 * f64::from(i)) / rotary_len)).collect();
    if let Some(factors) = factors {
        inverse.iter_mut().zip(factors).for_each(|(inv, &factor)| *inv /= f64::from(factor));
    }
    let scale = match spec.scaling {
        RopeScaling::None => spec.attention_factor,
        RopeScaling::Linear { factor } => {
            inverse.iter_mut().for_each(|inv| *inv /= factor);
            spec.attention_factor
        }
        RopeScaling::Yarn { factor, original_context_len } => {
            yarn(&mut inverse, spec, factor, f64::from(original_context_len));
            spec.attention_factor * (1.0 + 0.1 * libm::log(factor))
        }
    };
    (inverse, scale)
}

/// Low frequencies are interpolated, high ones kept, with a ramp between.
fn yarn(inverse: &mut [f64], spec: &RopeSpec, factor: f64, original_context_len: f64) {
    let rotary_len = f64::from(spec.rotary_len);
    let dimension = |rotations: f64| {
        rotary_len * libm::log(original_context_len / (rotations * 2.0 * std::f64::consts::PI))
            / (2.0 * libm::log(spec.base))
    };
    let low = libm::floor(dimension(YARN_BETA_FAST)).max(0.0);
    let high = libm::ceil(dimension(YARN_BETA_SLOW)).min(rotary_len - 1.0);
    for (i, inv) in inverse.iter_mut().enumerate() {
        let position = (i as f64 - low) / (high - low).max(0.001);
        let ramp = 1.0 - position.clamp(0.0, 1.0);
        *inv = (*inv / factor) * (1.0 - ramp) + *inv * ramp;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::plan::RopeStyle;

    fn spec(base: f64, rotary_len: u32, scaling: RopeScaling) -> RopeSpec {
        let style = RopeStyle::HalfSplit;
        RopeSpec { style, rotary_len, base, scaling, attention_factor: 1.0, factors: None }
    }

    fn bits(spec: &RopeSpec, factors: Option<&[f32]>) -> Vec<String> {
        frequencies(spec, factors).0.iter().map(|inv| format!("{:016x}", inv.to_bits())).collect()
    }

    /// Name, expected factor, expected frequencies: docs/numerics.md "Position tables" as computed outside this
    /// program.
    fn vectors() -> Vec<(&'static str, &'static str, &'static str)> {
        let lines = include_str!("rope_vectors.txt").lines().filter(|line| !line.starts_with('#'));
        let split = |line: &'static str| {
            let mut fields = line.splitn(3, " | ");
            (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap())
        };
        lines.map(split).collect()
    }

    #[test]
    fn known_answers_to_the_bit() {
        let freqs: Vec<f32> = std::iter::repeat_n(1.0, 12)
            .chain((0..8).map(|i| 1.0 + 0.25 * i as f32))
            .chain((0..12).map(|i| 4.0 + 0.5 * i as f32))
            .collect();
        let yarn = RopeScaling::Yarn { factor: 4.0, original_context_len: 128 };
        let cases = [
            (spec(1e4, 64, RopeScaling::None), None),
            (spec(1e5, 64, RopeScaling::None), None),
            (spec(1e6, 128, RopeScaling::None), None),
            (spec(5e5, 64, RopeScaling::None), Some(freqs.as_slice())),
            (spec(1e4, 64, RopeScaling::Linear { factor: 4.0 }), None),
            (spec(1e4, 64, yarn), None),
        ];
        assert_eq!(cases.len(), vectors().len());
        for ((spec, factors), (name, scale, inverse)) in cases.iter().zip(vectors()) {
            assert_eq!(bits(spec, *factors).join(" "), inverse, "{name}");
            assert_eq!(format!("{:016x}", frequencies(spec, *factors).1.to_bits()), scale, "{name}");
        }
    }

    #[test]
    fn attention_factor_scales_with_and_without_yarn() {
        for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 2.0 }] {
            let spec = RopeSpec { attention_factor: 1.25, ..spec(1e4, 64, scaling) };
            assert_eq!(frequencies(&spec, None).1, 1.25);
        }
    }
}
