//! Results that are as long as they are: texts, bytes, token ids.

use std::ptr;
use std::sync::Arc;

use crate::entry::answer;
use crate::error::Result;
use crate::handle::{self, Object};
use crate::library::Library;
use crate::status::unisonic_status;

/// Bytes, a text, or token ids that a call gave back.
pub struct unisonic_buffer {
    _opaque: (),
}

/// What is behind a buffer.
pub(crate) enum Buffer {
    /// With a NUL behind it.
    Bytes(Vec<u8>),
    Tokens(Vec<u32>),
}

impl Object for Buffer {
    type Handle = unisonic_buffer;
    const NAME: &'static str = "buffer";
}

impl Buffer {
    /// Of bytes.
    pub(crate) fn of_bytes(mut bytes: Vec<u8>) -> Self {
        bytes.push(0);
        Self::Bytes(bytes)
    }

    /// Gives it to the caller.
    ///
    /// # Safety
    /// `to` may be written.
    pub(crate) unsafe fn write(self, to: *mut *mut unisonic_buffer, library: &Arc<Library>) -> Result {
        // SAFETY: the caller says so.
        unsafe { handle::write(to, library, Arc::new(self)) }
    }
}

/// The bytes of a buffer, with a NUL behind them, until it is freed; NULL if it is no buffer, or one of token
/// ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_buffer_data(buffer: *mut unisonic_buffer) -> *const u8 {
    // SAFETY: the promises of the header.
    answer(ptr::null(), |entry| unsafe {
        Ok(match &*entry.object::<Buffer>(buffer)? {
            Buffer::Bytes(bytes) => bytes.as_ptr(),
            Buffer::Tokens(_) => ptr::null(),
        })
    })
}

/// Number of bytes, without the NUL; 0 if it is no buffer, or one of token ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_buffer_len_bytes(buffer: *mut unisonic_buffer) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe {
        Ok(match &*entry.object::<Buffer>(buffer)? {
            Buffer::Bytes(bytes) => bytes.len() - 1,
            Buffer::Tokens(_) => 0,
        })
    })
}

/// The token ids of a buffer, until it is freed; NULL if it is no buffer of token ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_buffer_tokens(buffer: *mut unisonic_buffer) -> *const u32 {
    // SAFETY: the promises of the header.
    answer(ptr::null(), |entry| unsafe {
        Ok(match &*entry.object::<Buffer>(buffer)? {
            Buffer::Tokens(tokens) => tokens.as_ptr(),
            Buffer::Bytes(_) => ptr::null(),
        })
    })
}

/// Number of token ids; 0 if it is no buffer of token ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_buffer_len_tokens(buffer: *mut unisonic_buffer) -> usize {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe {
        Ok(match &*entry.object::<Buffer>(buffer)? {
            Buffer::Tokens(tokens) => tokens.len(),
            Buffer::Bytes(_) => 0,
        })
    })
}

/// Frees a buffer; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_buffer_free(buffer: *mut unisonic_buffer) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Buffer>(buffer) }
}
