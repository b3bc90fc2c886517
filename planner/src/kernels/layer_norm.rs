//! LayerNorm of rows.

use unisonic_core::kir::build::{Build, kernel};
use unisonic_core::kir::{Kernel, Scalar};
use unisonic_core::numerics::float::reciprocal_of_len;
use unisonic_core::numerics::range::SQUARES_LIMIT;

use super::a16::{Place, SUPERBLOCK, four};
use super::elementary::{is_below, rsqrt, snap};
use super::quantize::{Outputs, Results};
use super::reduce::{CLUSTER, lane_sum, tree256};
use super::{GridKernel, ROW_LANES};

/// What a LayerNorm does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Values of a row.
    pub width: u32,
    /// Added to the variance.
    pub eps: f32,
    /// Where the result goes.
    pub outputs: Outputs,
}

/// `y = snap(snap((d*r)*w) + b)`, `d = x - tree256(x)*f32(1/width)`, `r = rsqrt(tree256(snap(d*d))*f32(1/width) + eps)`, one
/// workgroup a row (`core::numerics::norm::layer_norm`); to f32, to A16 or to both.
///
/// Buffers: `x`, rows of `width` f32; `weight` and `bias`, one row each; `out`, rows, if asked; the regions of A16, if asked;
/// `flags`, as of [`super::rms_norm()`]. Reads x three times (twice from a cache), weight and bias once, and writes 4 bytes an
/// element and about 2: about 30 operations.
pub fn layer_norm(norm: LayerNorm) -> GridKernel {
    let kernel: Kernel = kernel("layer_norm", ROW_LANES, |k| write(k, norm));
    let flags_a_row = norm.outputs.a16.map_or(1, |form| form.superblocks());
    GridKernel::rows(kernel, 1).with_flags(flags_a_row)
}

fn write(k: &Build, LayerNorm { width, eps, outputs }: LayerNorm) {
    let [x, weight, bias] = ["x", "weight", "bias"].map(|name| k.read(name, Scalar::F32));
    let results = Results::declare(k, width, outputs);
    let row_flags = outputs.a16.is_none().then(|| k.write("flags", Scalar::U32));
    let scratch = k.shared("scratch", Scalar::F32, ROW_LANES);
    let (row, lane) = (k.group_id(), k.local_id());
    let (first, inverse) = (row * width, k.f32(reciprocal_of_len(width as usize)));

    let load = |column| x.load(first + column);
    let mean = tree256(k, scratch, lane_sum(k, width, load, |x| x)) * inverse;
    k.barrier();
    let square = |x| {
        let d = x - mean;
        snap(k, d * d)
    };
    let squares = tree256(k, scratch, lane_sum(k, width, load, square));
    let in_range = is_below(k, squares, SQUARES_LIMIT);
    let r = rsqrt(k, squares * inverse + k.f32(eps));
    let (mean, r, zero) = (k.vector([mean; 4]), k.vector([r; 4]), k.vector([k.f32(0.0); 4]));
    let keeps = k.vector([in_range; 4]);
    k.each(k.u32(0), k.u32(width.div_ceil(SUPERBLOCK)), ROW_LANES / CLUSTER, |s| {
        let at = Place::new(k, row, s + lane / CLUSTER, width);
        let values = at.columns().map(|column| {
            let x = four(k, width, column, |column, len| x.load_vector(first + column, len));
            let [weight, bias] =
                [weight, bias].map(|of| four(k, width, column, |column, len| of.load_vector(column, len)));
            // Past the row the weight and the bias are +0, and so is the result.
            let scaled = snap(k, ((x - mean) * r) * weight);
            keeps.select(snap(k, scaled + bias), zero)
        });
        results.store(at, values, in_range);
    });
    if let Some(flags) = row_flags {
        k.when(lane.eq(k.u32(0)), || flags.store(row, in_range.select(k.u32(0), k.u32(1))));
    }
}
