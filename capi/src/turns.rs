//! One at a time: who runs a model, in the order in which they come to it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::status::unisonic_status;

/// How often who waits looks whether it was told to stop.
const LOOK: Duration = Duration::from_millis(10);

/// A value that one thread has at a time. Waiting can be cancelled, and a thread that has it already (in a callback) is told so
/// instead of waiting for itself.
pub(crate) struct Turns<T> {
    owner: Mutex<Option<ThreadId>>,
    free: Condvar,
    value: Mutex<T>,
}

/// The value, until it is dropped.
pub(crate) struct Turn<'a, T> {
    /// Taken before the owner is.
    value: Option<MutexGuard<'a, T>>,
    turns: &'a Turns<T>,
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { owner: Mutex::new(None), free: Condvar::new(), value: Mutex::new(value) }
    }

    /// Waits for the value.
    pub(crate) fn take(&self, cancel: Option<&Cancel>) -> Result<Turn<'_, T>> {
        let me = thread::current().id();
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *owner {
                None => break,
                Some(owner) if owner == me => {
                    let message = "the model runs the call that this callback came from; call it when that has returned";
                    return Err(Error::new(unisonic_status::Busy, message));
                }
                Some(_) => {}
            }
            if cancel.is_some_and(Cancel::is_requested) {
                let message = "cancelled while another thread ran the model";
                return Err(Error::new(unisonic_status::Cancelled, message));
            }
            let waited = self.free.wait_timeout(owner, LOOK);
            owner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Ok(value) = self.value.lock() else { return Err(broken()) };
        *owner = Some(me);
        Ok(Turn { value: Some(value), turns: self })
    }
}

/// What a value is after a panic of whoever had it.
pub(crate) fn broken() -> Error {
    let message = "an earlier call ended with a fault of the library while it used this handle; free it and make a new one";
    Error::new(unisonic_status::Internal, message)
}

impl<T> std::ops::Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("it is there until the turn is dropped")
    }
}

impl<T> std::ops::DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("it is there until the turn is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        *self.turns.owner.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.turns.free.notify_one();
    }
}
