//! What was generated.

use std::ffi::{CString, c_char};
use std::ptr;

use unisonic_engine::Stop;

use crate::entry::answer;
use crate::error::c_string;
use crate::handle::{self, Object};
use crate::status::unisonic_status;

/// What was generated.
pub struct unisonic_completion {
    _opaque: (),
}

/// Why a generation ended. New ones may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum unisonic_stop {
    /// The model ended its answer with an end token, which is the last of the tokens.
    Eog = 0,
    /// `max_tokens` were generated.
    Length = 1,
    /// The context is full.
    Context = 2,
    /// The answer is complete: its constraint allows nothing more.
    Constraint = 3,
    /// The text came to a stop string, which is not part of the text, while its tokens are among the tokens.
    StopString = 4,
    /// The callback said to stop.
    Callback = 5,
    /// A cancel switch was set.
    Cancelled = 6,
}

impl From<Stop> for unisonic_stop {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Eog => Self::Eog,
            Stop::Length => Self::Length,
            Stop::Context => Self::Context,
            Stop::Grammar => Self::Constraint,
            Stop::Cancelled => Self::Cancelled,
        }
    }
}

/// What is behind a completion.
pub(crate) struct Completion {
    tokens: Vec<u32>,
    text: CString,
    text_len: usize,
    stop: unisonic_stop,
    receipt: Option<CString>,
}

impl Object for Completion {
    type Handle = unisonic_completion;
    const NAME: &'static str = "completion";
}

impl Completion {
    pub(crate) fn new(tokens: Vec<u32>, text: &str, stop: unisonic_stop, receipt: Option<String>) -> Self {
        // A model can say NUL, and C cannot.
        let text = c_string(text);
        Self {
            tokens,
            text_len: text.as_bytes().len(),
            text,
            stop,
            receipt: receipt.as_deref().map(c_string),
        }
    }
}

/// The tokens, an end token included, until the completion is freed; NULL if it is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_tokens(completion: *mut unisonic_completion) -> *const u32 {
    // SAFETY: the promises of the header.
    answer(ptr::null(), |entry| unsafe { Ok(entry.object::<Completion>(completion)?.tokens.as_ptr()) })
}

/// Number of tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_len_tokens(completion: *mut unisonic_completion) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Completion>(completion)?.tokens.len()) })
}

/// The text: UTF-8 with a NUL behind it, until the completion is freed; NULL if it is none. A NUL that the
/// model says is U+FFFD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_text(completion: *mut unisonic_completion) -> *const c_char {
    // SAFETY: the promises of the header.
    answer(ptr::null(), |entry| unsafe { Ok(entry.object::<Completion>(completion)?.text.as_ptr()) })
}

/// Bytes of the text, without the NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_text_len(completion: *mut unisonic_completion) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Completion>(completion)?.text_len) })
}

/// Why it ended; UNISONIC_STOP_CANCELLED if it is no completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_stop(completion: *mut unisonic_completion) -> unisonic_stop {
    // SAFETY: the promises of the header.
    answer(unisonic_stop::Cancelled, |entry| unsafe { Ok(entry.object::<Completion>(completion)?.stop) })
}

/// The receipt, if one was asked for: JSON with a NUL behind it, until the completion is freed; otherwise
/// NULL. It names the model by digest, the options and the tokens, and has a digest of all logits:
/// unisonic_receipt_verify and `unisonic verify` recompute it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_receipt(completion: *mut unisonic_completion) -> *const c_char {
    // SAFETY: the promises of the header.
    answer(ptr::null(), |entry| unsafe {
        let completion = entry.object::<Completion>(completion)?;
        Ok(completion.receipt.as_ref().map_or(ptr::null(), |receipt| receipt.as_ptr()))
    })
}

/// Frees a completion; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_completion_free(completion: *mut unisonic_completion) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Completion>(completion) }
}
