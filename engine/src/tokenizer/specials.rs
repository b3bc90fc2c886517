//! Finding special tokens in a text.
//!
//! The rule is llama.cpp's (`tokenizer_st_partition`): take the special tokens from the longest to the shortest; each
//! claims, from left to right, its occurrences in the text that longer ones left. The rest is text for the tokenizer.
//! A vocabulary may have thousands of special tokens and a text usually holds a handful, so one pass of an automaton
//! finds which ones occur at all.
//!
//! Phi-3's special tokens take the white space that follows them, as they did in training. Files do not say it, so
//! that llama.cpp goes by the model's name, and so does this.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use unisonic_core::format::{Metadata, MetadataError};

use super::vocabulary::Vocabulary;
use super::{TokenKind, TokenizerError};

/// Whether special tokens written in a text become those tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// `<|im_end|>` in the text is the token of that name.
    Parse,
    /// `<|im_end|>` in the text is ten characters. User-defined tokens, which are text, are still found.
    Literal,
}

/// A stretch of a text: one token, or text that is still to be tokenised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment<'t> {
    /// A special token that was found.
    Token(u32),
    /// What lies between; never empty.
    Text(&'t str),
}

struct Special {
    id: u32,
    text: String,
    kind: TokenKind,
    /// Whether it takes the white space behind it.
    takes_space: bool,
}

/// The special tokens of a vocabulary, longest first.
pub struct SpecialTokens {
    specials: Vec<Special>,
    automaton: Option<AhoCorasick>,
}

impl SpecialTokens {
    /// Collects the control, unknown and user-defined tokens. Ties in length go to the lower id.
    pub(super) fn from_metadata(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        let is_phi3 = is_phi3(metadata)?;
        let is_special =
            |kind| matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined);
        let mut specials: Vec<Special> = vocabulary
            .iter()
            .filter(|&(id, text, kind)| is_special(kind) && text != format!("[EMPTY_{id}]"))
            .map(|(id, text, kind)| Special {
                id,
                text: text.to_owned(),
                kind,
                takes_space: is_phi3 && !matches!(text, "<unk>" | "<s>" | "<|endoftext|>"),
            })
            .collect();
        specials.sort_by_key(|s| std::cmp::Reverse(s.text.len()));
        let automaton = match specials.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::Standard)
                    .kind(Some(AhoCorasickKind::ContiguousNFA))
                    .build(specials.iter().map(|s| &s.text))
                    .map_err(|e| TokenizerError::Internal {
                        part: "special-token search",
                        detail: e.to_string(),
                    })?,
            ),
        };
        Ok(Self { specials, automaton })
    }

    /// Splits a text at the special tokens that `mode` looks for.
    pub fn partition<'t>(&self, text: &'t str, mode: Specials) -> Vec<Fragment<'t>> {
        let mut matches: Vec<(usize, usize, &Special)> = Vec::new();
        let mut taken = vec![0u8; text.len()];
        for index in self.occurring(text, mode) {
            if let Some(special) = self.specials.get(index) {
                claim(text, special, &mut taken, &mut matches);
            }
        }
        matches.sort_unstable_by_key(|&(start, ..)| start);
        let mut fragments = Vec::with_capacity(2 * matches.len() + 1);
        let mut end = 0;
        for (start, special_end, special) in matches {
            fragments.extend(text.get(end..start).filter(|t| !t.is_empty()).map(Fragment::Text));
            fragments.push(Fragment::Token(special.id));
            end = special_end;
            if special.takes_space {
                let rest = text.get(end..).unwrap_or_default();
                end += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']).len();
            }
        }
        fragments.extend(text.get(end..).filter(|t| !t.is_empty()).map(Fragment::Text));
        fragments
    }

    /// Byte ranges of every occurrence, overlapping ones too, of a control or unknown token in a text, in no order.
    pub fn control_occurrences(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        automaton
            .find_overlapping_iter(text)
            .filter(|m| self.specials.get(m.pattern().as_usize()).is_some_and(Special::is_control))
            .map(|m| m.range())
            .collect()
    }

    /// Texts of the control and unknown tokens.
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        self.specials.iter().filter(|s| s.is_control()).map(|s| s.text.as_str())
    }

    /// Texts of all special tokens.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.specials.iter().map(|s| s.text.as_str())
    }

    /// Indices into `specials`, ascending (so longest first), of those that occur in the text.
    fn occurring(&self, text: &str, mode: Specials) -> Vec<usize> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut seen = vec![false; self.specials.len()];
        for found in automaton.find_overlapping_iter(text) {
            if let Some(slot) = seen.get_mut(found.pattern().as_usize()) {
                *slot = true;
            }
        }
        let wanted = |s: &Special| mode == Specials::Parse || !s.is_control();
        let indices = seen.iter().zip(&self.specials).enumerate();
        indices.filter(|(_, (seen, special))| **seen && wanted(special)).map(|(i, _)| i).collect()
    }
}

impl Special {
    fn is_control(&self) -> bool {
        self.kind.is_control()
    }
}

fn is_phi3(metadata: &Metadata) -> Result<bool, MetadataError> {
    let name = metadata.string("general.name")?.unwrap_or_default().to_ascii_lowercase();
    Ok(name.contains("phi-3") || name.contains("phi3"))
}

/// Marks the occurrences of one special token that no longer one has taken. A taken stretch is at least as long as
/// this token, so it overlaps an occurrence exactly if it covers the occurrence's first or last byte.
fn claim<'s>(
    text: &str,
    special: &'s Special,
    taken: &mut [u8],
    matches: &mut Vec<(usize, usize, &'s Special)>,
) {
    let finder = memchr::memmem::Finder::new(&special.text);
    let mut from = 0;
    while let Some(at) = text.as_bytes().get(from..).and_then(|rest| finder.find(rest)) {
        let start = from + at;
        let end = start + special.text.len();
        let covered = |i: usize| taken.get(i).is_none_or(|&t| t != 0);
        if covered(start) {
            let free = taken.get(start..).and_then(|rest| memchr::memchr(0, rest));
            let Some(free) = free else { break };
            from = start + free;
        } else if covered(end - 1) {
            from = start + 1;
        } else {
            if let Some(stretch) = taken.get_mut(start..end) {
                stretch.fill(1);
            }
            matches.push((start, end, special));
            from = end;
        }
    }
}
