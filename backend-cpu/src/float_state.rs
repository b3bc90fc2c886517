//! The host's floating-point mode: set to the default while we compute, put back afterwards.
//!
//! A program that embeds us may have set flush-to-zero or another rounding mode in the calling thread, and new threads
//! inherit it. The arithmetic needs round-to-nearest (docs/numerics.md "Pitfalls").

/// Holds the default floating-point mode of this thread; dropping it restores what was set before.
pub struct DefaultFloatState {
    before: State,
}

impl DefaultFloatState {
    /// Sets the default mode: round to nearest even, subnormals kept, no traps.
    pub fn enter() -> Self {
        let before = read();
        write(DEFAULT);
        Self { before }
    }

    /// What was set before.
    pub fn host(&self) -> HostFloatState {
        HostFloatState(self.before)
    }
}

impl Drop for DefaultFloatState {
    fn drop(&mut self) {
        write(self.before);
    }
}

/// The mode of a program that called us: what it expects where we call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFloatState(State);

impl HostFloatState {
    /// Runs `f` in this mode; what is set now is set again afterwards.
    pub fn run<T>(self, f: impl FnOnce() -> T) -> T {
        let _now = DefaultFloatState { before: read() };
        write(self.0);
        f()
    }
}

#[cfg(target_arch = "x86_64")]
type State = u32;
#[cfg(target_arch = "x86_64")]
const DEFAULT: State = 0x1F80;

#[cfg(target_arch = "x86_64")]
fn read() -> State {
    let mut state = 0_u32;
    // SAFETY: stores MXCSR, which every x86-64 processor has, into a local.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut state, options(nostack, preserves_flags)) };
    state
}

#[cfg(target_arch = "x86_64")]
fn write(state: State) {
    // SAFETY: loads MXCSR with a value that has no reserved bit: the default, or what `read` found. Code in between is
    // compiled for the default mode, which is the one that is set while it runs.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &state, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
type State = u64;
#[cfg(target_arch = "aarch64")]
const DEFAULT: State = 0;

#[cfg(target_arch = "aarch64")]
fn read() -> State {
    let state: u64;
    // SAFETY: reads FPCR, which every aarch64 processor has.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) state, options(nomem, nostack, preserves_flags)) };
    state
}

#[cfg(target_arch = "aarch64")]
fn write(state: State) {
    // SAFETY: FPCR gets the default or what `read` found.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) state, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type State = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: State = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read() -> State {}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write(_: State) {}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod tests {
    use super::*;

    /// Subnormals flushed, rounding down.
    #[cfg(target_arch = "x86_64")]
    const OTHER: State = 0x1F80 | 0x8040 | 0x2000;
    #[cfg(target_arch = "aarch64")]
    const OTHER: State = 1 << 24 | 0b10 << 22;

    /// All but the flags of exceptions that have happened.
    #[cfg(target_arch = "x86_64")]
    const MODE: State = 0xFFC0;
    #[cfg(target_arch = "aarch64")]
    const MODE: State = State::MAX;

    /// Runs `f` with the thread rounding down and flushing subnormals, as a careless host might.
    pub(crate) fn rounding_down<T>(f: impl FnOnce() -> T) -> T {
        let before = read();
        write(OTHER);
        let result = f();
        write(before);
        result
    }

    #[test]
    fn the_mode_is_default_inside_and_restored_outside() {
        let (inside, after) = rounding_down(|| {
            let inside = {
                let _state = DefaultFloatState::enter();
                read()
            };
            (inside, read())
        });
        assert_eq!(inside & MODE, DEFAULT & MODE);
        assert_eq!(after & MODE, OTHER & MODE);
    }

    #[test]
    fn the_host_has_its_mode_where_it_is_called() {
        let (called, again) = rounding_down(|| {
            let state = DefaultFloatState::enter();
            (state.host().run(read), read())
        });
        assert_eq!(called & MODE, OTHER & MODE);
        assert_eq!(again & MODE, DEFAULT & MODE);
    }
}
