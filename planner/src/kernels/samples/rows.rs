//! Samples of kernels that take rows as they are.

use unisonic_core::launch::MAX_RUNS;
use unisonic_core::numerics::activation;
use unisonic_core::numerics::float::{ord, pow2};
use unisonic_core::numerics::sampling::most_likely;

use super::super::argmax::PART_LEN;
use super::super::{GridKernel, add, argmax_join, argmax_parts, scale, select_rows, soft_cap};
use super::buffers::Buffers;
use super::data::{POISON, bytes, hard_rows, rows, word_bytes};
use super::{DEVICES, Extent, Sample};

/// Rows of real models, rows that are no whole vectors, rows of more than one workgroup.
const WIDTHS: [usize; 8] = [16, 1, 30, 255, 576, 896, 1024, 2050];
const ROWS: [usize; 3] = [1, 3, 4];

/// A sample of a kernel over rows, with `what` in its name.
pub fn row_sample(
    template: GridKernel,
    what: String,
    rows: usize,
    buffers: Buffers,
    device: usize,
) -> Sample {
    let name = format!("{} {rows} rows of {what}", template.kernel.name);
    Sample::new(name, template, rows as u32, buffers, DEVICES[device])
}

/// Samples of [`add`].
pub fn add_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    let choices = extent.combinations([WIDTHS.len(), ROWS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, count, device]| {
        let (width, count) = (WIDTHS[width], ROWS[count]);
        let [a, b] = [1, 2].map(|seed| hard_rows(count, width, seed));
        let out: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let buffers = Buffers::default().read(bytes(&a)).read(bytes(&b)).write(bytes(&out));
        row_sample(add(width as u32), width.to_string(), count, buffers, device)
    }))
}

/// Samples of [`soft_cap`], with the bounds of models and those of the range contract.
pub fn soft_cap_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const CAPS: [f32; 4] = [30.0, 50.0, pow2(-10), pow2(20)];
    let choices = extent.combinations([WIDTHS.len(), ROWS.len(), CAPS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, count, cap, device]| {
        let (width, count, cap) = (WIDTHS[width], ROWS[count], CAPS[cap]);
        let mut x = hard_rows(count, width, 1);
        x[count * width - 1] = -pow2(63);
        let out: Vec<f32> = x.iter().map(|&x| activation::soft_cap(x, cap)).collect();
        let buffers = Buffers::default().read(bytes(&x)).write(bytes(&out));
        row_sample(soft_cap(width as u32, cap), format!("{width}, cap {cap}"), count, buffers, device)
    }))
}

/// Samples of [`scale`], with products that are snapped.
pub fn scale_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const SCALES: [f32; 4] = [0.0625, -1.5, pow2(-60), 0.0];
    let choices = extent.combinations([WIDTHS.len(), ROWS.len(), SCALES.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, count, s, device]| {
        let (width, count, s) = (WIDTHS[width], ROWS[count], SCALES[s]);
        let x = hard_rows(count, width, 1);
        let out: Vec<f32> = x.iter().map(|&x| activation::scaled(x, s)).collect();
        let buffers = Buffers::default().read(bytes(&x)).read(bytes(&[s])).write(bytes(&out));
        row_sample(scale(width as u32), format!("{width}, scale {s}"), count, buffers, device)
    }))
}

/// Samples of [`select_rows`].
pub fn select_rows_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const INDICES: [&[u32]; 3] = [&[4], &[4, 0, 3], &[0, 1, 1, 4]];
    let choices = extent.combinations([WIDTHS.len(), INDICES.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, indices, device]| {
        let (width, indices) = (WIDTHS[width], INDICES[indices]);
        let x = rows(5, width, 1);
        let out: Vec<f32> =
            indices.iter().flat_map(|&row| &x[row as usize * width..][..width]).copied().collect();
        let buffers = Buffers::default().read(bytes(&x)).read(word_bytes(indices)).write(bytes(&out));
        row_sample(select_rows(width as u32), width.to_string(), indices.len(), buffers, device)
    }))
}

/// Rows of logits: less than a part, a part, more, and the vocabulary of GPT-2.
const LOGITS: [usize; 5] = [255, 1, 4096, 4097, 50_257];

