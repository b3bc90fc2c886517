//! The library handle: what calls have in common, instead of global state.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use unisonic_cache::{Cache, DEFAULT_LIMIT_BYTES};

use crate::entry::{answer, entry};
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Handles, Object};
use crate::log::{LogSink, unisonic_log_fn};
use crate::options::{self, SizeTagged};
use crate::status::unisonic_status;

/// Version of the ABI that this header describes: 65536 times the major version, by which ABIs do not fit
/// each other and which is the number of libunisonic.so, plus the minor version, which grows with every
/// addition.
pub const UNISONIC_ABI_VERSION: u32 = 1;

/// What calls have in common: where lines of the log go, where compiled kernels are kept, and the table of
/// handles. Several in one process know nothing of each other.
pub struct unisonic_library {
    _opaque: (),
}

/// Options of a library handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_library_options {
    /// sizeof(unisonic_library_options).
    pub struct_size: usize,
    /// Takes the lines of the log; NULL: nobody does. It may be called from any thread that calls the
    /// library.
    pub log: unisonic_log_fn,
    /// Given to `log`.
    pub log_user: *mut c_void,
    /// Folder for compiled kernels and other things that the next start need not make again; NULL: nothing is
    /// kept.
    pub cache_path: *const c_char,
    /// Bytes of `cache_path`.
    pub cache_path_len: usize,
    /// The least important lines that `log` takes, a unisonic_log_level; 0: UNISONIC_LOG_LEVEL_INFO.
    pub log_level: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_library_options {
    const NAME: &'static str = "unisonic_library_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a library handle.
pub(crate) struct Library {
    handles: Handles,
    dispatch: Dispatch,
    cache: Option<Arc<Cache>>,
}

impl Object for Library {
    type Handle = unisonic_library;
    const NAME: &'static str = "library";
}

impl Library {
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Where compiled kernels are kept.
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.cache.as_ref()
    }
}

/// Version of the ABI of the library that runs: at least UNISONIC_ABI_VERSION of the header, and of the same
/// major version, or unisonic_library_open refuses.
#[unsafe(no_mangle)]
pub extern "C" fn unisonic_abi_version() -> u32 {
    UNISONIC_ABI_VERSION
}

/// Version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn unisonic_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A library handle. `abi_version` is UNISONIC_ABI_VERSION, as the caller was compiled with it:
/// UNISONIC_STATUS_VERSION where this library does not serve it. Close it with unisonic_library_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_library_open(
    abi_version: u32,
    options: *const unisonic_library_options,
    library: *mut *mut unisonic_library,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let library = options::out(library, "library")?;
            check_version(abi_version)?;
            let options = options::read(options)?;
            options::reserved(options.reserved)?;
            let sink = LogSink::new(options.log, options.log_user, options.log_level)?;
            let cache = match options.cache_path.is_null() {
                true => None,
                false => {
                    let folder = options::path(options.cache_path, options.cache_path_len, "cache_path")?;
                    Some(Arc::new(Cache::new(folder, DEFAULT_LIMIT_BYTES)))
                }
            };
            let dispatch = sink.map_or_else(|| Dispatch::new(NoSubscriber::default()), Dispatch::new);
            let opened = Arc::new(Library { handles: Handles::default(), dispatch, cache });
            entry.log_to(&opened);
            handle::write(library, &opened, Arc::clone(&opened))
        })
    }
}

/// Closes a library handle; NULL is fine. What was made with it and not freed stays, and so does the log
/// callback until the last of it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_library_close(library: *mut unisonic_library) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Library>(library) }
}

/// Handles that were made with this library handle and not freed, itself included; 0 if it is none. For tests of leaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_library_len_handles(library: *mut unisonic_library) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Library>(library)?.handles().in_use()) })
}

fn check_version(found: u32) -> Result {
    let parts = |version: u32| (version >> 16, version & 0xffff);
    let (own, theirs) = (parts(UNISONIC_ABI_VERSION), parts(found));
    if own.0 != theirs.0 || own.1 < theirs.1 {
        let message = format!(
            "the program was compiled for version {}.{} of the ABI, but this library has {}.{}; it serves programs of \
             the same major and no later minor version: install the library that the program was made with, or a newer one",
            theirs.0, theirs.1, own.0, own.1
        );
        return Err(Error::new(unisonic_status::Version, message));
    }
    Ok(())
}
