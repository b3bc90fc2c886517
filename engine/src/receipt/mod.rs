//! Receipts: what was run and what came of it, for anyone to recompute on any device.
//!
//! A [`Receipt`] names the model by digest, the arithmetic, the options of sampling, prompt and answer, and has a digest of the bits
//! of all logits up to each token ([`LogitsChain`]). [`verify()`] recomputes them, many tokens at a time, and finds the
//! first difference.
//!
//! The file is a JSON object. Its `sha256` is the digest of the same object without that member, as compact JSON
//! with its members in the order of [`Receipt`], so that damage is told from a result that differs.

mod chain;
mod verify;

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::constraint::ConstrainedAnswer;
use crate::digest::{Digest, ids_bytes};
use crate::sampling::SamplerOptions;

pub use chain::LogitsChain;
pub use verify::{Difference, Verdict, verify};

/// Version of the format.
const VERSION: u32 = 1;
/// Separates these digests from all others.
const LABEL: &[u8] = b"unisonic receipt 1";

/// A run and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Version of this format: 1.
    pub unisonic_receipt: u32,
    /// What ran.
    pub model: ModelId,
    /// The arithmetic ([`DeviceInfo::profile`](unisonic_core::plan::DeviceInfo::profile)).
    pub profile: String,
    /// How it ran.
    pub made_with: MadeWith,
    /// How tokens were chosen.
    pub sampler: SamplerOptions,
    /// What the answer follows, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ConstrainedAnswer>,
    /// What was continued.
    pub prompt_ids: Vec<u32>,
    /// What was generated, an end token included.
    pub output_ids: Vec<u32>,
    /// Why it ended ([`Stop::as_str`](crate::Stop::as_str)).
    pub stop: String,
    /// Digest of all logits up to each token of the output ([`LogitsChain`]).
    pub chain: Vec<Digest>,
    /// Digest of all the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// Names a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelId {
    /// Where it was; says nothing of what it is.
    pub file: String,
    /// Digest of the file; of a sharded set, of the digests of its files one after the other.
    pub sha256: Digest,
}

/// What no bit of the result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeWith {
    /// Program and version.
    pub program: String,
    /// Name of the device.
    pub device: String,
    /// Rows of a chunk.
    pub chunk_rows: u32,
    /// Longest sequence, in tokens.
    pub context_len: u32,
    /// Passes of the planner that were switched off.
    pub passes_off: Vec<String>,
}

/// What is wrong with a receipt, or with using it here.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// Another kind of file.
    #[error("this is no receipt of unisonic ({reason}); `unisonic run --receipt FILE` writes one")]
    Foreign {
        /// What it lacks.
        reason: String,
    },
    /// A receipt of a later version, or nonsense.
    #[error(
        "the receipt is of version {found}, but this program reads version {VERSION}; use a newer unisonic"
    )]
    Version {
        /// What it says.
        found: String,
    },
    /// A receipt that was changed, or written by something else.
    #[error(
        "the receipt is damaged or was edited: {reason}; nothing in it can be relied on, get the original"
    )]
    Damaged {
        /// What does not fit.
        reason: String,
    },
    /// Another model.
    #[error(
        "the receipt is of another model: it names SHA-256 {expected} ({file}), but this model's is {found}; give the \
         model that it was made with"
    )]
    Model {
        /// In the receipt.
        expected: Digest,
        /// The model at hand.
        found: Digest,
        /// The name of the model's file in the receipt.
        file: String,
    },
    /// Another arithmetic.
    #[error(
        "the receipt is of arithmetic `{expected}`, but this device runs `{found}`, whose bits are others"
    )]
    Profile {
        /// In the receipt.
        expected: String,
        /// The device at hand.
        found: String,
    },
}

impl Receipt {
    /// A receipt of the current version with its digest.
    pub fn seal(self) -> Self {
        let receipt = Self { unisonic_receipt: VERSION, sha256: None, ..self };
        let sha256 = Some(receipt.digest());
        Self { sha256, ..receipt }
    }

    /// The receipt as JSON, a member a line.
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, MemberALine { depth: 0 });
        // Of numbers, texts and lists; nothing in it fails to be JSON.
        let _ = self.serialize(&mut serializer);
        bytes.push(b'\n');
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads a receipt and checks that it is whole.
    pub fn from_json(text: &str) -> Result<Self, ReceiptError> {
        let damaged = |reason: String| ReceiptError::Damaged { reason };
        let json: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| ReceiptError::Foreign { reason: format!("it is not JSON: {error}") })?;
        match json.get("unisonic_receipt") {
            None => {
                let reason = "it has no member \"unisonic_receipt\"".to_owned();
                return Err(ReceiptError::Foreign { reason });
            }
            Some(version) if version != VERSION => {
                return Err(ReceiptError::Version { found: version.to_string() });
            }
            Some(_) => {}
        }
        let receipt: Self = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let sha256 = receipt.sha256.ok_or_else(|| damaged("its `sha256` is missing".into()))?;
        let found = Self { sha256: None, ..receipt.clone() }.digest();
        if found != sha256 {
            return Err(damaged(format!("its `sha256` is {sha256}, but its content has {found}")));
        }
        if receipt.prompt_ids.is_empty() {
            return Err(damaged("it has no prompt".into()));
        }
        if receipt.answer.as_ref().is_some_and(|answer| answer.start > receipt.prompt_ids.len()) {
            return Err(damaged("its answer begins behind its prompt".into()));
        }
        let (tokens, links) = (receipt.output_ids.len(), receipt.chain.len());
        if tokens != links {
            return Err(damaged(format!("it has {tokens} tokens of output, but {links} digests of logits")));
        }
        Ok(receipt)
    }

    /// Whether this model under this arithmetic is what it was made with.
    pub fn check(&self, model: Digest, profile: &str) -> Result<(), ReceiptError> {
        if self.model.sha256 != model {
            let (expected, file) = (self.model.sha256, self.model.file.clone());
            return Err(ReceiptError::Model { expected, found: model, file });
        }
        if self.profile != profile {
            let (expected, found) = (self.profile.clone(), profile.to_owned());
            return Err(ReceiptError::Profile { expected, found });
        }
        Ok(())
    }

    /// Where its chain begins.
    pub fn new_chain(&self) -> LogitsChain {
        LogitsChain::new(self.model.sha256, &self.profile, &self.prompt_ids)
    }

    fn digest(&self) -> Digest {
        // Of numbers, texts and lists; nothing in it fails to be JSON.
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// JSON with a line for each member of the outermost object.
struct MemberALine {
    depth: usize,
}

impl Formatter for MemberALine {
    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth += 1;
        to.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.depth -= 1;
        to.write_all(if self.depth == 0 { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b"," })?;
        to.write_all(if self.depth == 1 { b"\n" } else { b"" })
    }
}

#[cfg(test)]
mod tests;
