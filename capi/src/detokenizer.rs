//! Text while its tokens come, for programs that choose tokens themselves.

use std::sync::{Arc, Mutex};

use unisonic_engine::tokenizer::{ControlTokens, Detokenizer as Stream, Tokenizer as Vocabulary};

use crate::buffer::{Buffer, unisonic_buffer};
use crate::entry::entry;
use crate::error::unisonic_error;
use crate::handle::{self, Object};
use crate::locks::lock;
use crate::options;
use crate::status::unisonic_status;
use crate::tokenizer::{Tokenizer, UNISONIC_NO_TOKEN, unisonic_tokenizer};

/// Makes text of tokens as they come: whole characters, with U+FFFD for bytes that are none.
pub struct unisonic_detokenizer {
    _opaque: (),
}

/// What is behind a detokenizer.
pub(crate) struct Detokenizer {
    vocab_len: u32,
    stream: Mutex<Stream<Arc<Vocabulary>>>,
}

impl Object for Detokenizer {
    type Handle = unisonic_detokenizer;
    const NAME: &'static str = "detokenizer";
}

/// A detokenizer at the beginning of a text. Free it with unisonic_detokenizer_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_detokenizer_new(
    tokenizer: *mut unisonic_tokenizer,
    detokenizer: *mut *mut unisonic_detokenizer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let detokenizer = options::out(detokenizer, "detokenizer")?;
            let (tokenizer, library) = entry.object_of::<Tokenizer>(tokenizer)?;
            let vocabulary = &tokenizer.vocabulary;
            let made = Detokenizer {
                vocab_len: vocabulary.vocab_len(),
                stream: Mutex::new(Stream::new(Arc::clone(vocabulary), ControlTokens::Hide)),
            };
            handle::write(detokenizer, &library, Arc::new(made))
        })
    }
}

/// The characters that a token completes, into a buffer; with UNISONIC_NO_TOKEN what is left at the end of
/// the text, after which another may begin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_detokenizer_push(
    detokenizer: *mut unisonic_detokenizer,
    token: u32,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (detokenizer, library) = entry.object_of::<Detokenizer>(detokenizer)?;
            let mut stream = lock(&detokenizer.stream)?;
            let piece = if token == UNISONIC_NO_TOKEN {
                stream.finish()
            } else {
                crate::tokenizer::check_tokens(&[token], detokenizer.vocab_len, "token")?;
                stream.push(token)
            };
            Buffer::of_bytes(piece.into_bytes()).write(text, &library)
        })
    }
}

/// Frees a detokenizer; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_detokenizer_free(
    detokenizer: *mut unisonic_detokenizer,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Detokenizer>(detokenizer) }
}
