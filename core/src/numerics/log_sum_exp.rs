//! The logarithm of a softmax's denominator (docs/numerics.md "Norms and elementwise").

use super::elementary::{exp2, log};
use super::float::{LOG2E, tree256};
use super::sampling::most_likely;

/// `z_max + log(tree256(exp2((z_i - z_max)*LOG2E)))`; -inf for no value.
pub fn log_sum_exp(z: &[f32]) -> f32 {
    let Some(best) = most_likely(z) else { return f32::NEG_INFINITY };
    let largest = z[best as usize];
    largest + log(tree256(z.iter().map(|&z| exp2((z - largest) * LOG2E))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_real_number() {
        let z: Vec<f32> = (0..1000).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.25).collect();
        let real = z.iter().map(|&z| libm::exp(f64::from(z))).sum::<f64>();
        let error = f64::from(log_sum_exp(&z)) - libm::log(real);
        assert!(error.abs() < 4e-6, "{error}");
        assert_eq!(log_sum_exp(&[3.5]), 3.5);
    }
}
