//! Text to token ids and back.

use std::ffi::c_char;
use std::sync::Arc;

use unisonic_core::format::{GgufFile, Metadata};
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::tokenizer::{ControlTokens, Specials, Tokenizer as Vocabulary};

use crate::buffer::{Buffer, unisonic_buffer};
use crate::entry::{answer, entry};
use crate::error::{Error, Result, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::options;
use crate::status::unisonic_status;

/// The vocabulary and the chat template of a model file.
pub struct unisonic_tokenizer {
    _opaque: (),
}

/// No token: where a token is given, there is none.
pub const UNISONIC_NO_TOKEN: u32 = u32::MAX;

/// For unisonic_tokenizer_encode: adds the tokens that the model wants in front of and behind a prompt.
pub const UNISONIC_ENCODE_PROMPT: u32 = 1;
/// For unisonic_tokenizer_encode: control tokens that the text spells, such as "<|im_end|>", become those
/// tokens. Not for texts of others: they could say what only the program may say.
pub const UNISONIC_ENCODE_SPECIALS: u32 = 2;
/// For unisonic_tokenizer_decode: control tokens are their names; otherwise they are no text.
pub const UNISONIC_DECODE_CONTROL: u32 = 1;

/// What is behind a tokenizer.
pub(crate) struct Tokenizer {
    pub(crate) vocabulary: Arc<Vocabulary>,
    template: std::result::Result<ChatTemplate, Error>,
}

impl Object for Tokenizer {
    type Handle = unisonic_tokenizer;
    const NAME: &'static str = "tokenizer";
}

impl Tokenizer {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let vocabulary = Arc::new(Vocabulary::from_metadata(metadata)?);
        let template = ChatTemplate::from_metadata(metadata, None).map_err(Error::from);
        Ok(Self { vocabulary, template })
    }

    /// The file's template, or why there is none.
    pub(crate) fn template(&self) -> Result<&ChatTemplate> {
        self.template.as_ref().map_err(Clone::clone)
    }

    /// Refuses ids that there are not.
    pub(crate) fn check(&self, tokens: &[u32], name: &str) -> Result {
        check_tokens(tokens, self.vocabulary.vocab_len(), name)
    }
}

/// Refuses ids that a model does not have.
pub(crate) fn check_tokens(tokens: &[u32], vocab_len: u32, name: &str) -> Result {
    match tokens.iter().position(|&token| token >= vocab_len) {
        Some(at) => Err(Error::argument(format!(
            "{name}[{at}] is {} (as a signed number {}), but the tokens of the model are 0 to {}",
            tokens[at],
            tokens[at] as i32,
            vocab_len.saturating_sub(1)
        ))),
        None => Ok(()),
    }
}

/// Reads the tokenizer of a model file without its weights. `path` as in unisonic_model_load. Free it with
/// unisonic_tokenizer_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_open(
    library: *mut unisonic_library,
    path: *const c_char,
    path_len: usize,
    tokenizer: *mut *mut unisonic_tokenizer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tokenizer = options::out(tokenizer, "tokenizer")?;
            let library = entry.object::<Library>(library)?;
            let file = GgufFile::open(&options::path(path, path_len, "path")?)?;
            let found = Tokenizer::from_metadata(file.metadata())?;
            handle::write(tokenizer, &library, Arc::new(found))
        })
    }
}

/// The token ids of a text, into a buffer. `flags` is 0 or a sum of UNISONIC_ENCODE_...; with 0 every byte of
/// the text is text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_encode(
    tokenizer: *mut unisonic_tokenizer,
    text: *const c_char,
    text_len: usize,
    flags: u32,
    tokens: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tokens = options::out(tokens, "tokens")?;
            let (tokenizer, library) = entry.object_of::<Tokenizer>(tokenizer)?;
            let text = options::text(text, text_len, "text")?;
            check_flags(flags, UNISONIC_ENCODE_PROMPT | UNISONIC_ENCODE_SPECIALS)?;
            let specials = match flags & UNISONIC_ENCODE_SPECIALS {
                0 => Specials::Literal,
                _ => Specials::Parse,
            };
            let ids = match flags & UNISONIC_ENCODE_PROMPT {
                0 => tokenizer.vocabulary.encode(text, specials)?,
                _ => tokenizer.vocabulary.encode_prompt(text, specials)?,
            };
            Buffer::Tokens(ids).write(tokens, &library)
        })
    }
}

/// The bytes of token ids, into a buffer. They need not be UTF-8, as tokens may end within a character.
/// `flags` is 0 or UNISONIC_DECODE_CONTROL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_decode(
    tokenizer: *mut unisonic_tokenizer,
    tokens: *const u32,
    tokens_len: usize,
    flags: u32,
    text: *mut *mut unisonic_buffer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let text = options::out(text, "text")?;
            let (tokenizer, library) = entry.object_of::<Tokenizer>(tokenizer)?;
            let tokens = options::array(tokens, tokens_len, "tokens")?;
            tokenizer.check(tokens, "tokens")?;
            check_flags(flags, UNISONIC_DECODE_CONTROL)?;
            let controls = match flags {
                0 => ControlTokens::Hide,
                _ => ControlTokens::Show,
            };
            let bytes = tokens
                .iter()
                .flat_map(|&token| tokenizer.vocabulary.token_bytes(token, controls).into_owned());
            Buffer::of_bytes(bytes.collect()).write(text, &library)
        })
    }
}

fn check_flags(flags: u32, known: u32) -> Result {
    match flags & !known {
        0 => Ok(()),
        unknown => {
            Err(Error::argument(format!("flags have {unknown:#x}, of which this library knows nothing")))
        }
    }
}

/// Number of tokens of the vocabulary; 0 if it is no tokenizer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_vocab_len(tokenizer: *mut unisonic_tokenizer) -> u32 {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe { Ok(entry.object::<Tokenizer>(tokenizer)?.vocabulary.vocab_len()) })
}

/// The token that begins a text; UNISONIC_NO_TOKEN if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_bos(tokenizer: *mut unisonic_tokenizer) -> u32 {
    // SAFETY: the promises of the header.
    answer(UNISONIC_NO_TOKEN, |entry| unsafe {
        Ok(entry.object::<Tokenizer>(tokenizer)?.vocabulary.bos().unwrap_or(UNISONIC_NO_TOKEN))
    })
}

/// The token that ends a text; UNISONIC_NO_TOKEN if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_eos(tokenizer: *mut unisonic_tokenizer) -> u32 {
    // SAFETY: the promises of the header.
    answer(UNISONIC_NO_TOKEN, |entry| unsafe {
        Ok(entry.object::<Tokenizer>(tokenizer)?.vocabulary.eos().unwrap_or(UNISONIC_NO_TOKEN))
    })
}

/// 1 if a generation ends with this token, as with the end of a turn; otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_is_stop(tokenizer: *mut unisonic_tokenizer, token: u32) -> i32 {
    // SAFETY: the promises of the header.
    answer(0, |entry| unsafe {
        Ok(i32::from(entry.object::<Tokenizer>(tokenizer)?.vocabulary.is_stop(token)))
    })
}

/// Frees a tokenizer; NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_tokenizer_free(tokenizer: *mut unisonic_tokenizer) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Tokenizer>(tokenizer) }
}
