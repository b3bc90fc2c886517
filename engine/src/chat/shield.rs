//! Taking the control tokens in messages apart; the reasons are in [the module above](super).

use std::collections::BTreeSet;

use super::ChatError;
use crate::tokenizer::SpecialTokens;

/// Roles that templates know. Some of them make a control token of a role, such as `<|user|>`: these may.
const KNOWN_ROLES: [&str; 8] =
    ["system", "user", "assistant", "tool", "developer", "function", "model", "ipython"];

/// Names and values in tools and their calls that templates look for. Like roles, these stay as they are.
const KNOWN_WORDS: [&str; 22] = [
    "type",
    "function",
    "id",
    "name",
    "description",
    "parameters",
    "arguments",
    "properties",
    "required",
    "items",
    "enum",
    "string",
    "number",
    "integer",
    "boolean",
    "object",
    "array",
    "null",
    "default",
    "title",
    "format",
    "strict",
];

const ROLE_LEN_MAX_BYTES: usize = 64;

/// A character that neither the template, nor the messages, nor a special token contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shield {
    marker: char,
}

impl Shield {
    /// Picks the marker: the first noncharacter or private-use character that is free.
    pub fn choose<'t>(
        specials: &'t SpecialTokens,
        template: &'t str,
        texts: impl Iterator<Item = &'t str>,
    ) -> Result<Self, ChatError> {
        let mut used: BTreeSet<char> = BTreeSet::new();
        for text in texts.chain([template]).chain(specials.texts()) {
            used.extend(text.chars().filter(|c| ('\u{e000}'..='\u{fdef}').contains(c)));
        }
        let mut candidates = ('\u{fdd0}'..='\u{fdef}').chain('\u{e000}'..='\u{f8ff}');
        candidates.find(|c| !used.contains(c)).map(|marker| Self { marker }).ok_or(ChatError::NoMarker)
    }

    /// A message's content with markers in it, so that no control token is in it, begins in it or ends in it.
    pub fn content(self, specials: &SpecialTokens, content: &str) -> Result<String, ChatError> {
        let mut breaks = BTreeSet::new();
        for found in specials.control_occurrences(content) {
            let token = content.get(found.clone()).unwrap_or_default();
            let first_len = token.chars().next().map_or(0, char::len_utf8);
            if first_len == token.len() {
                return Err(ChatError::ControlCharacter { character: token.to_owned() });
            }
            breaks.insert(found.start + first_len);
        }
        // Templates often trim, so that what touches the template's text is the trimmed content.
        let trimmed_start = content.len() - content.trim_start().len();
        let trimmed_end = content.trim_end().len();
        for (start, end) in [(0, content.len()), (trimmed_start, trimmed_end)] {
            let Some(text) = content.get(start..end).filter(|text| !text.is_empty()) else { continue };
            if specials.control_texts().any(|token| token_may_end_in(token, text)) {
                breaks.insert(start);
            }
            if specials.control_texts().any(|token| token_may_begin_in(token, text)) {
                breaks.insert(end);
            }
        }
        let mut shielded = String::with_capacity(content.len() + breaks.len() * self.marker.len_utf8());
        let mut from = 0;
        for at in breaks {
            shielded.push_str(content.get(from..at).unwrap_or_default());
            shielded.push(self.marker);
            from = at;
        }
        shielded.push_str(content.get(from..).unwrap_or_default());
        Ok(shielded)
    }

    /// A text in data: as a content, unless it is a word that templates look for.
    pub fn word(self, specials: &SpecialTokens, text: &str) -> Result<String, ChatError> {
        if KNOWN_WORDS.contains(&text) { Ok(text.to_owned()) } else { self.content(specials, text) }
    }

    /// The text without the markers.
    pub fn remove(self, text: &str) -> String {
        text.chars().filter(|&c| c != self.marker).collect()
    }
}

/// Checks that a role is a plain word and no part of a control token, since templates compare roles and write them next
/// to their own text: a marker in it would break the former, the latter could complete a token.
pub fn check_role(specials: &SpecialTokens, role: &str) -> Result<(), ChatError> {
    if KNOWN_ROLES.contains(&role) {
        return Ok(());
    }
    let refuse = |problem: String| Err(ChatError::Role { role: role.to_owned(), problem });
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if role.is_empty() || role.len() > ROLE_LEN_MAX_BYTES || !role.chars().all(is_plain) {
        return refuse(format!("a role is 1 to {ROLE_LEN_MAX_BYTES} ASCII letters, digits, `_` or `-`"));
    }
    let touches = |token: &&str| {
        role.contains(token) || token_may_end_in(token, role) || token_may_begin_in(token, role)
    };
    match specials.control_texts().find(touches) {
        Some(token) => refuse(format!("it could become a part of the control token {token:?}")),
        None => Ok(()),
    }
}

/// Whether text before could make the token with the beginning of this text, or with all of it and text behind.
fn token_may_end_in(token: &str, text: &str) -> bool {
    let mut tails = token.char_indices().skip(1).filter_map(|(at, _)| token.get(at..));
    tails.any(|tail| text.starts_with(tail) || tail.starts_with(text))
}

/// Whether text behind could make the token with the end of this text.
fn token_may_begin_in(token: &str, text: &str) -> bool {
    let mut heads = token.char_indices().skip(1).filter_map(|(at, _)| token.get(..at));
    heads.any(|head| text.ends_with(head))
}
