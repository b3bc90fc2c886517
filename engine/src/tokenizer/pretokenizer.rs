//! Cutting a text into words before byte-level BPE, which never merges across words.
//!
//! Models define the cut by a regular expression with look-ahead. A backtracking engine has a step limit that a long
//! run of spaces or letters exhausts (and the `tokenizers` crate then silently stops cutting), or it overflows the
//! stack; so the four expressions are written by hand, as in llama.cpp (`unicode_regex_split_custom_*`). Each word is
//! found by looking at the rest of the text only, in time linear in the word.
//!
//! `\p{L}` and `\p{N}` are the Unicode general categories of the `unicode-properties` crate, `\s` is `White_Space`.
//! That crate's Unicode is newer than llama.cpp's tables: letters that were unassigned there cut differently here.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// A rule for cutting words, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreTokenizer {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Each `\p{N}` is a word; what lies between is cut as by [`PreTokenizer::Gpt2`].
    Digits,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Llama3,
    /// As [`PreTokenizer::Llama3`], but with `\p{N}` for `\p{N}{1,3}`.
    Qwen2,
}

/// What `tokenizer.ggml.pre` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pre {
    /// How words are cut.
    pub words: PreTokenizer,
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether prompts begin with BOS if the file does not say.
    pub add_bos: bool,
}

const fn plain(words: PreTokenizer) -> Pre {
    Pre { words, ignore_merges: false, add_bos: false }
}

const LLAMA3: Pre = Pre { words: PreTokenizer::Llama3, ignore_merges: true, add_bos: true };

/// Names in `tokenizer.ggml.pre` with exactly these rules in llama.cpp (`llama-vocab.cpp`, `tokenizer_pre`).
const NAMES: &[(&[&str], Pre)] = &[
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ],
        plain(PreTokenizer::Gpt2),
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        plain(PreTokenizer::Digits),
    ),
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], LLAMA3),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], plain(PreTokenizer::Llama3)),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        plain(PreTokenizer::Qwen2),
    ),
];

impl Pre {
    /// The rules of a name.
    pub fn from_name(name: &str) -> Option<Pre> {
        NAMES.iter().find(|(names, _)| names.contains(&name)).map(|&(_, pre)| pre)
    }

    /// Every name that is known, for an error message.
    pub fn names() -> String {
        NAMES.iter().flat_map(|(names, _)| *names).copied().collect::<Vec<_>>().join(", ")
    }
}

impl PreTokenizer {
    /// Cuts a text into words; put together they are the text.
    pub fn words(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        // For `Digits`: bytes up to the next number, which ends the text as far as look-ahead is concerned.
        let mut stretch_len = 0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let len = match self {
                Self::Gpt2 => gpt2_word(rest),
                Self::Llama3 => llama3_word(rest, 3),
                Self::Qwen2 => llama3_word(rest, 1),
                Self::Digits => {
                    if stretch_len == 0 {
                        stretch_len = run(rest, |c| class(c) != Class::Number);
                    }
                    let len = match stretch_len {
                        0 => first_len(rest),
                        _ => gpt2_word(rest.get(..stretch_len).unwrap_or(rest)),
                    };
                    stretch_len = stretch_len.saturating_sub(len);
                    len
                }
            };
            // Every rule takes at least one character; a text that cannot be cut there would be a fault of a rule.
            let (word, tail) = rest.split_at_checked(len.max(1)).unwrap_or((rest, ""));
            rest = tail;
            Some(word)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Number,
        ' ' | '\t'..='\r' => Class::Space,
        '\0'..='\x7f' => Class::Other,
        _ if c.is_whitespace() => Class::Space,
        _ => match c.general_category_group() {
            GeneralCategoryGroup::Letter => Class::Letter,
            GeneralCategoryGroup::Number => Class::Number,
            _ => Class::Other,
        },
    }
}

