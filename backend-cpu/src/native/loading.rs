//! Weights from their source to memory: read, checked and packed in parts, on all threads of the pool.
//!
//! A part is read, packed and dropped again, so that loading needs the memory of the packed weights and little more.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use unisonic_core::plan::{
    DeviceError, LoadedWeight, Plan, Progress, Weight, WeightError, WeightSource, load_rows, load_weight,
};

use super::matrix::{PackedMatrix, Packing};
use super::packing::pack_rows;
use super::quants::TILE_LEN;
use crate::pool::Pool;
use crate::simd::LANES;

/// Bytes of a part in the file, about.
const PART_LEN_BYTES: usize = 1 << 20;

/// A weight as kernels read it.
pub(super) enum NativeWeight {
    Matrix(PackedMatrix),
    Vector(Vec<f32>),
}

/// Rows of a matrix and the panels that they are packed into.
struct Part<'a> {
    weight: &'a Weight,
    packing: Packing,
    rows: Range<u32>,
    panels: &'a mut [u8],
}

/// Loads the weights of a plan that [`super::unfit`] has nothing against. Of several errors, that of the first part in the
/// order of the plan is returned, whatever the threads do.
pub(super) fn load_weights(
    plan: &Plan,
    source: &dyn WeightSource,
    pool: &mut Pool,
    progress: &Progress<'_>,
) -> Result<Vec<NativeWeight>, DeviceError> {
    let total = plan.weights.iter().map(Weight::len_bytes).sum();
    let mut read = 0;
    progress(read, total);
    let mut weights = Vec::with_capacity(plan.weights.len());
    for weight in &plan.weights {
        weights.push(match PackedMatrix::allocate(weight)? {
            Some(matrix) => NativeWeight::Matrix(matrix),
            None => match load_weight(source, weight)? {
                LoadedWeight::F32(values) => {
                    read += weight.len_bytes();
                    NativeWeight::Vector(values)
                }
                _ => unreachable!("`unfit` admits only matrices that can be packed"),
            },
        });
    }
    let parts: Vec<_> = parts(plan, &mut weights).into_iter().map(Mutex::new).collect();
    let read = Mutex::new(read);
    let failed: Mutex<Option<(usize, WeightError)>> = Mutex::new(None);
    pool.run(parts.len(), &|index| {
        if lock(&failed).as_ref().is_some_and(|&(first, _)| first < index) {
            return;
        }
        let mut part = lock(&parts[index]);
        match load_part(source, &mut part) {
            Ok(()) => {
                let mut read = lock(&read);
                *read += u64::from(part.rows.end - part.rows.start) * part.weight.row_len_bytes() as u64;
                progress(*read, total);
            }
            Err(error) => {
                let mut failed = lock(&failed);
                if failed.as_ref().is_none_or(|&(first, _)| index < first) {
                    *failed = Some((index, error));
                }
            }
        }
    });
    drop(parts);
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error.into()),
        None => Ok(weights),
    }
}

/// All matrices, cut into parts of whole panels.
fn parts<'a>(plan: &'a Plan, weights: &'a mut [NativeWeight]) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for (weight, loaded) in plan.weights.iter().zip(weights) {
        let NativeWeight::Matrix(matrix) = loaded else { continue };
        let panels = (PART_LEN_BYTES / (LANES * weight.row_len_bytes())).max(1);
        let (packing, panel_len_bytes) = (matrix.packing, matrix.panel_len_bytes);
        for (i, to) in matrix.panels_mut().chunks_mut(panels * panel_len_bytes).enumerate() {
            let start = (i * panels * LANES) as u32;
            let end = weight.rows.min(start + (panels * LANES) as u32);
            parts.push(Part { weight, packing, rows: start..end, panels: to });
        }
    }
    parts
}

fn load_part(source: &dyn WeightSource, part: &mut Part<'_>) -> Result<(), WeightError> {
    let rows = load_rows(source, part.weight, part.rows.clone())?;
    let tiles = (part.weight.cols as usize).div_ceil(TILE_LEN);
    pack_rows(part.packing, part.rows.len(), tiles, &rows, part.panels);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::plan::{BufferId, Encoding, FloatSource, MemoryWeights};

    const ROWS: u32 = 4096;
    const COLS: u32 = 256;

    /// Two matrices of several parts each and a vector; every element is 1 unless `bad` names its byte.
    fn load(threads: usize, bad: &[(&str, usize)]) -> (Result<usize, String>, Vec<(u64, u64)>) {
        let weight =
            |tensor: &str, encoding, rows| Weight { tensor: tensor.into(), encoding, rows, cols: COLS };
        let matrix = Encoding::W16(FloatSource::F32);
        let plan = Plan {
            architecture: "test".into(),
            vocab_len: 1,
            context_len: 1,
            weights: vec![
                weight("a", matrix, ROWS),
                weight("norm", Encoding::F32(FloatSource::F32), 1),
                weight("b", matrix, ROWS),
            ],
            buffers: vec![],
            rope_tables: vec![],
            kv_layers: vec![],
            steps: vec![],
            logits: BufferId(0),
        };
        let ones = |weight: &Weight| 1_f32.to_le_bytes().repeat((weight.rows * weight.cols) as usize);
        let tensors = plan.weights.iter().map(|weight| (weight.tensor.clone(), ones(weight)));
        let mut source = MemoryWeights(tensors.collect());
        for &(tensor, element) in bad {
            let bytes = source.0.get_mut(tensor).expect("a tensor of the plan");
            bytes[4 * element..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        let steps = Mutex::new(Vec::new());
        let progress = |read, total| lock(&steps).push((read, total));
        let loaded = load_weights(&plan, &source, &mut Pool::new(threads), &progress);
        let loaded = loaded.map(|weights| weights.len()).map_err(|error| error.to_string());
        (loaded, steps.into_inner().unwrap())
    }

    #[test]
    fn progress_grows_from_nothing_to_all() {
        for threads in [1, 3] {
            let (loaded, steps) = load(threads, &[]);
            assert_eq!(loaded, Ok(3));
            let total = u64::from((2 * ROWS + 1) * COLS * 4);
            assert_eq!((steps[0], steps[steps.len() - 1]), ((0, total), (total, total)));
            assert!(steps.len() > 8 && steps.is_sorted(), "{steps:?}");
        }
    }

    #[test]
    fn the_first_error_is_told_whatever_the_threads_do() {
        let last = (ROWS * COLS - 1) as usize;
        for threads in [1, 2, 7] {
            let (loaded, _) = load(threads, &[("b", 0), ("a", last), ("b", last)]);
            let error = loaded.unwrap_err();
            assert!(error.starts_with(&format!("tensor `a`, row {}", ROWS - 1)), "{error}");
        }
    }
}
