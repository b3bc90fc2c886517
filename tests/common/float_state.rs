//! Flush-to-zero in the calling thread, as a host program may have set it.

use std::hint::black_box;

/// Runs `work` with subnormal results and operands flushed to zero, and restores the state after it. Says whether
/// flushing took effect.
pub fn flushing<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let restore = Restore(read());
    write(restore.0 | FLUSH);
    // Both black boxes keep the product between the two writes of the state.
    let flushes = black_box(black_box(f32::MIN_POSITIVE) * 0.5).to_bits() == 0;
    let result = work();
    drop(restore);
    (result, flushes)
}

/// Puts the state back even if the work panics.
struct Restore(State);

impl Drop for Restore {
    fn drop(&mut self) {
        write(self.0);
    }
}

#[cfg(target_arch = "x86_64")]
use x86_64::{FLUSH, State, read, write};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::asm;

    pub type State = u32;

    /// FTZ (bit 15) and DAZ (bit 6) of MXCSR.
    pub const FLUSH: State = 1 << 15 | 1 << 6;

    pub fn read() -> State {
        let mut state = 0;
        // SAFETY: STMXCSR writes four bytes to the address of a live u32.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack, preserves_flags)) };
        state
    }

    pub fn write(state: State) {
        // SAFETY: LDMXCSR reads four bytes from a live u32. Only bits read before, FTZ and DAZ are set: reserved bits,
        // which would fault, stay clear. Between this and the restoring call the code that runs uses no float whose
        // subnormal treatment the compiler relies on beyond what the test is about.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, preserves_flags, readonly))
        };
    }
}

#[cfg(target_arch = "aarch64")]
use aarch64::{FLUSH, State, read, write};

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;

    pub type State = u64;

    /// FZ (bit 24) of FPCR.
    pub const FLUSH: State = 1 << 24;

    pub fn read() -> State {
        let state;
        // SAFETY: reading FPCR has no effect.
        unsafe { asm!("mrs {}, fpcr", out(reg) state, options(nomem, nostack, preserves_flags)) };
        state
    }

    pub fn write(state: State) {
        // SAFETY: only bits read before and FZ are set; see the x86-64 twin for what runs in between.
        unsafe { asm!("msr fpcr, {}", in(reg) state, options(nomem, nostack, preserves_flags)) };
    }
}
