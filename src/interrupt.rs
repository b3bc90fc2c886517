//! Ctrl-C: ends a generation after the token at hand, and anything else at once.

use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a process that was interrupted (128 + SIGINT), as shells have it.
pub const EXIT_CODE: u8 = 130;

static GENERATING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. A second Ctrl-C, or one before the first token, ends the process.
pub fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if !GENERATING.load(Ordering::SeqCst) || REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_CODE.into());
        }
    })?;
    Ok(())
}

/// From now on the first Ctrl-C only asks: see [`requested`].
pub fn generating() {
    GENERATING.store(true, Ordering::SeqCst);
}

/// Whether an end was asked for.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
