//! Device memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;
use unisonic_core::kir::abi::{ALIGN_BYTES, READABLE_LEN_BYTES};
use unisonic_gpu::machine::MachineError;

use super::context::Context;
use super::stream::Stream;

/// How much a machine has taken, and how much it may.
pub struct Account {
    limit_bytes: u64,
    taken_bytes: AtomicU64,
}

impl Account {
    /// No limit is the limit of the device.
    pub fn new(limit_bytes: Option<u64>) -> Arc<Self> {
        Arc::new(Self { limit_bytes: limit_bytes.unwrap_or(u64::MAX), taken_bytes: AtomicU64::new(0) })
    }

    /// What is left.
    pub fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.taken_bytes.load(Ordering::Relaxed))
    }

    /// Takes bytes, if they are left.
    fn take(&self, len_bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(len_bytes).filter(|&taken| taken <= self.limit_bytes);
        self.taken_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, len_bytes: u64) {
        self.taken_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
    }
}

/// A handle to device memory.
#[derive(Clone)]
pub struct Buffer(Arc<Allocation>);

struct Allocation {
    /// What may still copy to it.
    stream: Arc<Stream>,
    account: Arc<Account>,
    address: u64,
    len_bytes: u64,
}

impl Buffer {
    /// As [`unisonic_gpu::machine::Machine::allocate`]. What is in it is not defined. All that uses it goes through the stream.
    pub fn new(
        stream: &Arc<Stream>,
        account: &Arc<Account>,
        len_bytes: u64,
        what: &str,
    ) -> Result<Self, MachineError> {
        let context = stream.context();
        context.enter()?;
        let out_of_memory = || MachineError::OutOfMemory {
            what: what.to_owned(),
            needed_bytes: len_bytes,
            free_bytes: free_bytes(context, account),
        };
        // Readable up to the next multiple; the driver has no empty allocations.
        let padded =
            len_bytes.max(1).checked_next_multiple_of(READABLE_LEN_BYTES).ok_or_else(out_of_memory)?;
        let size = usize::try_from(padded).map_err(|_| out_of_memory())?;
        if !account.take(padded) {
            return Err(out_of_memory());
        }
        let mut address = 0;
        // SAFETY: the context is current; the address is written to a place of its type.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, size) };
        let checked = context.check("cuMemAlloc", result);
        if checked.is_err() {
            account.give_back(padded);
        }
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(out_of_memory());
        }
        checked?;
        let allocation =
            Allocation { stream: stream.clone(), account: account.clone(), address, len_bytes: padded };
        if !address.is_multiple_of(ALIGN_BYTES) {
            let reason = format!("the address {address:#x} is not a multiple of {ALIGN_BYTES}");
            return Err(MachineError::Driver { call: "cuMemAlloc".to_owned(), reason });
        }
        Ok(Self(Arc::new(allocation)))
    }

    /// Where a part of it begins; an error if there is no such part or it is a machine's of another context. `what` is for
    /// messages.
    pub fn part(
        &self,
        context: &Arc<Context>,
        offset_bytes: u64,
        len_bytes: u64,
        what: &str,
    ) -> Result<u64, MachineError> {
        let Allocation { stream, address, len_bytes: own_len_bytes, .. } = &*self.0;
        let wrong = |reason: String| Err(MachineError::Driver { call: what.to_owned(), reason });
        if !Arc::ptr_eq(stream.context(), context) {
            return wrong("the buffer is another machine's".to_owned());
        }
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= *own_len_bytes => Ok(address + offset_bytes),
            _ => wrong(format!(
                "{len_bytes} bytes from {offset_bytes} on are not in a buffer of {own_len_bytes} bytes"
            )),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // What might still copy to it ends first.
        if self.stream.synchronize().is_ok() {
            // SAFETY: it was allocated once, no handle is left, and nothing in the stream uses it any more.
            self.stream.context().give_back("cuMemFree", || unsafe { sys::cuMemFree_v2(self.address) });
        }
        self.account.give_back(self.len_bytes);
    }
}

/// Bytes of device memory that can still be had.
pub fn free_bytes(context: &Context, account: &Account) -> Option<u64> {
    context.enter().ok()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the context is current; both are written to places of their type.
    let result = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    context.check("cuMemGetInfo", result).ok()?;
    Some((free as u64).min(account.free_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_holds_its_limit() {
        let account = Account::new(Some(100));
        assert!(account.take(60));
        assert!(!account.take(41));
        assert!(!account.take(u64::MAX));
        assert_eq!(account.free_bytes(), 40);
        assert!(account.take(40));
        account.give_back(60);
        assert_eq!(account.free_bytes(), 60);
        assert!(Account::new(None).take(1 << 60));
    }
}
