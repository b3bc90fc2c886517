//! Samples of kernels that give A16: by itself, behind gates and behind norms.

use unisonic_core::format::blocks::BlockFormat::{self, Q2_K, Q4_1, Q4_K, Q5_1, Q5_K, Q6_K};
use unisonic_core::numerics::float::pow2;
use unisonic_core::numerics::{activation, norm};
use unisonic_core::plan::Activation;
use unisonic_core::planes::region::Regions;
use unisonic_core::planes::weight::WeightFormat;

use super::super::{
    A16Form, Gate, LayerNorm, Outputs, RmsNorm, SuperblockShape, gate, gelu, layer_norm, quantize_a16,
    rms_norm,
};
use super::buffers::Buffers;
use super::data::{bytes, flags, hard_rows, rows, word_bytes};
use super::planes::{A16Rows, a16_form};
use super::rows::row_sample;
use super::{DEVICES, Extent, Sample};

/// Formats of the weights that read an activation: with no minima, integer ones of either kind or both, f16
/// ones, and all.
pub type Readers = &'static [BlockFormat];

const READERS: [Readers; 8] =
    [&[Q6_K], &[Q4_K], &[Q2_K], &[Q4_1], &[Q5_K, Q4_1], &[Q2_K, Q5_1], &[Q2_K, Q4_K], &[Q2_K, Q5_K, Q4_1]];

/// Whether f32 is written, and A16 for which readers.
pub const OUTPUTS: [(bool, Option<Readers>); 6] = [
    (true, Some(READERS[3])),
    (true, None),
    (false, Some(READERS[0])),
    (false, Some(READERS[1])),
    (true, Some(READERS[5])),
    (false, Some(READERS[6])),
];

/// Places of one row, of two, and of four with and without all of them taken.
const ROWS: [usize; 6] = [5, 1, 2, 3, 4, 9];
/// Rows that are no whole vectors, sub-blocks or superblocks, and rows of more than one workgroup.
const WIDTHS: [usize; 7] = [576, 16, 30, 48, 256, 640, 1280];
const CLUSTERS: [u32; 2] = [4, 1];

/// [`hard_rows`]; the last element of row 3 is what A16 does not take.
fn rows_out_of_range(count: usize, width: usize, seed: u64) -> Vec<f32> {
    let mut x = hard_rows(count, width, seed);
    if let Some(row) = x.chunks_mut(width).nth(3) {
        row[width - 1] = pow2(64);
    }
    x
}

/// Adds what is written of rows: `row_in_range` tells of what was before them.
pub fn results(
    buffers: Buffers,
    outputs: Outputs,
    x: &[f32],
    width: usize,
    row_in_range: impl Fn(usize) -> bool,
) -> Buffers {
    let buffers = buffers.write_all(outputs.f32.then(|| bytes(x)));
    let Some(form) = outputs.a16 else { return buffers };
    let a16 = A16Rows::new(x, width);
    let superblocks = form.superblocks() as usize;
    let in_range = a16.in_range.iter().enumerate();
    let in_range: Vec<bool> = in_range.map(|(s, &fits)| fits && row_in_range(s / superblocks)).collect();
    buffers.write_all(a16.regions(form)).write(word_bytes(&flags(&in_range)))
}

/// The forms of rows.
pub fn outputs((f32, a16): (bool, Option<Readers>), count: usize, width: usize) -> Outputs {
    Outputs { f32, a16: a16.map(|readers| form(readers, count, width)) }
}

fn form(readers: Readers, count: usize, width: usize) -> A16Form {
    let formats: Vec<_> = readers.iter().copied().map(WeightFormat::Block).collect();
    a16_form(count, width, Regions::read_by(&formats))
}

/// Samples of [`quantize_a16`].
pub fn quantize_a16_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [WIDTHS.len(), ROWS.len(), READERS.len(), CLUSTERS.len(), DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(|[width, count, readers, clusters, device]| {
        let (width, count, readers) = (WIDTHS[width], ROWS[count], READERS[readers]);
        let outputs = outputs((false, Some(readers)), count, width);
        let shape = SuperblockShape { clusters: CLUSTERS[clusters] };
        let template = quantize_a16(form(readers, count, width), shape);
        let x = rows_out_of_range(count, width, 3);
        let buffers = results(Buffers::default().read(bytes(&x)), outputs, &x, width, |_| true);
        row_sample(template, format!("{width}, {readers:?}, {shape:?}"), count, buffers, device)
    }))
}

/// Samples of [`gate`].
pub fn gate_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const FUNCTIONS: [Activation; 2] = [Activation::Silu, Activation::Gelu];
    /// Parts of a row of up, of which the kernel's is the last.
    const PARTS: [usize; 2] = [1, 3];
    let sizes = [
        WIDTHS.len(),
        ROWS.len(),
        OUTPUTS.len(),
        FUNCTIONS.len(),
        PARTS.len(),
        CLUSTERS.len(),
        DEVICES.len(),
    ];
    let choices = extent.combinations(sizes).into_iter();
    Box::new(choices.map(|[width, count, to, function, parts, clusters, device]| {
        let (width, count, function) = (WIDTHS[width], ROWS[count], FUNCTIONS[function]);
        let outputs = outputs(OUTPUTS[to], count, width);
        let shape = SuperblockShape { clusters: CLUSTERS[clusters] };
        let (mut g, up) = (hard_rows(count, width, 1), rows_out_of_range(count, width, 2));
        if let Some(row) = g.chunks_mut(width).nth(3) {
            row[width - 1] = 2.0;
        }
        let of_two = match function {
            Activation::Silu => activation::swiglu,
            Activation::Gelu => activation::gelu_gate,
        };
        let out: Vec<f32> = g.iter().zip(&up).map(|(&g, &up)| of_two(g, up)).collect();
        let up_width = PARTS[parts] * width;
        let mut up_rows = vec![f32::NAN; count * up_width];
        for (all, own) in up_rows.chunks_mut(up_width).zip(up.chunks(width)) {
            all[up_width - width..].copy_from_slice(own);
        }
        let buffers = Buffers::default().read(bytes(&g)).read(bytes(&up_rows));
        let buffers = results(buffers, outputs, &out, width, |_| true);
        let of = Gate { activation: function, width: width as u32, up_width: up_width as u32, outputs };
        let params = if parts == 0 { vec![] } else { vec![(up_width - width) as u32] };
        row_sample(gate(of, shape), format!("{of:?}, {shape:?}"), count, buffers, device).with_params(params)
    }))
}

