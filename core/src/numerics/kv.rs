//! Quantisers of heads: keys K16, queries Q16, values V8 (docs/numerics.md "KV cache and attention"). One block is the
//! whole head, whatever its length.

use super::a16::quantize_16;
use super::elementary::recip;
use super::float::{INV_127, abs_bits, amax, rne};
use super::fwht::{fwht, fwht_scales};
use super::range::{ACTIVATION_LIMIT, HEAD_LIMIT, QUANTIZER_FLOOR, is_below};

/// K16 of a key, or Q16 of a query, after its norm and RoPE. Returns whether the head is in range; else planes and
/// scale are zero. [`quantize_16`] with the limit 2^56.
#[must_use]
pub fn quantize_head_16(head: &[f32], high: &mut [i8], low: &mut [i8], scale: &mut f32) -> bool {
    quantize_16(head, HEAD_LIMIT, high, low, scale)
}

/// V8 of a value. Returns whether the head is in range; else plane and scale are zero. `value` is left rotated.
///
/// ```text
/// v' = FWHT(v)*2^-s;  A = amax(v');  A >= 2^64: vq = 0, sv = 0, out of range;  A < 2^-40: vq = 0, sv = 0
/// sv = A*f32(1/127);  vq = clamp(rne(v'*(recip(A)*127)), -127, 127)
/// ```
#[must_use]
pub fn quantize_value_8(value: &mut [f32], plane: &mut [i8], scale: &mut f32) -> bool {
    rotate_value(value);
    plane.fill(0);
    *scale = 0.0;
    let a = amax(value);
    if !is_below(a, ACTIVATION_LIMIT) {
        return false;
    }
    if abs_bits(a) < QUANTIZER_FLOOR.to_bits() {
        return true;
    }
    *scale = a * INV_127;
    let steps = recip(a) * 127.0;
    for (plane, &v) in plane.iter_mut().zip(&*value) {
        *plane = rne(v * steps).clamp(-127, 127) as i8;
    }
    true
}

/// `v' = FWHT(v)*2^-s`.
fn rotate_value(value: &mut [f32]) {
    fwht(value);
    let (scale, _) = fwht_scales(value.len());
    for v in value {
        *v *= scale;
    }
}
