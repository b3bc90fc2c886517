//! Memory that can be refused: every large allocation of the devices.

use std::cell::UnsafeCell;
use std::ops::Range;

use memmap2::{MmapOptions, MmapRaw};
use unisonic_core::plan::DeviceError;

/// Refuses what needs more memory than the system has to give. Systems grant mappings that they cannot keep, and end the
/// process that writes to them; so what will be written for sure is compared beforehand, where the system says what it has.
pub fn check_available(what: &str, needed_bytes: u64) -> Result<(), DeviceError> {
    match available_bytes() {
        Some(available_bytes) if needed_bytes > available_bytes => {
            Err(DeviceError::OutOfMemory { device: "cpu".into(), what: what.into(), needed_bytes })
        }
        _ => Ok(()),
    }
}

/// `MemAvailable` of Linux; none elsewhere.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `rows * width` zeros; an error instead of an abort where they do not fit.
pub fn allocate<T: Clone + Default>(what: &str, rows: usize, width: usize) -> Result<Vec<T>, DeviceError> {
    let out_of_memory =
        |needed_bytes| DeviceError::OutOfMemory { device: "cpu".into(), what: what.into(), needed_bytes };
    let len = rows.checked_mul(width).ok_or_else(|| out_of_memory(u64::MAX))?;
    // Asked for and given back at once: `vec!` below would abort.
    let mut probe: Vec<T> = Vec::new();
    probe
        .try_reserve_exact(len)
        .map_err(|_| out_of_memory((len as u64).saturating_mul(size_of::<T>() as u64)))?;
    drop(probe);
    Ok(vec![T::default(); len])
}

/// Zeroed memory for weights and caches, from the system itself: what is never written costs nothing, and pages can be
/// large. It starts at a page.
///
/// Parts of it can be written through [`Lines::as_ptr`] while others are read: it is cells, not values.
#[derive(Debug)]
pub struct Lines {
    map: MmapRaw,
    len_bytes: usize,
}

impl Lines {
    /// An error where the memory cannot be had, instead of an abort; `what` is for its message.
    pub fn zeroed(what: &str, len_bytes: usize) -> Result<Self, DeviceError> {
        // No mapping is empty.
        let map =
            MmapOptions::new().len(len_bytes.max(1)).map_anon().map_err(|_| DeviceError::OutOfMemory {
                device: "cpu".into(),
                what: what.into(),
                needed_bytes: len_bytes as u64,
            })?;
        Ok(Self { map: map.into(), len_bytes })
    }

    /// Asks for large pages, for memory that is all written: fewer pages to fault in, fewer translations to miss.
    pub fn in_large_pages(self) -> Self {
        #[cfg(target_os = "linux")]
        // Advice: a system without large pages says no, and nothing else changes.
        let _ = self.map.advise(memmap2::Advice::HugePage);
        self
    }

    /// Some of the bytes, to read.
    ///
    /// # Safety
    /// No thread writes them meanwhile.
    pub unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        let len = range.len();
        // SAFETY: `as_ptr` has seen that the bytes are in the mapping, and the caller promises that they are not written.
        unsafe { std::slice::from_raw_parts(self.as_ptr(range), len) }
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is at least this long, and exclusive access to it is exclusive access to its bytes.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr(), self.len_bytes) }
    }

    /// The first of some bytes, to write what nobody else uses meanwhile.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn as_ptr(&self, range: Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.len_bytes,
            "bytes {range:?} of {}",
            self.len_bytes
        );
        // SAFETY: the offset is inside the mapping.
        unsafe { self.map.as_mut_ptr().add(range.start) }
    }
}

/// The same memory, each value in a cell of its own.
pub fn into_cells<T>(values: Vec<T>) -> Vec<UnsafeCell<T>> {
    let mut values = std::mem::ManuallyDrop::new(values);
    // SAFETY: UnsafeCell<T> has the layout of T, and the parts come from a Vec that is not used any more.
    unsafe { Vec::from_raw_parts(values.as_mut_ptr().cast(), values.len(), values.capacity()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_is_is_refused() {
        assert!(check_available("a little", 1).is_ok());
        if available_bytes().is_some() {
            let error = check_available("the model", 1 << 60).unwrap_err().to_string();
            assert!(error.contains("the model needs 1152921504606846976 bytes"), "{error}");
        }
    }
}