/// Logits of `count` rows.
fn logits(count: usize, width: usize) -> Vec<f32> {
    let mut logits = rows(count, width, 5);
    for (number, row) in logits.chunks_mut(width).enumerate() {
        match number {
            // Equal largest values, in one part or two.
            0 => {
                row[width / 2] = 1e9;
                row[width - 1] = 1e9;
            }
            1 => row.fill(-3.0),
            // Zeros of either sign.
            2 => {
                row.fill(-0.0);
                row[width - 1] = 0.0;
            }
            3 => row.iter_mut().for_each(|x| *x = -x.abs() - 1.0),
            _ => {}
        }
    }
    logits
}

/// For each part of each row: the ordered integer of its largest logit and the id.
fn best_of_parts(logits: &[f32], width: usize) -> (Vec<u32>, Vec<u32>) {
    let of_part = |(number, part): (usize, &[f32])| {
        let best = most_likely(part)?;
        Some((ord(part[best as usize]) as u32, number as u32 * PART_LEN + best))
    };
    let parts = logits.chunks(width).flat_map(|row| row.chunks(PART_LEN as usize).enumerate());
    parts.filter_map(of_part).unzip()
}

/// Samples of [`argmax_parts`].
pub fn argmax_parts_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    const ROWS: [usize; 2] = [5, 1];
    let choices = extent.combinations([LOGITS.len(), ROWS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, count, device]| {
        let (width, count) = (LOGITS[width], ROWS[count]);
        let logits = logits(count, width);
        let (orders, ids) = best_of_parts(&logits, width);
        let buffers =
            Buffers::default().read(bytes(&logits)).write(word_bytes(&orders)).write(word_bytes(&ids));
        row_sample(argmax_parts(width as u32), width.to_string(), count, buffers, device)
    }))
}

/// Samples of [`argmax_join`], with flags in some rows, and after other numbers of runs.
pub fn argmax_join_samples(extent: Extent) -> Box<dyn Iterator<Item = Sample>> {
    /// Output rows, rows of the batch.
    const ROWS: [(usize, usize); 3] = [(5, 8), (1, 1), (3, 3)];
    const SEGMENTS: [u32; 3] = [1, 3, 100];
    const RUNS: [u32; 2] = [0, MAX_RUNS - 1];
    let choices = extent.combinations([LOGITS.len(), ROWS.len(), SEGMENTS.len(), RUNS.len(), DEVICES.len()]);
    Box::new(choices.into_iter().map(|[width, count, segments, run, device]| {
        let (width, (count, rows)) = (LOGITS[width], ROWS[count]);
        let (segments, run) = (SEGMENTS[segments], RUNS[run]);
        let logits = logits(count, width);
        let (orders, ids) = best_of_parts(&logits, width);
        let tokens: Vec<u32> = logits.chunks(width).filter_map(most_likely).collect();
        // The first and the last segment flag a row each.
        let mut found = vec![0; segments as usize * rows];
        let mut flags = vec![0; count];
        for (segment, row, flag) in [(0, 0, 1), (segments as usize - 1, count - 1, 7)] {
            found[segment * rows + row] = flag;
            flags[row] = flag.max(flags[row]);
        }
        let every = |word: u32| word_bytes(&vec![word; count]);
        let positions =
            |plus: u32| word_bytes(&(0..count as u32).map(|row| 7 * row + plus).collect::<Vec<_>>());
        // Only the run's own row of the table is written.
        let of_run = |words: &[u32]| {
            let mut bytes = vec![POISON; 4 * MAX_RUNS as usize * count];
            bytes[4 * run as usize * count..][..4 * count].copy_from_slice(&word_bytes(words));
            bytes
        };
        let buffers = Buffers::default()
            .read_all([word_bytes(&orders), word_bytes(&ids), word_bytes(&found)])
            .update(every(run), every(run + 1))
            .update(positions(3), positions(4))
            .update(positions(9), positions(10))
            .write_all([word_bytes(&tokens), word_bytes(&tokens), of_run(&tokens), of_run(&flags)]);
        let params = vec![segments, rows as u32, count as u32];
        row_sample(argmax_join(width as u32), width.to_string(), count, buffers, device).with_params(params)
    }))
}
