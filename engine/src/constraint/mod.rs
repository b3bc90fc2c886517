//! Structured output: answers that follow a JSON schema, a regular expression or a grammar.
//!
//! A [`Constraint`] is what a caller asks for, as text. [`Grammars`] are a model's tokens as a grammar sees them, and make a
//! [`Grammar`] of it. A [`ConstrainedSampler`] chooses tokens with one: before each choice it asks which tokens may come, and
//! those that may not are masked, after penalties and biases and before all filters (docs/numerics.md "Sampling").
//!
//! What may come is a function of the constraint and the bytes of the answer so far: a token may if some text that the
//! constraint allows begins with these bytes and the token's. End tokens may where the answer so far is such a text. How a
//! text is cut into tokens is the model's choice. So the mask is the same however rows are cut into batches, and the
//! position in the grammar need not be saved: it follows from the tokens since the start of the answer.
//!
//! The grammars are those of the crate `llguidance`; docs/decisions/0013-structured-output.md says how it is used.

mod grammars;
mod keywords;
mod position;
mod sampler;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::Digest;

pub use grammars::{Grammar, Grammars, lark_json};
pub use sampler::ConstrainedSampler;

/// Whose rules say which tokens may come. Part of a constraint: other rules may allow others.
pub const RULES: &str = "llguidance 1.9.1";
/// Longest text of a constraint.
pub const MAX_LEN_BYTES: usize = 1 << 20;

/// The language of a constraint's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintKind {
    /// A JSON schema, each of whose keywords has to be known.
    JsonSchema,
    /// A regular expression, in the syntax of the crate `regex`; the whole answer matches it.
    Regex,
    /// A grammar in the dialect of Lark that llguidance reads; it begins with the rule `start`.
    Lark,
}

impl ConstraintKind {
    /// What it is called in messages.
    fn name(self) -> &'static str {
        match self {
            Self::JsonSchema => "JSON schema",
            Self::Regex => "regular expression",
            Self::Lark => "grammar",
        }
    }
}

/// What an answer has to follow.
///
/// As JSON `{"kind": "json_schema", "text": …, "sha256": digest of the text, "rules": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ConstraintJson")]
pub struct Constraint {
    kind: ConstraintKind,
    text: String,
    sha256: Digest,
    rules: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstraintJson {
    kind: ConstraintKind,
    text: String,
    sha256: Digest,
    rules: String,
}

impl Constraint {
    /// Of a text.
    pub fn new(kind: ConstraintKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, sha256: Digest::of(text.as_bytes()), text, rules: RULES.into() }
    }

    /// Any JSON object.
    pub fn json_object() -> Self {
        Self::new(ConstraintKind::JsonSchema, r#"{"type":"object"}"#)
    }

    /// The language of the text.
    pub fn kind(&self) -> ConstraintKind {
        self.kind
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl TryFrom<ConstraintJson> for Constraint {
    type Error = String;

    fn try_from(json: ConstraintJson) -> Result<Self, String> {
        let ConstraintJson { kind, text, sha256, rules } = json;
        let found = Digest::of(text.as_bytes());
        if found != sha256 {
            return Err(format!("the constraint's `sha256` is {sha256}, but its text has {found}"));
        }
        Ok(Self { kind, text, sha256, rules })
    }
}

/// A constraint with where its answer begins: what it allows next follows from the tokens since then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstrainedAnswer {
    /// Index of the answer's first token in its sequence.
    pub start: usize,
    /// What it follows.
    pub constraint: Constraint,
}

/// What is wrong with a constraint, or went wrong under it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Too much text.
    #[error("the {kind} has {len_bytes} bytes, but may have {MAX_LEN_BYTES} at most; make it shorter")]
    TooLong {
        /// What it is.
        kind: &'static str,
        /// Its length.
        len_bytes: usize,
    },
    /// A schema that is not JSON.
    #[error("the JSON schema is not JSON: {0}")]
    NotJson(String),
    /// A keyword that would be ignored, so that the answer may break it.
    #[error("the JSON schema's keyword `{keyword}` at {pointer} is not supported; {instead}")]
    Keyword {
        /// The keyword.
        keyword: String,
        /// Where the schema is that has it, as a JSON pointer with `#` in front.
        pointer: String,
        /// What to do.
        instead: &'static str,
    },
    /// A constraint that makes no grammar.
    #[error("the {kind} cannot be used: {reason}")]
    Refused {
        /// What it is.
        kind: &'static str,
        /// Why.
        reason: String,
    },
    /// A constraint that was made by other rules.
    #[error(
        "the constraint is of the rules of `{found}`, but this program has those of `{RULES}`, which may allow \
             other tokens; use the version of unisonic that it was made with"
    )]
    Rules {
        /// What it says.
        found: String,
    },
    /// Tokens that no grammar can be made over.
    #[error("grammars cannot be used with this model's tokens: {0}")]
    Vocabulary(String),
    /// The grammar could not go on: it became too complex, or the tokens do not follow it.
    #[error("the grammar failed after {tokens} tokens of the answer: {reason}")]
    Failed {
        /// Tokens of the answer before that.
        tokens: usize,
        /// Why.
        reason: String,
    },
}
