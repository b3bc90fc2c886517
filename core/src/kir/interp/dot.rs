//! Dot products of bytes.

use super::super::types::Scalar;

/// `dot4` of all invocations: `a` has the sign of its type, `b` is signed.
pub fn dot4(scalar: Option<Scalar>, [a, b, sum]: [&[u32]; 3], out: &mut [u32]) {
    let is_signed = scalar == Some(Scalar::I8x4);
    for (((out, &a), &b), &sum) in out.iter_mut().zip(a).zip(b).zip(sum) {
        let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes()).map(|(a, b)| {
            let a = if is_signed { i32::from(a as i8) } else { i32::from(a) };
            a * i32::from(b as i8)
        });
        *out = (sum as i32).wrapping_add(products.sum()) as u32;
    }
}
