//! What pre-tokenizers are made of: passes over the text, made of rules that match at a place.
//!
//! The models define them by regular expressions with look-ahead. A backtracking engine has a step limit that a long
//! run of spaces or letters exhausts, or it overflows the stack; and its time is quadratic where a run is tried again
//! at each of its characters. Each rule here is the meaning of one alternative, found by looking at each character a
//! bounded number of times.

use super::set::{BREAK, LETTER, LOWER, NONE, NUMBER, SPACE, Set, UPPER};

/// One cut of every piece that the passes before it made.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// From left to right, the first rule that matches at a place makes a piece; what lies between two matches is a
    /// piece too.
    Matches(&'static [Rule]),
    /// `\s+$`: the white space that ends a piece is a piece.
    TrailingSpace,
}

/// One alternative of a regular expression.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Characters of one set, with something before and behind: `lead? body{min,max} tail*`.
    Run(Run),
    /// `'s|'t|'re|'ve|'m|'ll|'d`, in lower case only or in any case.
    Contraction {
        /// Whether upper case counts.
        any_case: bool,
    },
    /// A word that ends where upper case begins, then a contraction in any case if `contracted`:
    /// `lead? U* L+ contraction? | lead? U+ L* contraction?`, where `U` is `\p{L}` without `a-z` and `L` without `A-Z`.
    CasedWord {
        /// What may come first.
        lead: Set,
        /// Whether a contraction belongs to the word.
        contracted: bool,
    },
    /// `\s*[\r\n]+`
    Breaks,
    /// `\s+(?!\S)`: white space up to the end of the piece, or else all but its last character, if that leaves some.
    SpacesButLast,
    /// `\s+`
    Spaces,
}

/// See [`Rule::Run`].
#[derive(Clone, Copy, Debug)]
pub struct Run {
    lead: Set,
    lead_required: bool,
    body: Set,
    min: usize,
    max: usize,
    tail: Set,
}

/// `body+`
pub const fn run(body: Set) -> Run {
    Run { lead: NONE, lead_required: false, body, min: 1, max: usize::MAX, tail: NONE }
}

impl Run {
    /// `lead? …`
    pub const fn after(self, lead: Set) -> Self {
        Self { lead, ..self }
    }

    /// `lead …`
    pub const fn after_one(self, lead: Set) -> Self {
        Self { lead, lead_required: true, ..self }
    }

    /// `body{min,max}`
    pub const fn times(self, min: usize, max: usize) -> Self {
        Self { min, max, ..self }
    }

    /// `… tail*`
    pub const fn then(self, tail: Set) -> Self {
        Self { tail, ..self }
    }

    /// The alternative.
    pub const fn rule(self) -> Rule {
        Rule::Run(self)
    }

    fn match_len(&self, text: &str) -> usize {
        let first = text.chars().next().filter(|&c| self.lead.contains(c));
        let lead = first.map_or(0, char::len_utf8);
        let with_lead = if lead > 0 { self.body_end(text, lead) } else { 0 };
        // The lead may be a character of the body too, and there be no other.
        if with_lead > 0 || self.lead_required { with_lead } else { self.body_end(text, 0) }
    }

    fn body_end(&self, text: &str, start: usize) -> usize {
        let body = text.get(start..).unwrap_or_default();
        let (mut count, mut end) = (0, 0);
        for c in body.chars().take(self.max).take_while(|&c| self.body.contains(c)) {
            count += 1;
            end += c.len_utf8();
        }
        if count < self.min {
            return 0;
        }
        start + end + run_len(body.get(end..).unwrap_or_default(), self.tail)
    }
}

impl Pass {
    /// Appends the pieces of a piece.
    pub fn cut<'t>(&self, piece: &'t str, pieces: &mut Vec<&'t str>) {
        match self {
            Self::Matches(rules) => cut_matches(rules, piece, pieces),
            Self::TrailingSpace => {
                let body = piece.trim_end_matches(|c| SPACE.contains(c));
                let tail = piece.get(body.len()..).unwrap_or_default();
                pieces.extend([body, tail].into_iter().filter(|part| !part.is_empty()));
            }
        }
    }
}

fn cut_matches<'t>(rules: &[Rule], piece: &'t str, pieces: &mut Vec<&'t str>) {
    let (mut start, mut at) = (0, 0);
    while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
        match rules.iter().map(|rule| rule.match_len(rest)).find(|&len| len > 0) {
            Some(len) => {
                pieces.extend(piece.get(start..at).filter(|gap| !gap.is_empty()));
                pieces.extend(rest.get(..len));
                at += len;
                start = at;
            }
            None => at += first_len(rest),
        }
    }
    pieces.extend(piece.get(start..).filter(|gap| !gap.is_empty()));
}

impl Rule {
    /// Length in bytes of the match at the start of the text; 0 if there is none.
    fn match_len(&self, text: &str) -> usize {
        match *self {
            Self::Run(run) => run.match_len(text),
            Self::Contraction { any_case } => contraction_len(text, any_case),
            Self::CasedWord { lead, contracted } => cased_word_len(text, lead, contracted),
            Self::Breaks => {
                let blank = text.get(..run_len(text, SPACE)).unwrap_or_default();
                blank.rfind(|c| BREAK.contains(c)).map_or(0, |last| last + 1)
            }
            Self::SpacesButLast => {
                let len = run_len(text, SPACE);
                let last = text.get(..len).and_then(|blank| blank.chars().next_back());
                if len < text.len() { len - last.map_or(0, char::len_utf8) } else { len }
            }
            Self::Spaces => run_len(text, SPACE),
        }
    }
}

/// Length of the longest prefix with characters of the set only.
fn run_len(text: &str, set: Set) -> usize {
    text.find(|c| !set.contains(c)).unwrap_or(text.len())
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn contraction_len(text: &str, any_case: bool) -> usize {
    let mut chars = text.chars().map(|c| if any_case { c.to_ascii_lowercase() } else { c });
    if chars.next() != Some('\'') {
        return 0;
    }
    match (chars.next(), chars.next()) {
        (Some('s' | 't' | 'm' | 'd'), _) => 2,
        (Some('r' | 'v'), Some('e')) | (Some('l'), Some('l')) => 3,
        _ => 0,
    }
}

/// A letter beyond ASCII is in both `U` and `L`, so that `U*` first takes such letters and then gives the last of them
/// back to `L+` if nothing else is left for it. No letter may come before the word: `lead` has none.
fn cased_word_len(text: &str, lead: Set, contracted: bool) -> usize {
    let lead_len = text.chars().next().filter(|&c| lead.contains(c)).map_or(0, char::len_utf8);
    let word = text.get(lead_len..).unwrap_or_default();
    let upper_len = word.find(|c| !LETTER.contains(c) || LOWER.contains(c)).unwrap_or(word.len());
    let (upper, rest) = word.split_at_checked(upper_len).unwrap_or((word, ""));
    let lower_len = rest.find(|c| !LETTER.contains(c) || UPPER.contains(c)).unwrap_or(rest.len());
    let len = match lower_len {
        0 => match upper.char_indices().rfind(|&(_, c)| !UPPER.contains(c)) {
            Some((at, c)) => at + c.len_utf8(),
            None => upper.len(),
        },
        _ => upper.len() + lower_len,
    };
    if len == 0 {
        return 0;
    }
    let rest = word.get(len..).unwrap_or_default();
    lead_len + len + if contracted { contraction_len(rest, true) } else { 0 }
}

/// `[^\r\n\p{L}\p{N}]`
pub const NO_BREAK_LETTER_NUMBER: Set = BREAK.or(LETTER).or(NUMBER).not();
