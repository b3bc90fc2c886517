//! Changes of single logits before the filters: penalties and bias (docs/numerics.md "Sampling").

use super::float::{i2f, ord, reciprocal_constant};
use super::sampling::SamplingError;

/// Penalties on tokens of the window, prompt and output alike. Each option is an f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    repeat: f32,
    frequency: f32,
    presence: f32,
}

impl Penalties {
    /// `repeat` (1 is none) in [2^-10, 2^10]; `frequency` and `presence` (0 is none) in [-2^10, 2^10].
    pub fn new(repeat: f32, frequency: f32, presence: f32) -> Result<Self, SamplingError> {
        let found = f64::from(repeat);
        if !(0.0009765625..=1024.0).contains(&repeat) {
            return Err(SamplingError { option: "repeat penalty", found, expected: "from 1/1024 to 1024" });
        }
        for (option, value) in [("frequency penalty", frequency), ("presence penalty", presence)] {
            if !(-1024.0..=1024.0).contains(&value) {
                let found = f64::from(value);
                return Err(SamplingError { option, found, expected: "from -1024 to 1024" });
            }
        }
        Ok(Self { repeat, frequency, presence })
    }

    /// The logit of a token that occurs n times in the window, n from 1 to 2^24:
    /// `z > 0 ? z*f32(1/r) : z*r`, once whatever n; then `z - f32(n*frequency)`, then `z - presence`.
    pub fn apply(&self, z: f32, n: u32) -> f32 {
        let z = if ord(z) > ord(0.0) { z * reciprocal_constant(self.repeat) } else { z * self.repeat };
        // n is exact, so this product is n*frequency rounded once.
        let z = z - i2f(n as i32) * self.frequency;
        z - self.presence
    }
}

/// What a logit bias does to a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bias {
    /// `z = z + b`.
    Add(f32),
    /// b = -inf: the id is masked.
    Mask,
}

impl Bias {
    /// b in [-2^20, 2^20], or -inf.
    pub fn new(bias: f32) -> Result<Self, SamplingError> {
        if bias == f32::NEG_INFINITY {
            Ok(Self::Mask)
        } else if (-1_048_576.0..=1_048_576.0).contains(&bias) {
            Ok(Self::Add(bias))
        } else {
            let expected = "from -1048576 to 1048576, or -inf for a mask";
            Err(SamplingError { option: "logit bias", found: f64::from(bias), expected })
        }
    }
}

/// Applies the bias of a token to its logit, or takes the token off the kept ids (ascending).
pub fn apply_bias(z: &mut [f32], kept: &mut Vec<u32>, token: u32, bias: Bias) {
    match bias {
        Bias::Add(bias) => {
            if let Some(z) = z.get_mut(token as usize) {
                *z += bias;
            }
        }
        Bias::Mask => {
            if let Ok(index) = kept.binary_search(&token) {
                kept.remove(index);
            }
        }
    }
}
