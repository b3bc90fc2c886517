//! What can be wrong with a vocabulary, or with a text that it should encode.

use unisonic_core::format::MetadataError;

/// A tokenizer could not be built, or a text could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// `tokenizer.ggml.model` names a kind that is not built in.
    #[error(
        "the file's tokenizer is of kind `{found}` (metadata key `tokenizer.ggml.model`), which is not supported; \
         supported are: gpt2 (byte-level BPE), gemma4 (BPE of characters), llama (SentencePiece BPE)"
    )]
    UnknownModel {
        /// The kind in the file.
        found: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not built in.
    #[error(
        "the file's pre-tokenizer is `{found}` (metadata key `tokenizer.ggml.pre`), which is not supported; \
         supported are: {supported}"
    )]
    UnknownPreTokenizer {
        /// The name in the file.
        found: String,
        /// Every name that works.
        supported: String,
    },
    /// The vocabulary holds no token, or more than ids can count.
    #[error("metadata key `tokenizer.ggml.tokens` holds {count} tokens; a vocabulary has 1 to 2147483647")]
    VocabularySize {
        /// Number of tokens in the file.
        count: usize,
    },
    /// Two ids have the same text.
    #[error(
        "metadata key `tokenizer.ggml.tokens` holds {text:?} twice, at index {first} and at index {second}; \
         every token needs its own text"
    )]
    DuplicateToken {
        /// The text.
        text: String,
        /// Lower id.
        first: u32,
        /// Higher id.
        second: u32,
    },
    /// An array does not go with the tokens.
    #[error(
        "metadata key `{key}` holds {found} entries, but `tokenizer.ggml.tokens` holds {expected}; \
         they must be as many"
    )]
    LengthMismatch {
        /// The key.
        key: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Entries in the array.
        found: usize,
    },
    /// A score that cannot be ordered.
    #[error("metadata key `tokenizer.ggml.scores` holds NaN at index {index}; scores are numbers")]
    ScoreIsNan {
        /// Index of the score, which is the token's id.
        index: usize,
    },
    /// A byte token without a byte in its text.
    #[error(
        "metadata key `tokenizer.ggml.tokens` holds {text:?} at index {index}, which `tokenizer.ggml.token_type` \
         calls a byte token; those are spelled <0x00> to <0xFF>"
    )]
    ByteToken {
        /// The token's id.
        index: usize,
        /// The token's text.
        text: String,
    },
    /// A special token's id is not in the vocabulary.
    #[error("metadata key `{key}` holds {id}, but the vocabulary has only the ids 0 to {last}")]
    IdOutOfRange {
        /// The key.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Highest id.
        last: u32,
    },
    /// A token is to be added to every prompt but not named.
    #[error("metadata key `{key}` is true, but the file has no key `{id_key}` that says which token to add")]
    AddedTokenUnknown {
        /// The key that asks for the token.
        key: &'static str,
        /// The key that should name it.
        id_key: &'static str,
    },
    /// A merge rule that is not two tokens that make a third.
    #[error("metadata key `tokenizer.ggml.merges` holds {text:?} at index {index}: {problem}")]
    Merge {
        /// Index of the rule, which is its rank.
        index: usize,
        /// The rule.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A character has no token, no byte tokens, and there is no unknown token.
    #[error(
        "the vocabulary has no token for {character:?}: neither the character, nor byte tokens such as <0x0A>, \
         nor an unknown token (metadata key `tokenizer.ggml.unknown_token_id`)"
    )]
    Unencodable {
        /// The character.
        character: char,
    },
    /// The search for special tokens could not be built.
    #[error("the tokenizer's {part} failed: {detail}; this is a fault of the program or of the vocabulary")]
    Internal {
        /// Which part.
        part: &'static str,
        /// What it said.
        detail: String,
    },
}
