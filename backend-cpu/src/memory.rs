//! Memory that can be refused: every large allocation of the devices.

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
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    start: usize,
    len_bytes: usize,
}

const LINE: usize = 64;

impl Lines {
    /// An error where the memory cannot be had, instead of an abort; `what` is for its message.
    pub fn zeroed(what: &str, len_bytes: usize) -> Result<Self, DeviceError> {
        let bytes: Vec<u8> = allocate(what, 1, len_bytes.saturating_add(LINE))?;
        let start = bytes.as_ptr().align_offset(LINE);
        Ok(Self { bytes, start, len_bytes })
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len_bytes]
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len_bytes]
    }

    /// Number of bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes_mut().as_mut_ptr()
    }
}