/// Samples of [`gelu`].
pub fn gelu_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let sizes = [WIDTHS.len(), ROWS.len(), OUTPUTS.len(), CLUSTERS.len(), DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(|[width, count, to, clusters, device]| {
        let (width, count) = (WIDTHS[width], ROWS[count]);
        let outputs = outputs(OUTPUTS[to], count, width);
        let shape = SuperblockShape { clusters: CLUSTERS[clusters] };
        let mut x = rows_out_of_range(count, width, 1);
        x[0] = -pow2(40);
        if let Some(row) = x.chunks_mut(width).nth(3) {
            row[width - 1] = pow2(65);
        }
        let out: Vec<f32> = x.iter().map(|&x| activation::gelu(x)).collect();
        let buffers = results(Buffers::default().read(bytes(&x)), outputs, &out, width, |_| true);
        row_sample(
            gelu(width as u32, outputs, shape),
            format!("{width}, {outputs:?}, {shape:?}"),
            count,
            buffers,
            device,
        )
    }))
}

/// Samples of [`layer_norm`].
pub fn layer_norm_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const WIDTHS: [usize; 9] = [768, 16, 30, 64, 255, 256, 640, 1600, 2305];
    const EPS: [f32; 2] = [1e-5, pow2(-60)];
    let sizes = [WIDTHS.len(), ROWS.len(), OUTPUTS.len(), EPS.len(), DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(|[width, count, to, eps, device]| {
        let (width, count, eps) = (WIDTHS[width], ROWS[count], EPS[eps]);
        let outputs = outputs(OUTPUTS[to], count, width);
        let norm = LayerNorm { width: width as u32, eps, outputs };
        let (x, weight, bias) = norm_inputs(count, width);
        // Only row 3 is out of the norm's range; the largest bias makes the last superblock so of A16.
        let mut bias = bias[..width].to_vec();
        if eps == EPS[0] && outputs.a16.is_some() {
            bias[width - 1] = pow2(64);
        }
        let (mut row_in_range, mut out) = (vec![], vec![]);
        for x in x.chunks(width) {
            let mut y = vec![0.0; width];
            row_in_range.push(norm::layer_norm(x, &weight, &bias, eps, &mut y));
            out.extend(y);
        }
        let buffers = Buffers::default().read_all([bytes(&x), bytes(&weight), bytes(&bias)]);
        let buffers = results(buffers, outputs, &out, width, |row| row_in_range[row]);
        let buffers = match outputs.a16 {
            Some(_) => buffers,
            None => buffers.write(word_bytes(&flags(&row_in_range))),
        };
        row_sample(layer_norm(norm), format!("{norm:?}"), count, buffers, device)
    }))
}

/// Samples of [`rms_norm`].
pub fn rms_norm_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    /// Rows of real models, and rows that are no whole workgroups, superblocks or vectors.
    const WIDTHS: [usize; 11] = [576, 16, 30, 64, 255, 256, 640, 896, 1536, 2304, 4864];
    const ADDS: [bool; 2] = [false, true];
    const EPS: [f32; 2] = [1e-5, pow2(-60)];
    let sizes = [WIDTHS.len(), ROWS.len(), OUTPUTS.len(), ADDS.len(), EPS.len(), DEVICES.len()];
    Box::new(extent.combinations(sizes).into_iter().map(|[width, count, to, add, eps, device]| {
        let (width, count, add, eps) = (WIDTHS[width], ROWS[count], ADDS[add], EPS[eps]);
        let outputs = outputs(OUTPUTS[to], count, width);
        let norm = RmsNorm { width: width as u32, eps, add, outputs };
        let (x, weight, residual) = norm_inputs(count, width);
        let (mut row_in_range, mut out) = (vec![], vec![]);
        for (x, residual) in x.chunks(width).zip(residual.chunks(width)) {
            let mut y = vec![0.0; width];
            row_in_range.push(norm::rms_norm(x, &weight, eps, &mut y));
            out.extend(y.iter().zip(residual).map(|(y, residual)| if add { residual + y } else { *y }));
        }
        let buffers =
            Buffers::default().read(bytes(&x)).read(bytes(&weight)).read_all(add.then(|| bytes(&residual)));
        let buffers = results(buffers, outputs, &out, width, |row| row_in_range[row]);
        let buffers = match outputs.a16 {
            Some(_) => buffers,
            None => buffers.write(word_bytes(&flags(&row_in_range))),
        };
        row_sample(rms_norm(norm), format!("{norm:?}"), count, buffers, device)
    }))
}

/// Rows of which one is out of the norm's range, weights, and residuals of which another is out of that of
/// A16.
fn norm_inputs(count: usize, width: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let (mut x, mut residual) = (hard_rows(count, width, 1), rows(count, width, 3));
    if let Some(row) = x.chunks_mut(width).nth(3) {
        row[width / 2] = pow2(101);
    }
    if let Some(row) = residual.chunks_mut(width).nth(4) {
        row[width - 1] = -pow2(64);
    }
    (x, rows(1, width, 2), residual)
}
