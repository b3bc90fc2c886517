//! Kernels over one row: norms, quantisers, gates. The formulas are those of `core::numerics`, on 16 lanes.

use unisonic_core::numerics::a16::MAX_16;
use unisonic_core::numerics::float::{INV_16319, reciprocal_of_len, tree};
use unisonic_core::numerics::norm::inverse_rms;
use unisonic_core::numerics::range::{LOGIT_LIMIT, QUANTIZER_FLOOR, SQUARES_LIMIT, is_below};
use unisonic_core::numerics::{activation, elementary as scalar};
use unisonic_core::plan::Activation;

use super::elementary::{abs_bits, gelu, gelu_gate, largest_magnitude, rne, snap, soft_cap, swiglu};
use crate::simd::{LANES, Simd};

/// Elements of a superblock of A16.
const SUPERBLOCK: usize = 256;

/// `y = norm(x) [+ add]`, returns whether the row is in range (`core::numerics::norm::rms_norm`).
///
/// # Safety
/// As for [`Simd`]; the slices are equally long, a multiple of 16.
#[inline(always)]
pub unsafe fn rms_norm<S: Simd>(
    x: &[f32],
    weight: &[f32],
    eps: f32,
    add: Option<&[f32]>,
    y: &mut [f32],
) -> bool {
    // SAFETY: the caller's promise; every access is below the length.
    unsafe {
        let squares = sum_of_squares::<S>(x);
        let in_range = is_below(squares, SQUARES_LIMIT);
        let r = S::splat_f(if in_range { inverse_rms(squares, x.len(), eps) } else { 0.0 });
        for i in (0..x.len()).step_by(LANES) {
            let mut out = if in_range {
                let normed = S::mul_f(S::load_f(x.as_ptr().add(i)), r);
                snap::<S>(S::mul_f(normed, S::load_f(weight.as_ptr().add(i))))
            } else {
                S::splat_f(0.0)
            };
            if let Some(add) = add {
                out = S::add_f(out, S::load_f(add.as_ptr().add(i)));
            }
            S::store_f(y.as_mut_ptr().add(i), out);
        }
        in_range
    }
}

/// tree256 of `snap(x*x)`.
#[inline(always)]
unsafe fn sum_of_squares<S: Simd>(x: &[f32]) -> f32 {
    // SAFETY: the caller's promise; every vector is below the length.
    unsafe {
        tree256::<S>(x.len(), |i| {
            let x = S::load_f(x.as_ptr().add(i));
            snap::<S>(S::mul_f(x, x))
        })
    }
}

/// tree256 of `len` values, a multiple of 16, of which `at(i)` gives the vector from i on: 16 vectors are the 256 virtual
/// lanes.
#[inline(always)]
unsafe fn tree256<S: Simd>(len: usize, at: impl Fn(usize) -> S::F) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut lanes = [S::splat_f(0.0); SUPERBLOCK / LANES];
        for first in (0..len).step_by(SUPERBLOCK) {
            let vectors = (len - first).min(SUPERBLOCK) / LANES;
            for (v, lane) in lanes.iter_mut().enumerate().take(vectors) {
                *lane = S::add_f(*lane, at(first + v * LANES));
            }
        }
        let mut half = lanes.len() / 2;
        while half > 0 {
            for v in 0..half {
                lanes[v] = S::add_f(lanes[v], lanes[v + half]);
            }
            half /= 2;
        }
        let mut last = [0.0; LANES];
        S::store_f(last.as_mut_ptr(), lanes[0]);
        tree(last)
    }
}

/// `y = layer_norm(x)`, returns whether the row is in range (`core::numerics::norm::layer_norm`).
///
/// # Safety
/// As for [`Simd`]; the slices are equally long, a multiple of 16.
#[inline(always)]
pub unsafe fn layer_norm<S: Simd>(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, y: &mut [f32]) -> bool {
    // SAFETY: the caller's promise; every access is below the length.
    unsafe {
        let mean = tree256::<S>(x.len(), |i| S::load_f(x.as_ptr().add(i))) * reciprocal_of_len(x.len());
        let mean = S::splat_f(mean);
        for i in (0..x.len()).step_by(LANES) {
            S::store_f(y.as_mut_ptr().add(i), S::sub_f(S::load_f(x.as_ptr().add(i)), mean));
        }
        let squares = sum_of_squares::<S>(y);
        if !is_below(squares, SQUARES_LIMIT) {
            y.fill(0.0);
            return false;
        }
        let r = S::splat_f(inverse_rms(squares, x.len(), eps));
        for i in (0..x.len()).step_by(LANES) {
            let normed = S::mul_f(S::load_f(y.as_ptr().add(i)), r);
            let scaled = snap::<S>(S::mul_f(normed, S::load_f(weight.as_ptr().add(i))));
            let out = snap::<S>(S::add_f(scaled, S::load_f(bias.as_ptr().add(i))));
            S::store_f(y.as_mut_ptr().add(i), out);
        }
        true
    }
}

