//! What every function of the ABI has around it.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Once};

use tracing::subscriber::DefaultGuard;
use unisonic_devices::float_state::{DefaultFloatState, HostFloatState};

use crate::error::{self, Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::library::Library;
use crate::status::unisonic_status;

thread_local! {
    /// Calls that are under way in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The floating-point mode of the host in this thread, while a call is under way.
    static HOST: Cell<Option<HostFloatState>> = const { Cell::new(None) };
    /// Whether the thread is in a log callback.
    static IN_LOG: Cell<bool> = const { Cell::new(false) };
    /// What the last panic said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A call under way.
pub(crate) struct Entry {
    log: RefCell<Option<DefaultGuard>>,
}

/// Runs the body of a function: its error becomes a status and an object, and so does a panic. Meanwhile the
/// thread computes in the default floating-point mode.
///
/// # Safety `error` is NULL or may be written.
pub(crate) unsafe fn entry(
    error: *mut *mut unisonic_error,
    body: impl FnOnce(&Entry) -> Result,
) -> unisonic_status {
    catch_panics_quietly();
    // SAFETY: the caller says so.
    unsafe { error::clear(error) };
    let _call = Call::begin();
    let entry = Entry { log: RefCell::new(None) };
    let result = catch_unwind(AssertUnwindSafe(|| body(&entry)));
    let result = result.unwrap_or_else(|payload| {
        // What a payload does when it is dropped is not to be known.
        std::mem::forget(payload);
        Err(internal())
    });
    match result {
        Ok(()) => unisonic_status::Ok,
        // SAFETY: the caller says so.
        Err(found) => unsafe { found.write(error) },
    }
}

/// Runs the body of a function that cannot tell an error, and has an answer instead.
pub(crate) fn answer<T>(otherwise: T, body: impl FnOnce(&Entry) -> Result<T>) -> T {
    let mut found = otherwise;
    // SAFETY: NULL.
    unsafe {
        entry(std::ptr::null_mut(), |entry| {
            found = body(entry)?;
            Ok(())
        })
    };
    found
}

impl Entry {
    /// The object of a handle; what is logged from here on is its library's.
    ///
    /// # Safety The handle is NULL or one that this library gave out, freed or not, or points to memory that
    /// can be read.
    pub(crate) unsafe fn object<T: Object>(&self, handle: *const T::Handle) -> Result<Arc<T>> {
        // SAFETY: the caller says so.
        let (object, library) = unsafe { handle::get::<T>(handle) }?;
        self.log_to(&library);
        Ok(object)
    }

    /// As [`Entry::object`], with the library handle that it belongs to.
    ///
    /// # Safety
    /// As of [`Entry::object`].
    pub(crate) unsafe fn object_of<T: Object>(
        &self,
        handle: *const T::Handle,
    ) -> Result<(Arc<T>, Arc<Library>)> {
        // SAFETY: the caller says so.
        let found = unsafe { handle::get::<T>(handle) }?;
        self.log_to(&found.1);
        Ok(found)
    }

    /// Sends what is logged in this thread to the library's callback until the call ends. Within a log callback nothing is logged:
    /// tracing drops events that come while it hands one on, and does not let the subscriber be changed until it has.
    pub(crate) fn log_to(&self, library: &Library) {
        if IN_LOG.get() {
            return;
        }
        // The one before is put back first.
        self.log.borrow_mut().take();
        *self.log.borrow_mut() = Some(tracing::dispatcher::set_default(library.dispatch()));
    }
}

/// Runs a callback in the floating-point mode that the host had when it called us.
pub(crate) fn as_host<T>(callback: impl FnOnce() -> T) -> T {
    match HOST.get() {
        Some(host) => host.run(callback),
        // A thread of ours.
        None => callback(),
    }
}

/// Runs a log callback as [`as_host`] does. Calls that come from it log nothing.
pub(crate) fn as_host_that_logs<T>(callback: impl FnOnce() -> T) -> T {
    let before = IN_LOG.replace(true);
    let result = as_host(callback);
    IN_LOG.set(before);
    result
}

/// What is changed in the thread during a call, and put back after it.
struct Call {
    float_state: DefaultFloatState,
    outer_host: Option<HostFloatState>,
}

impl Call {
    fn begin() -> Self {
        let float_state = DefaultFloatState::enter();
        DEPTH.set(DEPTH.get() + 1);
        Self { outer_host: HOST.replace(Some(float_state.host())), float_state }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _ = &self.float_state;
        HOST.set(self.outer_host);
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn internal() -> Error {
    let panic = PANIC.with(|panic| panic.try_borrow_mut().map(|mut text| std::mem::take(&mut *text)));
    let what = panic.unwrap_or_default();
    Error::new(
        unisonic_status::Internal,
        format!("a fault of the library, please report it: {what}; free the handles that took part"),
    )
}

/// Panics of calls and of our threads say nothing on stderr: they become errors. The hook is that of the copy
/// of Rust's runtime which is part of the library; it hands on what is not ours.
fn catch_panics_quietly() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if DEPTH.get() > 0 {
                PANIC.with(|panic| {
                    if let Ok(mut text) = panic.try_borrow_mut() {
                        *text = info.to_string().replace('\n', " ");
                    }
                });
            } else if std::thread::current().name().is_some_and(|name| !is_ours(name)) {
                before(info);
            }
        }));
    });
}

/// Whether a thread of this name is one of ours, as one without a name is.
fn is_ours(name: &str) -> bool {
    name.starts_with("unisonic") || name == "kv-dir"
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::error::{unisonic_error_free, unisonic_error_message, unisonic_error_status};

    #[test]
    fn a_panic_is_an_error_that_says_where() {
        let mut error = std::ptr::null_mut();
        // SAFETY: the error is written to a variable, and freed once.
        unsafe {
            let status = entry(&raw mut error, |_| panic!("on purpose"));
            assert_eq!((status, unisonic_error_status(error)), (unisonic_status::Internal, status));
            let message = CStr::from_ptr(unisonic_error_message(error)).to_str().unwrap();
            assert!(message.contains("on purpose") && message.contains("entry.rs"), "{message}");
            unisonic_error_free(error);
            // The next call is not disturbed by it.
            assert_eq!(entry(&raw mut error, |_| Ok(())), unisonic_status::Ok);
            assert!(error.is_null());
        }
        assert_eq!((DEPTH.get(), HOST.get()), (0, None));
    }

    #[test]
    fn a_call_within_a_callback_leaves_the_outer_one_as_it_was() {
        // SAFETY: NULL.
        let status = unsafe {
            entry(std::ptr::null_mut(), |_| {
                let outer = HOST.get();
                as_host(|| entry(std::ptr::null_mut(), |_| panic!("within")));
                assert_eq!((HOST.get(), DEPTH.get()), (outer, 1));
                Ok(())
            })
        };
        assert_eq!(status, unisonic_status::Ok);
    }
}
