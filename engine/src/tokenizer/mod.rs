//! Text to token ids and back, from the vocabulary in a GGUF file.
//!
//! Start at [`Tokenizer::from_metadata`]. Two kinds exist: BPE by rules (`gpt2`: a pre-tokenizer cuts pieces, their
//! bytes are merged; `gemma4`: the same with lines and characters) and SentencePiece BPE (`llama`: the whole text is
//! merged by scores). Both equal llama.cpp token by token. Special tokens are found before either runs,
//! and only where the caller asks; chat prompts have their own rule, in [`crate::chat`].

mod bpe;
mod byte_symbols;
mod detokenizer;
mod error;
mod merging;
mod pretokenizer;
mod specials;
mod spm;
mod stops;
mod vocabulary;

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

use unisonic_core::format::{Metadata, required};

pub use byte_symbols::SYMBOLS as BYTE_SYMBOLS;
pub use detokenizer::Detokenizer;
pub use error::TokenizerError;
pub use specials::{Fragment, SpecialTokens, Specials};
pub use vocabulary::TokenKind;

use bpe::Bpe;
use pretokenizer::{AddBos, Pre, Spelling};
use spm::Spm;
use vocabulary::Vocabulary;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const BOS_ID: &str = "tokenizer.ggml.bos_token_id";
const EOS_ID: &str = "tokenizer.ggml.eos_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

/// Whether control tokens show in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlTokens {
    /// They have no text.
    Hide,
    /// Their text is their name, such as `<|im_end|>`.
    Show,
}

enum Model {
    Bpe(Box<Bpe>),
    Spm(Spm),
}

/// A file's vocabulary with its rules.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    specials: SpecialTokens,
    model: Model,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    stops: Vec<u32>,
}

