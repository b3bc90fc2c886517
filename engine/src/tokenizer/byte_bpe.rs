//! Byte-level BPE: words of bytes, merged pair by pair in the order of the merge rules.
//!
//! The merging itself is the `tokenizers` crate's [`BPE`]. The merge rules are checked here first: the crate expects a
//! consistent set and would panic on, or swallow, what a damaged file may hold.

use std::sync::atomic::{AtomicBool, Ordering};

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;
use unisonic_core::format::{Metadata, required};

use super::byte_symbols::SYMBOLS;
use super::pretokenizer::Pre;
use super::{TokenizerError, Vocabulary};

const MERGES: &str = "tokenizer.ggml.merges";

/// The merge rules of a vocabulary and its pre-tokenizer.
pub struct ByteBpe {
    pre: Pre,
    model: BPE,
    /// Whether each byte has a token. Real vocabularies miss bytes that never occur in UTF-8, and some control bytes.
    has_symbol: [bool; 256],
    warned: AtomicBool,
}

impl ByteBpe {
    /// Reads `tokenizer.ggml.merges`: rule `i` says that two adjacent tokens make a third, with rank `i`. Of two rules
    /// for the same pair the first counts. Control tokens are left out, so that text never becomes one, neither by
    /// rules nor as a word that is a token as a whole.
    pub fn from_metadata(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        pre: Pre,
    ) -> Result<Self, TokenizerError> {
        let rules = required(metadata.strings(MERGES), MERGES, "an array of strings")?;
        let mut seen = ahash::AHashSet::with_capacity(rules.len());
        let mut merges = Vec::with_capacity(rules.len());
        let mut joined = String::new();
        for (index, rule) in rules.iter().enumerate() {
            let (left, right) = check_rule(rule, vocabulary, &mut joined)
                .map_err(|problem| TokenizerError::Merge { index, text: rule.to_owned(), problem })?;
            let is_text =
                [left, right, joined.as_str()].iter().all(|part| vocabulary.text_id(part).is_some());
            if is_text && seen.insert((left, right)) {
                merges.push((left.to_owned(), right.to_owned()));
            }
        }
        let texts = vocabulary.iter().filter(|(_, _, kind)| !kind.is_control());
        let ids: AHashMap<String, u32> = texts.map(|(id, text, _)| (text.to_owned(), id)).collect();
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(pre.ignore_merges)
            .build()
            .map_err(|e| TokenizerError::Internal { part: "BPE model", detail: e.to_string() })?;
        let mut buffer = [0; 4];
        let has_symbol = SYMBOLS.map(|symbol| vocabulary.text_id(symbol.encode_utf8(&mut buffer)).is_some());
        Ok(Self { pre, model, has_symbol, warned: AtomicBool::new(false) })
    }

    /// Appends the ids of a text without special tokens. Bytes that the vocabulary cannot write are left out, as in
    /// llama.cpp and in the models' own tokenizers.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut symbols = String::new();
        for word in self.pre.words.words(text) {
            symbols.clear();
            symbols.extend(word.bytes().map(|b| SYMBOLS[usize::from(b)]));
            if word.bytes().all(|b| self.has_symbol[usize::from(b)])
                || (self.pre.ignore_merges && self.model.token_to_id(&symbols).is_some())
            {
                self.merge(&symbols, ids)?;
            } else {
                self.merge_around_gaps(word, ids)?;
            }
        }
        Ok(())
    }

    fn merge(&self, symbols: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let tokens = self
            .model
            .tokenize(symbols)
            .map_err(|e| TokenizerError::Internal { part: "BPE model", detail: e.to_string() })?;
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }

    /// The crate would drop a byte without a token before merging and so merge its neighbours with each other.
    fn merge_around_gaps(&self, word: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(?word, "the vocabulary has no token for a byte of this text; it is left out");
        }
        for part in word.as_bytes().split(|&b| !self.has_symbol[usize::from(b)]) {
            let symbols: String = part.iter().map(|&b| SYMBOLS[usize::from(b)]).collect();
            self.merge(&symbols, ids)?;
        }
        Ok(())
    }
}

/// Splits a rule at its space (a token may begin with one) and checks that all three tokens exist.
fn check_rule<'r>(
    rule: &'r str,
    vocabulary: &Vocabulary,
    joined: &mut String,
) -> Result<(&'r str, &'r str), String> {
    let body_start = rule.chars().next().map_or(0, char::len_utf8);
    let space = rule.get(body_start..).and_then(|body| body.find(' ')).map(|at| at + body_start);
    let parts = space.and_then(|at| Some((rule.get(..at)?, rule.get(at + 1..)?)));
    let Some((left, right)) = parts.filter(|(_, right)| !right.is_empty()) else {
        return Err("a merge rule is two tokens with a space between them".to_owned());
    };
    joined.clear();
    joined.push_str(left);
    joined.push_str(right);
    match [left, right, joined.as_str()].into_iter().find(|part| vocabulary.id(part).is_none()) {
        Some(missing) => Err(format!("{missing:?} is not a token of `tokenizer.ggml.tokens`")),
        None => Ok((left, right)),
    }
}
