//! Loading that can be watched and ended.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use unisonic_core::plan::{LoadProgress, ReadError, WeightSource};

use crate::callback::{Flow, User};
use crate::cancel::Cancel;
use crate::entry::as_host;
use crate::error::Result;

/// Is told how many bytes of the weights are loaded, from any thread, never twice at a time. Returns 0 to go
/// on, 1 to end loading with UNISONIC_STATUS_CANCELLED, anything else to end it with
/// UNISONIC_STATUS_CALLBACK_FAILED.
pub type unisonic_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, loaded_len_bytes: u64, total_len_bytes: u64) -> i32>;

/// A model that is being loaded, and who may end that.
pub(crate) struct Loading {
    progress: unisonic_progress_fn,
    user: User,
    cancel: Option<Arc<Cancel>>,
    /// What the callback said that was not 0.
    said: AtomicI32,
}

impl Loading {
    pub(crate) fn new(
        progress: unisonic_progress_fn,
        user: *mut c_void,
        cancel: Option<Arc<Cancel>>,
    ) -> Self {
        Self { progress, user: User(user), cancel, said: AtomicI32::new(0) }
    }

    /// An error if it is to end.
    pub(crate) fn check(&self) -> Result {
        Cancel::check(self.cancel.as_deref())?;
        Flow::of(self.said.load(Ordering::Relaxed)).check("progress")
    }

    /// Tells the host, until it has said that it wants no more.
    pub(crate) fn progress(&self, LoadProgress { loaded_bytes, total_bytes }: LoadProgress) {
        if let Some(progress) = self.progress
            && self.check().is_ok()
        {
            // SAFETY: the host's function, as it said when it gave it.
            let said = as_host(|| unsafe { progress(self.user.0, loaded_bytes, total_bytes) });
            self.said.store(said, Ordering::Relaxed);
        }
    }

    /// The weights of a file, which cannot be read any more once loading is to end.
    pub(crate) fn watched<'a>(&'a self, file: &'a dyn WeightSource) -> Watched<'a> {
        Watched { file, loading: self }
    }
}

pub(crate) struct Watched<'a> {
    file: &'a dyn WeightSource,
    loading: &'a Loading,
}

impl Watched<'_> {
    fn check(&self, tensor: &str) -> std::result::Result<(), ReadError> {
        let ended = |_| ReadError { tensor: tensor.to_owned(), reason: "loading was ended".to_owned() };
        self.loading.check().map_err(ended)
    }
}

impl WeightSource for Watched<'_> {
    fn len_bytes(&self, tensor: &str) -> std::result::Result<u64, ReadError> {
        self.file.len_bytes(tensor)
    }

    fn read_at(&self, tensor: &str, offset_bytes: u64, to: &mut [u8]) -> std::result::Result<(), ReadError> {
        self.check(tensor)?;
        self.file.read_at(tensor, offset_bytes, to)
    }

    fn read(&self, tensor: &str) -> std::result::Result<Vec<u8>, ReadError> {
        self.check(tensor)?;
        self.file.read(tensor)
    }
}
