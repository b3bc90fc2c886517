//! Locks: what a call does where another thread has a value, or left it in the middle of a change.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::error::{Error, Result};
use crate::status::unisonic_status;

/// Waits for a value. An error if a panic left it half way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| broken())
}

/// A value that nobody has now; `busy` says what to do if somebody does. As of [`lock`] after a panic.
pub(crate) fn try_lock<'a, T>(mutex: &'a Mutex<T>, busy: &str) -> Result<MutexGuard<'a, T>> {
    mutex.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Error::new(unisonic_status::Busy, busy),
        TryLockError::Poisoned(_) => broken(),
    })
}

/// Waits for a value that is whole at any time, so that no panic leaves it half way.
pub(crate) fn lock_whole<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a value is after a panic of whoever had it.
pub(crate) fn broken() -> Error {
    let message = "an earlier call ended with a fault of the library while it used this handle; free it and make a new one";
    Error::new(unisonic_status::Internal, message)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn who_has_a_value_keeps_others_busy_only_while_he_has_it() {
        let mutex = Mutex::new(1);
        let had = lock(&mutex).unwrap();
        let error = try_lock(&mutex, "wait").unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (unisonic_status::Busy, "wait"));
        drop(had);
        assert_eq!(*try_lock(&mutex, "wait").unwrap(), 1);
    }

    #[test]
    fn what_a_panic_left_is_broken_and_never_busy() {
        let mutex = Mutex::new(1);
        let panics = || {
            let _had = mutex.lock();
            panic!("on purpose");
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        for _ in 0..2 {
            assert_eq!(lock(&mutex).unwrap_err().status, unisonic_status::Internal);
            assert_eq!(try_lock(&mutex, "wait").unwrap_err().status, unisonic_status::Internal);
        }
        assert_eq!(*lock_whole(&mutex), 1);
    }
}
