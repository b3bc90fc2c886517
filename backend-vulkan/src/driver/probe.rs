//! Which words make a cooperative matrix on this device ([`matrix_probe`]).

use std::sync::Arc;

use unisonic_core::launch::Workgroups;
use unisonic_core::launch::inputs::TileCounts;
use unisonic_gpu::machine::{Dispatch, MachineError, Span, Work};

use super::device::Device;
use super::memory::Buffer;
use super::pipeline::{Code, Pipeline};
use super::record::Recording;
use super::upload::Uploader;
use crate::spirv::{MatrixOrder, matrix_probe};

/// Asks the device; none if matrices are made of other words than kernels have.
pub fn matrix_order(
    device: &Arc<Device>,
    uploader: &mut Uploader,
) -> Result<Option<MatrixOrder>, MachineError> {
    let code = Code { words: matrix_probe::words(), exchanges: true, pushes_record: false, is_kept: true };
    let kernel = Pipeline::new(device, &matrix_probe::kernel(), &code)?;
    let len_bytes = matrix_probe::OUTPUT_LEN_BYTES as u64;
    let buffer = Buffer::new(device, len_bytes, Default::default(), "the matrix probe")?;
    let span = |len_bytes| Span { buffer: buffer.clone(), offset_bytes: 0, len_bytes };
    let work = Work {
        dispatches: vec![Dispatch {
            kernel,
            spans: vec![span(len_bytes)],
            params: vec![],
            workgroups: Workgroups::Fixed(1),
        }],
        inputs: span(0),
        results: vec![span(len_bytes)],
    };
    let mut recording = Recording::new(device, uploader, &work)?;
    recording.run(device, &[], TileCounts::default(), 1)?;
    Ok(matrix_probe::read(bytemuck::cast_slice(recording.results())))
}
