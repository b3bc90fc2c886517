//! SentencePiece BPE ("SPM"): the pair of neighbours that make the highest-scored token is merged first.
//!
//! This is llama.cpp's `llm_tokenizer_spm`, which the models' files are made for: start with characters; as long as
//! two neighbours put together are a token, merge the pair whose token has the highest score, the leftmost on a tie;
//! what is then no token is written as bytes `<0xXX>`. Scores rank tokens, not pairs, and may be equal, so they are not
//! made into merge rules. See docs/decisions/0002-spm-merging.md.

use unisonic_core::format::{Metadata, Value};

use super::merging::{Merge, Merging};
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
        let byte_ids = (0..=255u8).map(|byte| vocabulary.byte_id(byte)).collect();
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
        let merge = |from: usize, to: usize| {
            let id = vocabulary.text_id(text.get(from..to)?)?;
            let urgency = *self.order.get(id as usize)?;
            Some(Merge { urgency, id })
        };
        let mut merging = Merging::default();
        let characters = text.chars().map(|c| (c.len_utf8(), None));
        for symbol in merging.run(characters, |left, right| merge(left.start, right.start + right.len)) {
            match symbol.id {
                Some(id) => ids.push(id),
                None => {
                    let character = text.get(symbol.start..symbol.start + symbol.len).unwrap_or_default();
                    self.append(vocabulary, character, ids)?;
                }
            }
        }
        Ok(())
    }

    /// Appends a character: its token, or else its bytes, or else the unknown token.
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
