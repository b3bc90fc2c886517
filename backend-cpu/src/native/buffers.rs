//! Activation buffers: memory that the tasks of a step write side by side.
//!
//! Tasks of one step write disjoint rows or columns of its result and read other buffers only: `Plan::check` has seen that
//! no step writes what it reads. So buffers hand out raw rows, and the steps say why their rows are disjoint.

use std::cell::UnsafeCell;

use unisonic_core::plan::{Buffer, BufferId, BufferKind, DeviceError, Limits, Rows};

use super::linear::Activations;
use super::rows::A16Mut;
use crate::memory::{allocate, into_cells};

/// An array whose parts are written by different threads.
pub struct Shared<T>(Vec<UnsafeCell<T>>);

// SAFETY: access goes through `slice` and `slice_mut`, whose callers promise that no part is written while it is used
// elsewhere.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Clone + Default> Shared<T> {
    fn allocate(rows: usize, width: usize) -> Result<Self, DeviceError> {
        Ok(Self(into_cells(allocate("an activation buffer", rows, width)?)))
    }

    /// A part to read.
    ///
    /// # Safety
    /// No thread writes it meanwhile.
    pub unsafe fn slice(&self, at: usize, len: usize) -> &[T] {
        let cells = &self.0[at..at + len];
        // SAFETY: the cells are in bounds, and the caller promises that they are not written.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// A part to write.
    ///
    /// # Safety
    /// No other thread uses it meanwhile.
    #[allow(clippy::mut_from_ref, reason = "that is what the cells are for")]
    pub unsafe fn slice_mut(&self, at: usize, len: usize) -> &mut [T] {
        let cells = &self.0[at..at + len];
        // SAFETY: the cells are in bounds, and the caller promises that they are its own.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), len) }
    }

    fn as_ptr(&self) -> *const T {
        self.0.as_ptr().cast()
    }
}

/// A buffer of the plan.
pub enum Data {
    /// f32 rows.
    F32 { width: usize, values: Shared<f32> },
    /// A16 rows with the sums that kernels need.
    A16(A16Rows),
    /// Q16 heads.
    Q16 { heads: usize, head_len: usize, high: Shared<i8>, low: Shared<i8>, scales: Shared<f32> },
}

/// Quantised rows.
pub struct A16Rows {
    width: usize,
    high: Shared<i8>,
    low: Shared<i8>,
    scales: Shared<f32>,
    sums_high: Shared<i32>,
    sums_low: Shared<i32>,
}

/// All buffers of a program.
pub struct Buffers(Vec<Data>);

impl Buffers {
    /// Memory for the largest batch.
    pub fn allocate(buffers: &[Buffer], limits: Limits) -> Result<Self, DeviceError> {
        let data = buffers.iter().map(|buffer| {
            let rows = match buffer.rows {
                Rows::All => limits.max_rows,
                Rows::Outputs => limits.max_outputs,
            } as usize;
            let rows = rows.saturating_mul(buffer.slots as usize);
            Ok(match buffer.kind {
                BufferKind::F32 { width } => {
                    Data::F32 { width: width as usize, values: Shared::allocate(rows, width as usize)? }
                }
                BufferKind::A16 { width } => {
                    let width = (width as usize).next_multiple_of(32);
                    Data::A16(A16Rows {
                        width,
                        high: Shared::allocate(rows, width)?,
                        low: Shared::allocate(rows, width)?,
                        scales: Shared::allocate(rows, width.div_ceil(256))?,
                        sums_high: Shared::allocate(rows, width / 16)?,
                        sums_low: Shared::allocate(rows, width / 16)?,
                    })
                }
                BufferKind::Q16 { heads, head_len } => {
                    let (heads, head_len) = (heads as usize, head_len as usize);
                    Data::Q16 {
                        heads,
                        head_len,
                        high: Shared::allocate(rows, heads * head_len)?,
                        low: Shared::allocate(rows, heads * head_len)?,
                        scales: Shared::allocate(rows, heads)?,
                    }
                }
            })
        });
        Ok(Self(data.collect::<Result<_, DeviceError>>()?))
    }

    /// A buffer.
    pub fn get(&self, id: BufferId) -> &Data {
        &self.0[id.index()]
    }

    /// Row of an f32 buffer, to read.
    ///
    /// # Safety
    /// The step does not write this buffer.
    pub unsafe fn row(&self, id: BufferId, row: usize) -> &[f32] {
        match self.get(id) {
            // SAFETY: the caller's promise.
            Data::F32 { width, values } => unsafe { values.slice(row * width, *width) },
            _ => panic!("the plan reads buffer {} as f32", id.0),
        }
    }

    /// Columns of a row of an f32 buffer, to write.
    ///
    /// # Safety
    /// No other task of the step uses them.
    #[allow(clippy::mut_from_ref, reason = "see the module")]
    pub unsafe fn columns_mut(&self, id: BufferId, row: usize, at: usize, len: usize) -> &mut [f32] {
        match self.get(id) {
            Data::F32 { width, values } => {
                assert!(at + len <= *width, "columns {at}..{} of {width}", at + len);
                // SAFETY: the caller's promise.
                unsafe { values.slice_mut(row * width + at, len) }
            }
            _ => panic!("the plan writes buffer {} as f32", id.0),
        }
    }

    /// Row of an f32 buffer, to write.
    ///
    /// # Safety
    /// No other task of the step uses it.
    #[allow(clippy::mut_from_ref, reason = "see the module")]
    pub unsafe fn row_mut(&self, id: BufferId, row: usize) -> &mut [f32] {
        match self.get(id) {
            // SAFETY: the caller's promise.
            Data::F32 { width, .. } => unsafe { self.columns_mut(id, row, 0, *width) },
            _ => panic!("the plan writes buffer {} as f32", id.0),
        }
    }

    /// Quantised rows as the linear kernel reads them.
    pub fn activations(&self, id: BufferId) -> Activations {
        match self.get(id) {
            Data::A16(rows) => Activations {
                high: rows.high.as_ptr(),
                low: rows.low.as_ptr(),
                scales: rows.scales.as_ptr(),
                sums_high: rows.sums_high.as_ptr(),
                sums_low: rows.sums_low.as_ptr(),
                width: rows.width,
            },
            _ => panic!("the plan multiplies with buffer {}, which is not A16", id.0),
        }
    }

    /// Row of an A16 buffer, to write.
    ///
    /// # Safety
    /// No other task of the step uses it.
    pub unsafe fn a16_mut(&self, id: BufferId, row: usize) -> A16Mut<'_> {
        match self.get(id) {
            // SAFETY: the caller's promise.
            Data::A16(rows) => unsafe {
                let (width, superblocks, sums) = (rows.width, rows.width.div_ceil(256), rows.width / 16);
                A16Mut {
                    high: rows.high.slice_mut(row * width, width),
                    low: rows.low.slice_mut(row * width, width),
                    scales: rows.scales.slice_mut(row * superblocks, superblocks),
                    sums_high: rows.sums_high.slice_mut(row * sums, sums),
                    sums_low: rows.sums_low.slice_mut(row * sums, sums),
                }
            },
            _ => panic!("the plan quantises into buffer {}", id.0),
        }
    }
}
