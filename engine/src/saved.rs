//! Sequences in files: `--save-session` and `--load-session`.
//!
//! What a sequence goes on from is its tokens and how they are chosen: draws are keyed by seed and position,
//! and the window of penalties is the end of the tokens. The position in a grammar follows from the constraint and the
//! tokens since the start of the answer. Keys and values follow from the tokens; the full
//! pages of them are in the file too, so that nothing is run again, where the device gives them out and takes
//! them. Elsewhere they are computed again, to the same bits.
//!
//! | part of the file | bytes |
//! |---|---|
//! | `unisonic session` | 16 |
//! | length of the header (u64, little-endian) | 8 |
//! | header, JSON | so many |
//! | pages, each as [`KvLayer`](unisonic_core::plan::KvLayer) says | `pages` times `page_len_bytes` of the header |
//! | SHA-256 of all before | 32 |

use serde::{Deserialize, Serialize};

use crate::constraint::ConstrainedAnswer;
use crate::sampling::SamplerOptions;
use crate::{Digest, Engine, EngineError, Session};

const MAGIC: &[u8; 16] = b"unisonic session";
const VERSION: u32 = 1;

/// A sequence with all that its continuation depends on, and its keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedSession {
    header: Header,
    pages: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    unisonic_session: u32,
    /// Digest of the model's file.
    model: Digest,
    profile: String,
    sampler: SamplerOptions,
    /// What the answer at the end of the tokens follows, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<ConstrainedAnswer>,
    tokens: Vec<u32>,
    pages: usize,
    page_len_bytes: usize,
}

/// What is wrong with the file of a session, or with using it here.
#[derive(Debug, thiserror::Error)]
pub enum SavedSessionError {
    /// Another kind of file.
    #[error("this is no session of unisonic; `unisonic run --save-session FILE` writes one")]
    Foreign,
    /// A file of a later version.
    #[error("the session is of version {0}, but this program reads version {VERSION}; use a newer unisonic")]
    Version(u32),
    /// A file that is cut short or was changed.
    #[error("the session is damaged: {0}; nothing in it can be relied on, save it again")]
    Damaged(String),
    /// Another model.
    #[error(
        "the session is of another model: it names SHA-256 {expected}, but this model's is {found}; give the model that it \
         was saved with"
    )]
    Model {
        /// In the file.
        expected: Digest,
        /// The model at hand.
        found: Digest,
    },
    /// Another arithmetic.
    #[error(
        "the session is of arithmetic `{expected}`, but this device runs `{found}`, whose bits are others"
    )]
    Profile {
        /// In the file.
        expected: String,
        /// The device at hand.
        found: String,
    },
}

impl SavedSession {
    /// Of a sequence of these tokens, of which `session` holds the beginning.
    pub fn of(
        engine: &mut Engine,
        session: &Session,
        tokens: &[u32],
        model: Digest,
        sampler: SamplerOptions,
    ) -> Result<Self, EngineError> {
        let pages = match tokens.starts_with(session.tokens()) {
            true => engine.read_pages(session)?,
            false => Vec::new(),
        };
        let header = Header {
            unisonic_session: VERSION,
            model,
            profile: engine.device().profile.clone(),
            sampler,
            answer: None,
            tokens: tokens.to_vec(),
            pages: pages.len(),
            page_len_bytes: pages.first().map_or(0, Vec::len),
        };
        Ok(Self { header, pages })
    }

    /// The same with what the answer at its end follows.
    pub fn with_answer(mut self, answer: Option<ConstrainedAnswer>) -> Self {
        self.header.answer = answer;
        self
    }

    /// What the answer at its end follows, if anything.
    pub fn answer(&self) -> Option<&ConstrainedAnswer> {
        self.header.answer.as_ref()
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.header.tokens
    }

    /// How tokens were chosen.
    pub fn sampler(&self) -> &SamplerOptions {
        &self.header.sampler
    }

    /// Whether this model is what it was saved with; nothing else in it means anything to another.
    pub fn check_model(&self, model: Digest) -> Result<(), SavedSessionError> {
        if self.header.model != model {
            return Err(SavedSessionError::Model { expected: self.header.model, found: model });
        }
        Ok(())
    }

    /// Whether this arithmetic is what it was saved with.
    pub fn check_profile(&self, profile: &str) -> Result<(), SavedSessionError> {
        if self.header.profile != profile {
            let (expected, found) = (self.header.profile.clone(), profile.to_owned());
            return Err(SavedSessionError::Profile { expected, found });
        }
        Ok(())
    }

    /// A session that holds the beginning of [`Self::tokens`]; at least the last of them is left to be run.
    pub fn restore(&self, engine: &mut Engine) -> Result<Session, EngineError> {
        let known = &self.header.tokens[..self.header.tokens.len().saturating_sub(1)];
        engine.session_with_pages(known, &self.pages)
    }

    /// The bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Of numbers, texts and lists; nothing in it fails to be JSON.
        let header = serde_json::to_vec(&self.header).unwrap_or_default();
        let mut bytes = [&MAGIC[..], &(header.len() as u64).to_le_bytes(), &header].concat();
        self.pages.iter().for_each(|page| bytes.extend_from_slice(page));
        bytes.extend_from_slice(&Digest::of(&bytes).0);
        bytes
    }

    /// Reads the bytes of a file and checks that it is whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SavedSessionError> {
        let damaged = |what: &str| SavedSessionError::Damaged(what.to_owned());
        if !bytes.starts_with(MAGIC) {
            return Err(SavedSessionError::Foreign);
        }
        let (content, sum) = bytes.split_last_chunk::<32>().ok_or_else(|| damaged("it is cut short"))?;
        if Digest::of(content).0 != *sum {
            return Err(damaged("its digest is not that of its content"));
        }
        let short = || damaged("it is shorter than it says");
        let (len, rest) = content[MAGIC.len()..].split_first_chunk::<8>().ok_or_else(short)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| short())?;
        let (header, pages) = rest.split_at_checked(len).ok_or_else(short)?;
        #[derive(Deserialize)]
        struct Version {
            unisonic_session: u32,
        }
        let json = |error: serde_json::Error| SavedSessionError::Damaged(error.to_string());
        let version: Version = serde_json::from_slice(header).map_err(json)?;
        if version.unisonic_session != VERSION {
            return Err(SavedSessionError::Version(version.unisonic_session));
        }
        let header: Header = serde_json::from_slice(header).map_err(json)?;
        if header.answer.as_ref().is_some_and(|answer| answer.start > header.tokens.len()) {
            return Err(damaged("its answer begins behind its end"));
        }
        if header.pages.checked_mul(header.page_len_bytes) != Some(pages.len()) {
            return Err(damaged("it has not as many pages as it says"));
        }
        let pages = pages.chunks_exact(header.page_len_bytes.max(1)).map(<[u8]>::to_vec).collect();
        Ok(Self { header, pages })
    }
}
