//! BPE with merge rules: pieces of bytes or characters, merged pair by pair in the order of the rules.

use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use unisonic_core::format::{Metadata, required};

use super::byte_symbols::SYMBOLS;
use super::merging::{Merge, Merging, Symbol};
use super::pretokenizer::{Pre, Spelling};
use super::{TokenKind, TokenizerError, Vocabulary};

const MERGES: &str = "tokenizer.ggml.merges";

/// The merge rules of a vocabulary and its pre-tokenizer.
pub struct Bpe {
    pre: Pre,
    /// What a token and its right neighbour become.
    rules: HashMap<(u32, u32), Merge>,
    /// The token of each byte. Real vocabularies miss bytes that never occur in UTF-8, and some control bytes.
    byte_ids: Vec<Option<u32>>,
    warned: AtomicBool,
}

impl Bpe {
    /// Reads `tokenizer.ggml.merges`: rule `i` says that two adjacent tokens make a third, with rank `i`. Of two rules
    /// for the same pair the first counts.
    pub fn from_metadata(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        pre: Pre,
    ) -> Result<Self, TokenizerError> {
        let texts = required(metadata.strings(MERGES), MERGES, "an array of strings")?;
        let mut rules = HashMap::with_capacity(texts.len());
        let mut id = 0;
        for (index, text) in texts.iter().enumerate() {
            let error = |problem| TokenizerError::Merge { index, text: text.to_owned(), problem };
            let pair;
            (pair, id) = read_rule(text, vocabulary, id).map_err(error)?;
            let rank = i32::try_from(index).map_err(|_| error("no rule has a rank this high".to_owned()))?;
            // Text never becomes a control token.
            let is_control = |id| vocabulary.kind(id).is_some_and(TokenKind::is_control);
            if ![pair.0, pair.1, id].into_iter().any(is_control) {
                rules.entry(pair).or_insert(Merge { urgency: -rank, id });
            }
        }
        let byte_ids = (0..=255u8).map(|byte| byte_id(byte, vocabulary, pre.spelling)).collect();
        Ok(Self { pre, rules, byte_ids, warned: AtomicBool::new(false) })
    }

    /// What the tokens are spelled in.
    pub fn spelling(&self) -> Spelling {
        self.pre.spelling
    }

    /// Appends the ids of a text without special tokens. Bytes that the vocabulary cannot write are left out, as in
    /// llama.cpp and in the models' own tokenizers.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) {
        let mut merging = Merging::default();
        match self.pre.spelling {
            Spelling::Bytes => {
                for piece in self.pre.pieces(text) {
                    self.encode_bytes(vocabulary, piece, &mut merging, ids);
                }
            }
            Spelling::Characters => {
                for piece in self.pre.pieces(&text.replace(' ', "▁")) {
                    self.encode_characters(vocabulary, piece, &mut merging, ids);
                }
            }
        }
    }

    fn encode_bytes(&self, vocabulary: &Vocabulary, piece: &str, merging: &mut Merging, ids: &mut Vec<u32>) {
        if self.pre.ignore_merges {
            let symbols: String = piece.bytes().map(|byte| SYMBOLS[usize::from(byte)]).collect();
            if let Some(id) = vocabulary.text_id(&symbols) {
                ids.push(id);
                return;
            }
        }
        let bytes = piece.bytes().map(|byte| (1, self.byte_id(byte)));
        for symbol in merging.run(bytes, |left, right| self.merge(left, right)) {
            self.append(symbol.id, piece, ids);
        }
    }

    fn encode_characters(
        &self,
        vocabulary: &Vocabulary,
        piece: &str,
        merging: &mut Merging,
        ids: &mut Vec<u32>,
    ) {
        if let Some(id) = vocabulary.text_id(piece).filter(|_| piece.starts_with('\n')) {
            ids.push(id);
            return;
        }
        let id_of = |c: char| vocabulary.text_id(c.encode_utf8(&mut [0; 4]));
        let characters = piece.chars().map(|c| (c.len_utf8(), id_of(c)));
        for symbol in merging.run(characters, |left, right| self.merge(left, right)) {
            if symbol.id.is_some() {
                self.append(symbol.id, piece, ids);
                continue;
            }
            let character = piece.get(symbol.start..symbol.start + symbol.len).unwrap_or_default();
            for byte in character.bytes() {
                self.append(self.byte_id(byte), piece, ids);
            }
        }
    }

    fn merge(&self, left: &Symbol, right: &Symbol) -> Option<Merge> {
        self.rules.get(&(left.id?, right.id?)).copied()
    }

    fn byte_id(&self, byte: u8) -> Option<u32> {
        self.byte_ids.get(usize::from(byte)).copied().flatten()
    }

    fn append(&self, id: Option<u32>, piece: &str, ids: &mut Vec<u32>) {
        if id.is_none() && !self.warned.swap(true, Ordering::Relaxed) {
            let piece: String = piece.chars().take(40).collect();
            tracing::warn!(?piece, "the vocabulary has no token for a byte of this text; it is left out");
        }
        ids.extend(id);
    }
}

fn byte_id(byte: u8, vocabulary: &Vocabulary, spelling: Spelling) -> Option<u32> {
    match spelling {
        Spelling::Bytes => vocabulary.text_id(SYMBOLS[usize::from(byte)].encode_utf8(&mut [0; 4])),
        Spelling::Characters => vocabulary.byte_id(byte),
    }
}

/// Splits a rule at its space (a token may begin with one) and looks all three tokens up.
fn read_rule(rule: &str, vocabulary: &Vocabulary, last_id: u32) -> Result<((u32, u32), u32), String> {
    let body_start = rule.chars().next().map_or(0, char::len_utf8);
    let space = rule.get(body_start..).and_then(|body| body.find(' ')).map(|at| at + body_start);
    let parts = space.and_then(|at| Some((rule.get(..at)?, rule.get(at + 1..)?)));
    let Some((left, right)) = parts.filter(|(_, right)| !right.is_empty()) else {
        return Err("a merge rule is two tokens with a space between them".to_owned());
    };
    let look_up = |text: &str| {
        vocabulary.id(text).ok_or_else(|| format!("{text:?} is not a token of `tokenizer.ggml.tokens`"))
    };
    let pair = (look_up(left)?, look_up(right)?);
    // Ids usually follow the rules' order, which spares a third of the look-ups.
    let is_joined = |&id: &u32| vocabulary.text(id).and_then(|text| text.strip_prefix(left)) == Some(right);
    let near = [last_id, last_id.saturating_add(1)].into_iter().find(is_joined);
    let id = near.map_or_else(|| look_up(&[left, right].concat()), Ok)?;
    Ok((pair, id))
}