impl Tokenizer {
    /// Reads the `tokenizer.ggml.*` keys and checks them.
    ///
    /// Defaults are llama.cpp's: SPM prompts begin with BOS, of byte-level BPE only those of the llama-bpe family;
    /// SPM's BOS, EOS and unknown tokens are 1, 2 and 0. A file without a pre-tokenizer's name is taken, with a
    /// warning, to mean `default`.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let model = required(metadata.string(MODEL), MODEL, "a string")?;
        let mut vocabulary = Vocabulary::from_metadata(metadata)?;
        let stops = stops::find_stops(&mut vocabulary, metadata)?;
        let bos = token_id(metadata, BOS_ID, &vocabulary)?;
        let eos = token_id(metadata, EOS_ID, &vocabulary)?;
        let (model, bos, eos, add_bos) = match model {
            "gpt2" | "gemma4" => {
                let pre = if model == "gemma4" { Pre::GEMMA4 } else { pre_from_metadata(metadata)? };
                let bpe = Bpe::from_metadata(metadata, &vocabulary, pre)?;
                (Model::Bpe(Box::new(bpe)), bos, eos, pre.add_bos)
            }
            "llama" => {
                let usual = |id| (id < vocabulary.count()).then_some(id);
                let unknown = token_id(metadata, "tokenizer.ggml.unknown_token_id", &vocabulary)?;
                let spm = Spm::from_metadata(metadata, &vocabulary, unknown.or(usual(0)))?;
                (Model::Spm(spm), bos.or(usual(1)), eos.or(usual(2)), AddBos::Yes)
            }
            other => return Err(TokenizerError::UnknownModel { found: other.to_owned() }),
        };
        let add_bos = match (metadata.bool(ADD_BOS)?, add_bos) {
            (Some(false), AddBos::Always) if bos.is_some() => {
                tracing::warn!(
                    "metadata key `{ADD_BOS}` is false, but this tokenizer's prompts begin with BOS"
                );
                true
            }
            (Some(says), _) => says,
            (None, add) => add != AddBos::No && bos.is_some(),
        };
        let add_eos = metadata.bool(ADD_EOS)?.unwrap_or(false);
        for (add, id, key, id_key) in [(add_bos, bos, ADD_BOS, BOS_ID), (add_eos, eos, ADD_EOS, EOS_ID)] {
            if add && id.is_none() {
                return Err(TokenizerError::AddedTokenUnknown { key, id_key });
            }
        }
        let specials = SpecialTokens::from_metadata(metadata, &vocabulary)?;
        Ok(Self { vocabulary, specials, model, bos, eos, add_bos, add_eos, stops })
    }

    /// Ids of a text, without BOS or EOS.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        self.encode_fragments(self.specials.partition(text, specials), &mut ids)?;
        Ok(ids)
    }

    /// Ids of a prompt, with BOS in front and EOS behind where the file asks for them. A BOS that the text already
    /// holds (with [`Specials::Parse`]) stays, so that such a prompt has two: a raw prompt is taken as it is.
    pub fn encode_prompt(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TokenizerError> {
        let mut ids: Vec<u32> = self.bos.filter(|_| self.add_bos).into_iter().collect();
        self.encode_fragments(self.specials.partition(text, specials), &mut ids)?;
        ids.extend(self.eos.filter(|_| self.add_eos));
        Ok(ids)
    }

    /// Appends the ids of a text that was already split at its special tokens. The first fragment counts as the
    /// beginning of the prompt.
    pub fn encode_fragments<'t>(
        &self,
        fragments: impl IntoIterator<Item = Fragment<'t>>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut after_special = true;
        for fragment in fragments {
            match (fragment, &self.model) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Model::Bpe(bpe)) => bpe.encode(&self.vocabulary, text, ids),
                (Fragment::Text(text), Model::Spm(spm)) => {
                    spm.encode(&self.vocabulary, text, after_special, ids)?;
                }
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        Ok(())
    }

    /// The bytes that a token adds to an output. Unused tokens, and ids beyond the vocabulary, add nothing.
    pub fn token_bytes(&self, id: u32, controls: ControlTokens) -> Cow<'_, [u8]> {
        let (Some(text), Some(kind)) = (self.vocabulary.text(id), self.vocabulary.kind(id)) else {
            return Cow::Borrowed(&[]);
        };
        match (kind, &self.model) {
            (TokenKind::Control | TokenKind::Unknown, _) => match controls {
                ControlTokens::Hide => Cow::Borrowed(&[]),
                ControlTokens::Show => Cow::Borrowed(text.as_bytes()),
            },
            (TokenKind::UserDefined, _) => Cow::Borrowed(text.as_bytes()),
            (TokenKind::Byte, _) => Cow::Owned(vocabulary::byte_of(text).into_iter().collect()),
            (TokenKind::Normal, Model::Bpe(bpe)) if bpe.spelling() == Spelling::Bytes => {
                Cow::Owned(bytes_of_symbols(text))
            }
            (TokenKind::Normal, _) => Cow::Owned(text.replace('▁', " ").into_bytes()),
            (TokenKind::Unused | TokenKind::Undefined, _) => Cow::Borrowed(&[]),
        }
    }

    /// Text of a whole output; bytes that are no UTF-8 become U+FFFD. For output as it comes: [`Detokenizer`].
    pub fn decode(&self, ids: &[u32], controls: ControlTokens) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.token_bytes(id, controls).into_owned()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The token that begins a text, if the file has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text, if the file has one.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether prompts begin with BOS; then [`Self::bos`] is some.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a generation ends with this token: EOS, the end of a turn or message, and what llama.cpp counts too.
    pub fn is_stop(&self, id: u32) -> bool {
        self.stops.binary_search(&id).is_ok()
    }

    /// Ids for which [`Self::is_stop`] holds, ascending.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Number of tokens.
    pub fn vocab_len(&self) -> u32 {
        self.vocabulary.count()
    }

    /// Text of a token as it stands in the file; for output see [`Self::token_bytes`].
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.text(id)
    }

    /// Kind of a token: the file's, but control for texts that are known to be.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.vocabulary.kind(id)
    }

    /// The tokens that are searched for in texts.
    pub fn specials(&self) -> &SpecialTokens {
        &self.specials
    }
}

/// Bytes of a token in byte symbols. A character that is no symbol stands for itself.
fn bytes_of_symbols(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for symbol in text.chars() {
        match byte_symbols::byte_of_symbol(symbol) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(symbol.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn pre_from_metadata(metadata: &Metadata) -> Result<Pre, TokenizerError> {
    let Some(name) = metadata.string(PRE)? else {
        tracing::warn!(
            "the file does not say how its model's text is cut (metadata key `{PRE}`); it is cut by the rule \
             `default`, which may not be the model's, so that answers may be worse; a newer conversion says it"
        );
        return Ok(Pre::DEFAULT);
    };
    Pre::from_name(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
        found: name.to_owned(),
        supported: Pre::names().collect::<Vec<_>>().join(", "),
    })
}

/// A token id in the metadata, checked against the vocabulary.
fn token_id(
    metadata: &Metadata,
    key: &'static str,
    vocabulary: &Vocabulary,
) -> Result<Option<u32>, TokenizerError> {
    match metadata.u32(key)? {
        Some(id) if id >= vocabulary.count() => {
            Err(TokenizerError::IdOutOfRange { key, id, last: vocabulary.count() - 1 })
        }
        id => Ok(id),
    }
}