/// The dot product of a router (`core::numerics::moe::router_dot`).
///
/// # Safety
/// As for [`Simd`]; the slices are equally long, a multiple of 16.
#[inline(always)]
pub unsafe fn router_dot<S: Simd>(x: &[f32], weight: &[f32]) -> f32 {
    // SAFETY: the caller's promise; every access is below the length.
    unsafe {
        tree256::<S>(x.len(), |i| {
            snap::<S>(S::mul_f(S::load_f(x.as_ptr().add(i)), S::load_f(weight.as_ptr().add(i))))
        })
    }
}

/// `y = y + snap(weight*output)` (`core::numerics::moe::add_expert`).
///
/// # Safety
/// As for [`Simd`]; the slices are equally long, a multiple of 16.
#[inline(always)]
pub unsafe fn add_expert<S: Simd>(y: &mut [f32], weight: f32, output: &[f32]) {
    // SAFETY: the caller's promise; every access is below the length.
    unsafe {
        let weight = S::splat_f(weight);
        for i in (0..y.len()).step_by(LANES) {
            let scaled = snap::<S>(S::mul_f(weight, S::load_f(output.as_ptr().add(i))));
            let at = y.as_mut_ptr().add(i);
            S::store_f(at, S::add_f(S::load_f(at), scaled));
        }
    }
}

/// A16 row of a kernel's activations ([`super::linear::Activations`]).
pub struct A16Mut<'a> {
    /// High plane, padded to a multiple of 32.
    pub high: &'a mut [i8],
    /// Low plane.
    pub low: &'a mut [i8],
    /// Scales.
    pub scales: &'a mut [f32],
    /// Sums of the high plane over 16 elements.
    pub sums_high: &'a mut [i32],
    /// Sums of the low plane over 16 elements.
    pub sums_low: &'a mut [i32],
}

/// A16 of a row, returns whether it is in range (`core::numerics::a16::quantize_a16`).
///
/// # Safety
/// As for [`Simd`]; x is a multiple of 16 long and the planes have its length padded to a multiple of 32.
#[inline(always)]
pub unsafe fn quantize_a16<S: Simd>(x: &[f32], limit: f32, to: &mut A16Mut<'_>) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let mut in_range = true;
        for (s, block) in x.chunks(SUPERBLOCK).enumerate() {
            let at = s * SUPERBLOCK;
            let (high, low) = (to.high.as_mut_ptr().add(at), to.low.as_mut_ptr().add(at));
            in_range &= quantize_16::<S>(block, limit, high, low, &mut to.scales[s]);
        }
        to.high[x.len()..].fill(0);
        to.low[x.len()..].fill(0);
        for (plane, sums) in [(&to.high, &mut to.sums_high), (&to.low, &mut to.sums_low)] {
            for (chunk, sum) in plane.as_chunks::<16>().0.iter().zip(sums.iter_mut()) {
                *sum = chunk.iter().map(|&q| i32::from(q)).sum();
            }
        }
        in_range
    }
}