/// Length of the longest prefix whose characters all pass.
fn run(text: &str, pass: impl Fn(char) -> bool) -> usize {
    text.find(|c| !pass(c)).unwrap_or(text.len())
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn starts_with_class(text: &str, wanted: Class) -> bool {
    text.chars().next().is_some_and(|c| class(c) == wanted)
}

/// `'s|'t|'re|'ve|'m|'ll|'d`, or 0.
fn contraction(text: &str, any_case: bool) -> usize {
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

/// `\s+(?!\S)|\s+`: a run of spaces without its last one if something follows, unless that one is all.
fn spaces(text: &str) -> usize {
    let len = run(text, |c| class(c) == Class::Space);
    let last_len = text.get(..len).and_then(|s| s.chars().next_back()).map_or(0, char::len_utf8);
    if len < text.len() && len > last_len { len - last_len } else { len }
}

fn gpt2_word(text: &str) -> usize {
    let contraction = contraction(text, false);
    if contraction > 0 {
        return contraction;
    }
    let body = text.strip_prefix(' ').unwrap_or(text);
    match body.chars().next().map(class) {
        Some(Class::Space) | None => spaces(text),
        Some(wanted) => text.len() - body.len() + run(body, |c| class(c) == wanted),
    }
}

fn llama3_word(text: &str, digits: usize) -> usize {
    let contraction = contraction(text, true);
    if contraction > 0 {
        return contraction;
    }
    let Some(first) = text.chars().next() else { return 0 };
    let after_first = text.get(first.len_utf8()..).unwrap_or_default();
    let may_lead = !matches!(first, '\r' | '\n') && class(first) != Class::Number;
    if may_lead && (class(first) == Class::Letter || starts_with_class(after_first, Class::Letter)) {
        return first.len_utf8() + run(after_first, |c| class(c) == Class::Letter);
    }
    if class(first) == Class::Number {
        return text
            .chars()
            .take(digits)
            .take_while(|&c| class(c) == Class::Number)
            .map(char::len_utf8)
            .sum();
    }
    let body = text.strip_prefix(' ').unwrap_or(text);
    if starts_with_class(body, Class::Other) {
        let marks = run(body, |c| class(c) == Class::Other);
        let breaks = run(body.get(marks..).unwrap_or_default(), |c| matches!(c, '\r' | '\n'));
        return text.len() - body.len() + marks + breaks;
    }
    let blank = text.get(..run(text, |c| class(c) == Class::Space)).unwrap_or_default();
    match blank.rfind(['\r', '\n']) {
        Some(last_break) => last_break + 1,
        None => spaces(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(words: PreTokenizer, text: &str) -> Vec<&str> {
        words.words(text).collect()
    }

    #[test]
    fn gpt2_words() {
        let text = "I'll can't  go, 12ab\n\n x";
        let words = ["I", "'ll", " can", "'t", " ", " go", ",", " 12", "ab", "\n\n", " x"];
        assert_eq!(cut(PreTokenizer::Gpt2, text), words);
        assert_eq!(cut(PreTokenizer::Gpt2, "I'LL  "), ["I", "'", "LL", "  "]);
    }

    #[test]
    fn a_number_ends_the_text_for_what_precedes_it() {
        assert_eq!(cut(PreTokenizer::Digits, "a  12 b3"), ["a", "  ", "1", "2", " b", "3"]);
    }

    #[test]
    fn llama3_and_qwen2_words() {
        let text = "I'LL (go)!\n\n \n 12345\tx  y";
        let head = ["I", "'LL", " (", "go", ")!\n\n", " \n", " "];
        let llama3 = [&head[..], &["123", "45", "\tx", " ", " y"]].concat();
        let qwen2 = [&head[..], &["1", "2", "3", "4", "5", "\tx", " ", " y"]].concat();
        assert_eq!(cut(PreTokenizer::Llama3, text), llama3);
        assert_eq!(cut(PreTokenizer::Qwen2, text), qwen2);
    }

    #[test]
    fn words_put_together_are_the_text() {
        use proptest::prelude::*;
        let piece = prop::sample::select(vec![
            " ", "  ", "\n", "\r\n", "\t", "a", "Ǆ", "é", "你", "1", "½", "٣", "'s", "'RE", "'", "!", "。",
            "\u{a0}", "\u{85}", "🙂", "\u{301}", "\u{0}",
        ]);
        proptest!(|(pieces in prop::collection::vec(piece, 0..40))| {
            let text = pieces.concat();
            for words in [PreTokenizer::Gpt2, PreTokenizer::Digits, PreTokenizer::Llama3, PreTokenizer::Qwen2] {
                prop_assert_eq!(cut(words, &text).concat(), text.as_str());
            }
        });
    }
}
