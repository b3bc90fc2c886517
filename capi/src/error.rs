//! Errors: inside a status and a message, outside an object that the caller frees.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::status::unisonic_status;

/// Why a call failed. It belongs to no library handle; free it with unisonic_error_free.
pub struct unisonic_error {
    /// Tells an error from something else, and from one that was freed.
    magic: AtomicU64,
    status: unisonic_status,
    message: CString,
}

const MAGIC: u64 = 0x756e_6973_6f6e_0001;

/// Why a function cannot do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub status: unisonic_status,
    pub message: String,
}

/// Of everything between the functions and the engine.
pub(crate) type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: unisonic_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// An argument that is not what it must be.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(unisonic_status::InvalidArgument, message)
    }

    /// Writes the error as an object that the caller frees, if one is wanted.
    ///
    /// # Safety
    /// `to` is NULL or may be written.
    pub(crate) unsafe fn write(self, to: *mut *mut unisonic_error) -> unisonic_status {
        let status = self.status;
        if !to.is_null() {
            let message = CString::new(self.message.replace('\0', "\u{fffd}")).unwrap_or_default();
            let error = unisonic_error { magic: AtomicU64::new(MAGIC), status, message };
            // SAFETY: the caller says so.
            unsafe { to.write(Box::into_raw(Box::new(error))) };
        }
        status
    }
}

/// A C string without its end.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

unsafe fn error<'a>(error: *const unisonic_error) -> Option<&'a unisonic_error> {
    if error.is_null() || !error.is_aligned() {
        return None;
    }
    // SAFETY: an error that was not freed, as the caller says; the mark tells some of those that are none.
    let error = unsafe { &*error };
    (error.magic.load(Ordering::Acquire) == MAGIC).then_some(error)
}

/// The status that came with the error; UNISONIC_STATUS_OK for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_error_status(error: *const unisonic_error) -> unisonic_status {
    if error.is_null() {
        return unisonic_status::Ok;
    }
    // SAFETY: as the header asks.
    unsafe { self::error(error) }.map_or(unisonic_status::InvalidHandle, |error| error.status)
}

/// What happened, what was expected, what was found and what to do: UTF-8 with a NUL behind it, until the
/// error is freed. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_error_message(error: *const unisonic_error) -> *const c_char {
    // SAFETY: as the header asks.
    unsafe { self::error(error) }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Bytes of unisonic_error_message without the NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_error_message_len(error: *const unisonic_error) -> usize {
    // SAFETY: as the header asks.
    unsafe { self::error(error) }.map_or(0, |error| error.message.as_bytes().len())
}

/// Frees an error; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_error_free(error: *mut unisonic_error) {
    // SAFETY: as the header asks.
    if let Some(known) = unsafe { self::error(error) } {
        known.magic.store(0, Ordering::Release);
        // SAFETY: it came from `Box::into_raw` in `Error::write`, and is freed once.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// Nothing went wrong so far.
///
/// # Safety
/// `to` is NULL or may be written.
pub(crate) unsafe fn clear(to: *mut *mut unisonic_error) {
    if !to.is_null() {
        // SAFETY: the caller says so.
        unsafe { to.write(ptr::null_mut()) };
    }
}