/// `core::numerics::a16::quantize_16` of a block.
///
/// # Safety
/// As for [`Simd`]; the block is a multiple of 16 long, and `high` and `low` have room for it.
#[inline(always)]
pub unsafe fn quantize_16<S: Simd>(
    x: &[f32],
    limit: f32,
    high: *mut i8,
    low: *mut i8,
    scale: &mut f32,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let amax = largest_magnitude::<S>(x);
        let in_range = is_below(amax, limit);
        if !in_range || is_below(amax, QUANTIZER_FLOOR) {
            *scale = 0.0;
            for i in (0..x.len()).step_by(LANES) {
                S::store_low_bytes(high.add(i), S::splat_i(0));
                S::store_low_bytes(low.add(i), S::splat_i(0));
            }
            return in_range;
        }
        *scale = amax * INV_16319;
        let steps = S::splat_f(scalar::recip(amax) * 16319.0);
        for i in (0..x.len()).step_by(LANES) {
            let rounded = rne::<S>(S::mul_f(S::load_f(x.as_ptr().add(i)), steps));
            let q = S::min_i(S::max_i(rounded, S::splat_i(-MAX_16)), S::splat_i(MAX_16));
            let h = S::sar_i::<7>(S::add_i(q, S::splat_i(64)));
            S::store_low_bytes(high.add(i), h);
            S::store_low_bytes(low.add(i), S::sub_i(q, S::shl_i::<7>(h)));
        }
        true
    }
}

/// `y = act(gate)*up`, any length.
///
/// # Safety
/// As for [`Simd`]; the slices are equally long.
#[inline(always)]
pub unsafe fn gate<S: Simd>(function: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
    // SAFETY: the caller's promise; vectors end below the length.
    unsafe {
        let vectors = y.len() / LANES * LANES;
        for i in (0..vectors).step_by(LANES) {
            let (g, u) = (S::load_f(gate.as_ptr().add(i)), S::load_f(up.as_ptr().add(i)));
            let out = match function {
                Activation::Silu => swiglu::<S>(g, u),
                Activation::Gelu => gelu_gate::<S>(g, u),
            };
            S::store_f(y.as_mut_ptr().add(i), out);
        }
        let one = match function {
            Activation::Silu => activation::swiglu,
            Activation::Gelu => activation::gelu_gate,
        };
        for i in vectors..y.len() {
            y[i] = one(gate[i], up[i]);
        }
    }
}

/// `y = gelu(x)`, any length.
///
/// # Safety
/// As for [`Simd`]; the slices are equally long.
#[inline(always)]
pub unsafe fn gelus<S: Simd>(x: &[f32], y: &mut [f32]) {
    // SAFETY: the caller's promise; vectors end below the length.
    unsafe {
        let vectors = y.len() / LANES * LANES;
        for i in (0..vectors).step_by(LANES) {
            S::store_f(y.as_mut_ptr().add(i), gelu::<S>(S::load_f(x.as_ptr().add(i))));
        }
        for i in vectors..y.len() {
            y[i] = activation::gelu(x[i]);
        }
    }
}

/// `y = softcap(x)`, any length.
///
/// # Safety
/// As for [`Simd`]; the slices are equally long.
#[inline(always)]
pub unsafe fn soft_caps<S: Simd>(x: &[f32], cap: f32, y: &mut [f32]) {
    // SAFETY: the caller's promise; vectors end below the length.
    unsafe {
        let vectors = y.len() / LANES * LANES;
        for i in (0..vectors).step_by(LANES) {
            S::store_f(y.as_mut_ptr().add(i), soft_cap::<S>(S::load_f(x.as_ptr().add(i)), cap));
        }
        for i in vectors..y.len() {
            y[i] = activation::soft_cap(x[i], cap);
        }
    }
}

/// End of a linear layer for 16 outputs: `y = snap(acc [+ bias]) [, y = add + y]`. Returns whether all are below the
/// limit of the head before `add`.
///
/// # Safety
/// As for [`Simd`]; pointers have 16 values each, or are null where an operand is absent.
#[inline(always)]
pub unsafe fn finish_linear<S: Simd>(
    acc: *const f32,
    bias: *const f32,
    add: *const f32,
    y: *mut f32,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let mut out = S::load_f(acc);
        if !bias.is_null() {
            out = S::add_f(out, S::load_f(bias));
        }
        out = snap::<S>(out);
        let limit = S::splat_i(LOGIT_LIMIT.to_bits() as i32);
        let mut outside = [0_i32; LANES];
        let flags = S::select_lt(abs_bits::<S>(out), limit, S::splat_i(0), S::splat_i(1));
        if !add.is_null() {
            out = S::add_f(S::load_f(add), out);
        }
        S::store_f(y, out);
        S::store_i(outside.as_mut_ptr(), flags);
        outside.iter().all(|&flag| flag == 0)
    }
}
