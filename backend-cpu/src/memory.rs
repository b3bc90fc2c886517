//! Memory that can be refused: every large allocation of the devices.

use std::cell::UnsafeCell;
use std::ops::Range;

use unisonic_core::plan::DeviceError;

/// `rows * width` zeros; an error instead of an abort where they do not fit.
pub fn allocate<T: Clone + Default>(what: &str, rows: usize, width: usize) -> Result<Vec<T>, DeviceError> {
    let out_of_memory =
        |needed_bytes| DeviceError::OutOfMemory { device: "cpu".into(), what: what.into(), needed_bytes };
    let len = rows.checked_mul(width).ok_or_else(|| out_of_memory(u64::MAX))?;
    // Asked for and given back at once: `vec!` below would abort, but it gets zeroed pages from the system lazily, so
    // that KV pages which are never written cost nothing.
    let mut probe: Vec<T> = Vec::new();
    probe
        .try_reserve_exact(len)
        .map_err(|_| out_of_memory((len as u64).saturating_mul(size_of::<T>() as u64)))?;
    drop(probe);
    Ok(vec![T::default(); len])
}

/// Zeroed memory that starts at a cache line. The system hands it out lazily: what is never written costs nothing.
///
/// Parts of it can be written through [`Lines::as_ptr`] while others are read: it is cells, not values.
#[derive(Debug)]
pub struct Lines {
    cells: Vec<UnsafeCell<u8>>,
    start: usize,
    len_bytes: usize,
}

// SAFETY: what is shared is written through raw pointers only, whose users promise that nobody else uses those bytes.
unsafe impl Sync for Lines {}

const LINE: usize = 64;

impl Lines {
    /// An error where the memory cannot be had, instead of an abort; `what` is for its message.
    pub fn zeroed(what: &str, len_bytes: usize) -> Result<Self, DeviceError> {
        let bytes: Vec<u8> = allocate(what, 1, len_bytes.saturating_add(LINE))?;
        let start = bytes.as_ptr().align_offset(LINE);
        Ok(Self { cells: into_cells(bytes), start, len_bytes })
    }

    /// Some of the bytes, to read.
    ///
    /// # Safety
    /// No thread writes them meanwhile.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let cells = &self.cells[self.start..][..self.len_bytes][range];
        // SAFETY: the cells are in bounds, and the caller promises that they are not written.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let cells = &mut self.cells[self.start..][..self.len_bytes];
        // SAFETY: exclusive access to the cells is exclusive access to the bytes in them.
        unsafe { std::slice::from_raw_parts_mut(cells.as_mut_ptr().cast(), cells.len()) }
    }

    /// The first of some bytes, to write what nobody else uses meanwhile.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn as_ptr(&self, range: Range<usize>) -> *mut u8 {
        UnsafeCell::raw_get(self.cells[self.start..][..self.len_bytes][range].as_ptr())
    }
}

/// The same memory, each value in a cell of its own.
pub fn into_cells<T>(values: Vec<T>) -> Vec<UnsafeCell<T>> {
    let mut values = std::mem::ManuallyDrop::new(values);
    // SAFETY: UnsafeCell<T> has the layout of T, and the parts come from a Vec that is not used any more.
    unsafe { Vec::from_raw_parts(values.as_mut_ptr().cast(), values.len(), values.capacity()) }
}
