//! The range contract (docs/numerics.md "Range contract"): within these limits no infinity or NaN can arise, so no
//! operation has to look for one.

use super::float::{SNAP_LIMIT, abs_bits, ord, pow2};

/// A16 and V8 refuse a block whose largest magnitude reaches this.
pub const ACTIVATION_LIMIT: f32 = pow2(64);
/// K16 and Q16 refuse a head whose largest magnitude reaches this.
pub const HEAD_LIMIT: f32 = pow2(56);
/// RMSNorm and LayerNorm refuse a row whose sum of squares reaches this.
pub const SQUARES_LIMIT: f32 = pow2(100);
/// The head's output, before any soft cap, is out of range where its magnitude reaches this.
pub const LOGIT_LIMIT: f32 = pow2(64);
/// Quantisers write zeros for a block whose largest magnitude is below this.
pub const QUANTIZER_FLOOR: f32 = pow2(-40);

/// Largest magnitude of norm weights and biases in a file.
pub const VECTOR_LIMIT: f32 = pow2(60);
/// Largest magnitude of router weights in a file.
pub const ROUTER_LIMIT: f32 = pow2(40);
/// Largest magnitude in a block of a W16 matrix.
pub const W16_LIMIT: f32 = pow2(24);

/// Whether |x| is below a limit. False for infinities and NaN of either sign.
pub fn is_below(x: f32, limit: f32) -> bool {
    abs_bits(x) < limit.to_bits()
}

/// Whether a value of the head's linear output, before any soft cap, keeps the contract.
pub fn logit_in_range(y: f32) -> bool {
    is_below(y, LOGIT_LIMIT)
}

/// A value of a file that the arithmetic is not defined for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("element {index} is {found}, but {expected}")]
pub struct OutOfRange {
    /// Index into what was checked; 0 for a single value.
    pub index: usize,
    /// The value.
    pub found: f32,
    /// What it has to be.
    pub expected: &'static str,
}

fn check(values: &[f32], expected: &'static str, allowed: impl Fn(f32) -> bool) -> Result<(), OutOfRange> {
    match values.iter().position(|&value| !allowed(value)) {
        Some(index) => Err(OutOfRange { index, found: values[index], expected }),
        None => Ok(()),
    }
}

/// Norm weights and biases: finite, |w| <= 2^60.
pub fn check_vector(values: &[f32]) -> Result<(), OutOfRange> {
    check(values, "norm weights and biases are finite and at most 2^60 in magnitude", |value| {
        abs_bits(value) <= VECTOR_LIMIT.to_bits()
    })
}

/// Router weights: finite, |w| <= 2^40.
pub fn check_router(values: &[f32]) -> Result<(), OutOfRange> {
    check(values, "router weights are finite and at most 2^40 in magnitude", |value| {
        abs_bits(value) <= ROUTER_LIMIT.to_bits()
    })
}

/// RoPE factors: finite and above 0.
pub fn check_rope_factors(values: &[f32]) -> Result<(), OutOfRange> {
    check(values, "RoPE factors are finite and above 0", |value| value.is_finite() && ord(value) > ord(0.0))
}

/// A norm's epsilon: in [2^-60, 1].
pub fn check_eps(eps: f32) -> Result<(), OutOfRange> {
    check(&[eps], "a norm's epsilon is in [2^-60, 1]", |eps| {
        ord(eps) >= ord(SNAP_LIMIT) && ord(eps) <= ord(1.0)
    })
}

/// A soft cap: in [2^-10, 2^20].
pub fn check_soft_cap(cap: f32) -> Result<(), OutOfRange> {
    check(&[cap], "a soft cap is in [2^-10, 2^20]", |cap| {
        ord(cap) >= ord(pow2(-10)) && ord(cap) <= ord(pow2(20))
    })
}
