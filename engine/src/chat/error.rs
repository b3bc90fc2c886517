//! Why a conversation could not become a prompt.

use unisonic_core::format::MetadataError;

use crate::tokenizer::TokenizerError;

const REMEDY: &str = "give another template with --chat-template FILE, or complete the raw prompt: `unisonic run` without --chat, /v1/completions of a server";

/// A chat template is missing, broken, or does not take these messages.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The file has no template.
    #[error("the file has no chat template (metadata key `{key}`{others}): {REMEDY}")]
    NoTemplate {
        /// The key that was looked for.
        key: String,
        /// The keys of other templates in the file, in words.
        others: String,
    },
    /// The key exists with another type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The template is larger than any real one.
    #[error(
        "the chat template has {found_bytes} bytes, more than the {limit_bytes} that are allowed: {REMEDY}"
    )]
    TooLarge {
        /// Its size.
        found_bytes: usize,
        /// The largest size.
        limit_bytes: usize,
    },
    /// The template cannot be compiled, or failed on these messages.
    #[error("line {line} of the chat template: {detail}; {REMEDY}")]
    Template {
        /// Line of the template, from 1.
        line: usize,
        /// What is wrong.
        detail: String,
    },
    /// The template did not come to an end within its limits.
    #[error("line {line} of the chat template: it does too much ({what}); {REMEDY}")]
    Budget {
        /// Line of the template, from 1.
        line: usize,
        /// The limit it ran into.
        what: String,
    },
    /// The template itself refuses the messages, for example two of one role in a row.
    #[error("the chat template does not take these messages: {message}")]
    Refused {
        /// The template's words.
        message: String,
    },
    /// A role that could be mistaken for a part of the template.
    #[error(
        "{role:?} cannot be a message's role: {problem}; usual roles are system, user, assistant and tool"
    )]
    Role {
        /// The role.
        role: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A control token of one character occurs in a message, where it cannot be taken apart.
    #[error("a message holds {character:?}, which is a control token of this model; leave it out")]
    ControlCharacter {
        /// The character.
        character: String,
    },
    /// A date that is none.
    #[error("{date:?} is not a date; write it as 2026-01-31")]
    Date {
        /// What was given.
        date: String,
    },
    /// Every character that could mark the messages occurs in them.
    #[error(
        "the messages use every noncharacter and private-use character there is; leave one of U+FDD0..U+FDEF out"
    )]
    NoMarker,
    /// The prompt could not be tokenised.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}
