//! Ending a call from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::entry::entry;
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::options;
use crate::status::unisonic_status;

/// A switch that ends the calls that were given it. It may be used from any thread, and from callbacks, while
/// they run; not from a signal handler.
pub struct unisonic_cancel {
    _opaque: (),
}

/// What is behind a switch.
#[derive(Default)]
pub(crate) struct Cancel(AtomicBool);

impl Object for Cancel {
    type Handle = unisonic_cancel;
    const NAME: &'static str = "cancel switch";
}

impl Cancel {
    /// The switch that options name, if they do.
    ///
    /// # Safety
    /// As of [`handle::get`].
    pub(crate) unsafe fn of(switch: *mut unisonic_cancel) -> Result<Option<Arc<Self>>> {
        match switch.is_null() {
            true => Ok(None),
            // SAFETY: the caller says so.
            false => unsafe { handle::get::<Self>(switch) }.map(|found| Some(found.0)),
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks for the end.
    #[cfg(test)]
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error if someone asked for the end.
    pub(crate) fn check(cancel: Option<&Self>) -> Result {
        match cancel.is_some_and(Self::is_requested) {
            true => Err(Error::new(unisonic_status::Cancelled, "cancelled by unisonic_cancel_request")),
            false => Ok(()),
        }
    }
}

/// A switch that is off. Free it with unisonic_cancel_free; calls that still have it keep it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_cancel_new(
    library: *mut unisonic_library,
    cancel: *mut *mut unisonic_cancel,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let cancel = options::out(cancel, "cancel")?;
            let library = entry.object::<Library>(library)?;
            handle::write(cancel, &library, Arc::new(Cancel::default()))
        })
    }
}

/// Switches it on: calls that have it end at the next step of the model, and so do those that get it until it
/// is reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_cancel_request(
    cancel: *mut unisonic_cancel,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { set(cancel, true, error) }
}

/// Switches it off, for the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_cancel_reset(
    cancel: *mut unisonic_cancel,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { set(cancel, false, error) }
}

unsafe fn set(
    cancel: *mut unisonic_cancel,
    requested: bool,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            entry.object::<Cancel>(cancel)?.0.store(requested, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// Frees a switch; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_cancel_free(cancel: *mut unisonic_cancel) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Cancel>(cancel) }
}
