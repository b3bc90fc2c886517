//! Calling the host.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::status::unisonic_status;

/// For callbacks: go on.
pub const UNISONIC_CONTINUE: i32 = 0;
/// For callbacks: enough, which is no error.
pub const UNISONIC_STOP: i32 = 1;

/// What a callback is given back; used from whatever thread runs it.
#[derive(Clone, Copy)]
pub(crate) struct User(pub *mut c_void);

// SAFETY: the library does not look at it. That callbacks may come from other threads is said where they are
// taken.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// How a callback says to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
    /// What it returned.
    Failed(i32),
}

impl Flow {
    pub(crate) fn of(said: i32) -> Self {
        match said {
            UNISONIC_CONTINUE => Self::Continue,
            UNISONIC_STOP => Self::Stop,
            other => Self::Failed(other),
        }
    }

    /// An error if it does not go on, for calls that have no other end.
    pub(crate) fn check(self, callback: &str) -> Result {
        let cancelled = unisonic_status::Cancelled;
        match self {
            Self::Continue => Ok(()),
            Self::Stop => Err(Error::new(cancelled, format!("the callback `{callback}` said to stop"))),
            Self::Failed(said) => Err(failed(callback, said)),
        }
    }
}

/// A callback that could not do its work.
pub(crate) fn failed(callback: &str, said: i32) -> Error {
    let message = format!("the callback `{callback}` failed: it returned {said}");
    Error::new(unisonic_status::CallbackFailed, message)
}
