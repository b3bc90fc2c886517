//! Runs code with subnormals flushed to zero, as a host program might have left the thread.
//!
//! This is the only unsafe code of the crate's tests: no safe interface sets the floating-point control register.

use std::hint::black_box;

/// Runs `f` with flush-to-zero and denormals-are-zero set in this thread, and restores the thread's state.
#[inline(never)]
pub fn with_flush_to_zero<R>(f: impl FnOnce() -> R) -> R {
    let before = control::read();
    let restore = Restore(before);
    control::write(before | control::FLUSH);
    assert!(flushes(), "the processor did not take the flush-to-zero bits");
    let result = black_box(f)();
    drop(restore);
    assert!(!flushes(), "the thread's state was not restored");
    result
}

struct Restore(control::Word);

impl Drop for Restore {
    fn drop(&mut self) {
        control::write(self.0);
    }
}

/// Whether this thread makes a product of 2^-140 zero and reads a subnormal operand as zero.
#[inline(never)]
fn flushes() -> bool {
    let product = black_box(f32::from_bits(27 << 23)) * black_box(f32::from_bits(87 << 23));
    let operand = black_box(f32::from_bits(1)) * black_box(f32::from_bits(227 << 23));
    product.to_bits() == 0 && operand.to_bits() == 0
}

#[cfg(target_arch = "x86_64")]
mod control {
    pub type Word = u32;
    /// FTZ and DAZ.
    pub const FLUSH: Word = 0x8040;

    pub fn read() -> Word {
        let mut word: Word = 0;
        // SAFETY: stmxcsr stores MXCSR into the four bytes it is given, which are ours and aligned.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word) };
        word
    }

    pub fn write(word: Word) {
        // SAFETY: ldmxcsr reads four bytes that are ours. The word is one that the processor gave us, with at most FTZ
        // and DAZ added: exceptions stay masked and the rounding mode stays nearest.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word) };
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    pub type Word = u64;
    /// FZ: results and operands alike.
    pub const FLUSH: Word = 1 << 24;

    pub fn read() -> Word {
        let word: Word;
        // SAFETY: reads the thread's floating-point control register into a general register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word) };
        word
    }

    pub fn write(word: Word) {
        // SAFETY: the word is one that the processor gave us, with at most FZ added: exceptions stay masked and the
        // rounding mode stays nearest.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word) };
    }
}
