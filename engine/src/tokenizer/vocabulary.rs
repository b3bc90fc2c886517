//! The tokens of a file: their texts, their kinds, and the way back from text to id.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use unisonic_core::format::{Metadata, Strings, required};

use super::TokenizerError;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// What a token is for (`llama.h`, `enum llama_token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Steers the model, such as the end of a turn; is no text.
    Control,
    /// A piece of text that is never split, whatever the tokenizer would do.
    UserDefined,
    /// Fills a gap in the ids.
    Unused,
    /// One byte, for text that has no token.
    Byte,
    /// The file gives a type that does not exist.
    Undefined,
}

impl TokenKind {
    fn from_file(value: i32) -> Self {
        match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Undefined,
        }
    }

    /// Whether it is no text, so that only [`super::Specials::Parse`] finds it in one.
    pub fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// Texts and kinds by id, ids by text. Ids are `0..count`.
pub struct Vocabulary {
    tokens: Strings,
    kinds: Vec<TokenKind>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    longest_len_bytes: usize,
}

impl Vocabulary {
    /// Reads `tokenizer.ggml.tokens` and, if there, `tokenizer.ggml.token_type`. An empty text becomes
    /// `[EMPTY_<id>]`, as in llama.cpp.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let tokens = required(metadata.strings(TOKENS), TOKENS, "an array of strings")?;
        let count = tokens.len();
        if count == 0 || i32::try_from(count).is_err() {
            return Err(TokenizerError::VocabularySize { count });
        }
        let kinds = match metadata.i32s(TOKEN_TYPE)? {
            None => vec![TokenKind::Normal; count],
            Some(types) if types.len() == count => types.iter().map(|&t| TokenKind::from_file(t)).collect(),
            Some(types) => {
                return Err(TokenizerError::LengthMismatch {
                    key: TOKEN_TYPE,
                    expected: count,
                    found: types.len(),
                });
            }
        };
        let tokens = if tokens.iter().any(str::is_empty) { name_empty(tokens) } else { tokens.clone() };
        Self::index(tokens, kinds)
    }

    fn index(tokens: Strings, kinds: Vec<TokenKind>) -> Result<Self, TokenizerError> {
        let hasher = DefaultHashBuilder::default();
        let mut ids: HashTable<u32> = HashTable::with_capacity(tokens.len());
        let mut longest_len_bytes = 0;
        for (id, text) in (0u32..).zip(tokens.iter()) {
            let hash = hasher.hash_one(text);
            if let Some(&first) = ids.find(hash, |&other| tokens.get(other as usize) == Some(text)) {
                return Err(TokenizerError::DuplicateToken { text: text.to_owned(), first, second: id });
            }
            let rehash = |&other: &u32| hasher.hash_one(tokens.get(other as usize).unwrap_or_default());
            ids.insert_unique(hash, id, rehash);
            longest_len_bytes = longest_len_bytes.max(text.len());
        }
        for (index, text) in tokens.iter().enumerate() {
            if kinds.get(index) == Some(&TokenKind::Byte) && byte_of(text).is_none() {
                return Err(TokenizerError::ByteToken { index, text: text.to_owned() });
            }
        }
        Ok(Self { tokens, kinds, ids, hasher, longest_len_bytes })
    }

    /// Number of tokens.
    pub fn count(&self) -> u32 {
        self.kinds.len() as u32
    }

    /// Text as it stands in the file: BPE tokens in byte symbols, SPM tokens with `▁` for a space.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)
    }

    /// Kind of a token.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Overrides the file's kind.
    pub fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// Id of the token with exactly this text. Takes no time for a text longer than every token.
    pub fn id(&self, text: &str) -> Option<u32> {
        if text.len() > self.longest_len_bytes {
            return None;
        }
        let hash = self.hasher.hash_one(text);
        self.ids.find(hash, |&id| self.tokens.get(id as usize) == Some(text)).copied()
    }

    /// Id of the token that names a byte, such as `<0x0A>`.
    pub fn byte_id(&self, byte: u8) -> Option<u32> {
        self.id(&format!("<0x{byte:02X}>"))
    }

    /// Id of the token that a stretch of text may become: never a control or unknown token, which no text is.
    pub fn text_id(&self, text: &str) -> Option<u32> {
        self.id(text).filter(|&id| !self.kind(id).is_some_and(TokenKind::is_control))
    }

    /// All tokens by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenKind)> {
        (0u32..).zip(self.tokens.iter()).zip(&self.kinds).map(|((id, text), &kind)| (id, text, kind))
    }
}

fn name_empty(tokens: &Strings) -> Strings {
    let named = |(i, text): (usize, &str)| match text {
        "" => format!("[EMPTY_{i}]"),
        text => text.to_owned(),
    };
    tokens.iter().enumerate().map(named).collect()
}

/// The byte that a text such as `<0x0A>` names.
pub fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() != 2 || hex.starts_with('+') {
        return None;
    }
    u8::from_str_radix(hex, 16).ok()
}
