//! Weights from their source to memory: read, checked and packed in parts, on all threads of the pool.
//!
//! A part is read, packed and dropped again, so that loading needs the memory of the packed weights and little more.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use unisonic_core::plan::{
    DeviceError, LoadProgress, LoadedWeight, Plan, Progress, Weight, WeightError, WeightSource, load_rows,
    load_weight,
};

use super::matrix::{PackedMatrix, Packing};
use super::packing::pack_rows;
use crate::memory::check_available;
use crate::pool::{Pool, lock};
use crate::simd::LANES;

/// Bytes of a part in the file, about.
const PART_LEN_BYTES: usize = 1 << 20;

/// A weight as kernels read it.
pub(super) enum NativeWeight {
    Matrix(PackedMatrix),
    Vector(Vec<f32>),
}

/// Rows of a matrix and the panels that they are packed into.
struct RowRange<'a> {
    weight: &'a Weight,
    packing: Packing,
    tiles: usize,
    rows: Range<u32>,
    panels: &'a mut [u8],
}

/// Loads the weights of a plan that [`super::unfit`] accepts. Of several errors one is returned, the same whatever the threads
/// do: that of the first vector in the order of the plan, else that of the first part of a matrix.
pub(super) fn load_weights(
    plan: &Plan,
    source: &dyn WeightSource,
    pool: &mut Pool,
    progress: &Progress<'_>,
) -> Result<Vec<NativeWeight>, DeviceError> {
    let packed_len_bytes =
        plan.weights.iter().filter_map(PackedMatrix::len_bytes).map(|len| len as u64).sum();
    check_available("the model", packed_len_bytes)?;
    let total_bytes = plan.weights.iter().map(Weight::len_bytes).sum();
    let report = |loaded_bytes| progress(LoadProgress { loaded_bytes, total_bytes });
    let mut loaded_bytes = 0;
    report(loaded_bytes);
    let mut weights = Vec::with_capacity(plan.weights.len());
    for weight in &plan.weights {
        weights.push(match PackedMatrix::allocate(weight)? {
            Some(matrix) => NativeWeight::Matrix(matrix),
            None => match load_weight(source, weight)? {
                LoadedWeight::F32(values) => {
                    loaded_bytes += weight.len_bytes();
                    NativeWeight::Vector(values)
                }
                _ => unreachable!("`unfit` admits only matrices that can be packed"),
            },
        });
    }
    let parts: Vec<_> = parts(plan, &mut weights).into_iter().map(Mutex::new).collect();
    report(loaded_bytes);
    let loaded_bytes = Mutex::new(loaded_bytes);
    let failed: Mutex<Option<(usize, WeightError)>> = Mutex::new(None);
    pool.run(parts.len(), &|index| {
        if lock(&failed).as_ref().is_some_and(|&(first, _)| first < index) {
            return;
        }
        let mut part = lock(&parts[index]);
        match load_part(source, &mut part) {
            Ok(()) => {
                let mut loaded_bytes = lock(&loaded_bytes);
                *loaded_bytes +=
                    u64::from(part.rows.end - part.rows.start) * part.weight.row_len_bytes() as u64;
                report(*loaded_bytes);
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
fn parts<'a>(plan: &'a Plan, weights: &'a mut [NativeWeight]) -> Vec<RowRange<'a>> {
    let mut parts = Vec::new();
    for (weight, loaded) in plan.weights.iter().zip(weights) {
        let NativeWeight::Matrix(matrix) = loaded else { continue };
        let panels = (PART_LEN_BYTES / (LANES * weight.row_len_bytes())).max(1);
        let (packing, tiles, panel_len_bytes) = (matrix.packing, matrix.tiles, matrix.panel_len_bytes);
        for (i, to) in matrix.panels_mut().chunks_mut(panels * panel_len_bytes).enumerate() {
            let start = (i * panels * LANES) as u32;
            let end = weight.rows.min(start + (panels * LANES) as u32);
            parts.push(RowRange { weight, packing, tiles, rows: start..end, panels: to });
        }
    }
    parts
}

fn load_part(source: &dyn WeightSource, part: &mut RowRange<'_>) -> Result<(), WeightError> {
    let rows = load_rows(source, part.weight, part.rows.clone())?;
    pack_rows(part.packing, part.rows.len(), part.tiles, &rows, part.panels);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisonic_core::plan::{BufferId, Encoding, FloatSource, MemoryWeights};

    const ROWS: u32 = 4096;
    const COLS: u32 = 256;

    /// Two matrices of several parts each and a vector; every element is 1 unless `bad` names its byte.
    fn load(threads: usize, bad: &[(&str, usize)]) -> (Result<usize, String>, Vec<(u64, u64)>) {
        let weight = |tensor: &str, encoding, rows| Weight {
            tensor: tensor.into(),
            encoding,
            rows,
            cols: COLS,
            part: None,
        };
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
            input: None,
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
        let progress = |now: LoadProgress| lock(&steps).push((now.loaded_bytes, now.total_bytes));
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
