//! Ctrl-C: ends at once, or, from [`defer_first_interrupt`] on, when the work at hand is done.

use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that was interrupted (128 + SIGINT), as shells have it.
pub const EXIT_CODE: u8 = 130;

static DEFERS_FIRST: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. A second Ctrl-C, or one before [`defer_first_interrupt`], ends the process.
pub fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if !DEFERS_FIRST.load(Ordering::SeqCst) || REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_CODE.into());
        }
    })?;
    Ok(())
}

/// From now on the first Ctrl-C only asks: whoever works looks at [`requested`] and ends in an orderly way.
pub fn defer_first_interrupt() {
    DEFERS_FIRST.store(true, Ordering::SeqCst);
}

/// Whether an end was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// What was asked for has been done: the next Ctrl-C ends the process at once again.
pub fn settle() {
    DEFERS_FIRST.store(false, Ordering::SeqCst);
    REQUESTED.store(false, Ordering::SeqCst);
}
