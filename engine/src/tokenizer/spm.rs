//! SentencePiece BPE ("SPM"): the pair of neighbours that make the highest-scored token is merged first.
//!
//! This is llama.cpp's `llm_tokenizer_spm`, which the models' files are made for: start with characters; as long as
//! two neighbours put together are a token, merge the pair whose token has the highest score, the leftmost on a tie;
//! what is then no token is written as bytes `<0xXX>`. The `tokenizers` crate's BPE cannot stand in for it: it ranks
//! pairs by a list of merge rules, which these files do not have, which would have to be rebuilt from half a million
//! splits, and in which no two pairs rank equal. See docs/decisions/0002-spm-merging.md.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use unisonic_core::format::{Metadata, Value};

use super::{TokenizerError, Vocabulary};

const SCORES: &str = "tokenizer.ggml.scores";

/// The scores of a vocabulary and its byte tokens.
pub struct Spm {
    /// Each score as an integer of the same order.
    order: Vec<i32>,
    byte_ids: Vec<Option<u32>>,
    unknown: Option<u32>,
    space_prefix: bool,
}

impl Spm {
    /// Reads `tokenizer.ggml.scores` (all equal if absent) and `tokenizer.ggml.add_space_prefix` (true if absent).
    pub fn from_metadata(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let expected = vocabulary.count() as usize;
        let order = match metadata.get(SCORES) {
            None => vec![0; expected],
            Some(Value::I32s(scores)) => scores.clone(),
            Some(_) => order_of_scores(metadata.f32s(SCORES)?.unwrap_or_default())?,
        };
        if order.len() != expected {
            return Err(TokenizerError::LengthMismatch { key: SCORES, expected, found: order.len() });
        }
        let byte_ids = (0..=255u8).map(|byte| vocabulary.id(&format!("<0x{byte:02X}>"))).collect();
        let space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(Self { order, byte_ids, unknown, space_prefix })
    }

    /// Appends the ids of a text without special tokens. A text at the start of a prompt or after a special token
    /// gets a space in front if the file asks for it.
    pub fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        after_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let prefix = if self.space_prefix && after_special { "▁" } else { "" };
        let text = [prefix, &text.replace(' ', "▁")].concat();
        let mut merging = Merging::new(self, vocabulary, &text);
        merging.run();
        for symbol in merging.symbols.iter().filter(|s| s.len > 0) {
            self.append(vocabulary, symbol.text(&text), ids)?;
        }
        Ok(())
    }

    /// Appends a token, or what stands for a character that is none: its bytes, or else the unknown token.
    fn append(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if let Some(id) = vocabulary.text_id(text) {
            ids.push(id);
            return Ok(());
        }
        let bytes: Option<Vec<u32>> =
            text.bytes().map(|b| self.byte_ids.get(usize::from(b)).copied().flatten()).collect();
        match (bytes, self.unknown) {
            (Some(bytes), _) => ids.extend(bytes),
            (None, Some(unknown)) => ids.push(unknown),
            (None, None) => {
                return Err(TokenizerError::Unencodable {
                    character: text.chars().next().unwrap_or_default(),
                });
            }
        }
        Ok(())
    }
}

fn order_of_scores(scores: &[f32]) -> Result<Vec<i32>, TokenizerError> {
    let order = |(index, &score): (usize, &f32)| {
        if score.is_nan() {
            return Err(TokenizerError::ScoreIsNan { index });
        }
        // Adding zero makes -0 the same as 0; then the bits of negative numbers run backwards.
        let bits = (score + 0.0).to_bits() as i32;
        Ok(if bits < 0 { bits ^ i32::MAX } else { bits })
    };
    scores.iter().enumerate().map(order).collect()
}

/// A stretch of the text in a doubly linked list. A stretch that was merged into its left neighbour has length 0.
struct Symbol {
    start: usize,
    len: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

impl Symbol {
    fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

/// Two neighbours that make a token. Ordered by score, then from the left.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    order: i32,
    left: Reverse<usize>,
    right: usize,
    /// Length of both when they were paired; if it has changed, one of them was merged with another.
    len: usize,
}

struct Merging<'m> {
    spm: &'m Spm,
    vocabulary: &'m Vocabulary,
    text: &'m str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl<'m> Merging<'m> {
    fn new(spm: &'m Spm, vocabulary: &'m Vocabulary, text: &'m str) -> Self {
        let symbol = |(i, (start, c)): (usize, (usize, char))| Symbol {
            start,
            len: c.len_utf8(),
            prev: i.checked_sub(1),
            next: Some(i + 1),
        };
        let mut symbols: Vec<Symbol> = text.char_indices().enumerate().map(symbol).collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut merging = Self { spm, vocabulary, text, symbols, pairs: BinaryHeap::new() };
        for right in 1..merging.symbols.len() {
            merging.pair(Some(right - 1), Some(right));
        }
        merging
    }

    /// n·log n: each merge removes a symbol and adds at most two pairs, and a look-up costs no more than the longest
    /// token is long.
    fn run(&mut self) {
        while let Some(pair) = self.pairs.pop() {
            let left = pair.left.0;
            let (Some(l), Some(r)) = (self.symbols.get(left), self.symbols.get(pair.right)) else { continue };
            if l.len == 0 || r.len == 0 || l.len + r.len != pair.len {
                continue;
            }
            let (prev, next) = (l.prev, r.next);
            if let Some(r) = self.symbols.get_mut(pair.right) {
                r.len = 0;
            }
            if let Some(l) = self.symbols.get_mut(left) {
                l.len = pair.len;
                l.next = next;
            }
            if let Some(after) = next.and_then(|i| self.symbols.get_mut(i)) {
                after.prev = Some(left);
            }
            self.pair(prev, Some(left));
            self.pair(Some(left), next);
        }
    }

    fn pair(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (Some(l), Some(r)) = (self.symbols.get(left), self.symbols.get(right)) else { return };
        let len = l.len + r.len;
        let id = self.text.get(l.start..l.start + len).and_then(|text| self.vocabulary.text_id(text));
        if let Some(&order) = id.and_then(|id| self.spm.order.get(id as usize)) {
            self.pairs.push(Pair { order, left: Reverse(left), right, len });
        }
    }
}
