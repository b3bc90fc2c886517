//! Where each pre-tokenizer cuts, and how often it looks.

use super::set::LOOKS;
use super::*;

const TEXTS: [&str; 3] =
    ["I'll SAY't aBCé  Über.cpp\n\n x", "a1234 56789\r\n (x)/\n", "你好，\u{3000}café e\u{301} カ3½ `=` "];

/// One name of each row, and what llama.cpp's `unicode_regex_split` makes of each text.
#[rustfmt::skip]
const PIECES: &[(&str, [&[&str]; 3])] = &[
    (
        "default",
        [
            &["I", "'", "ll", " SAY", "'", "t", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n ", "(", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}", "café", " e", "\u{301}", " カ", "3½", " `", "=", "`", " "],
        ],
    ),
    (
        "gpt-2",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a", "1234", " 56789", "\r\n", " (", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}", "café", " e", "\u{301}", " カ", "3½", " `=`", " "],
        ],
    ),
    (
        "smollm",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n", " (", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}", "café", " e", "\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "llama-bpe",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3½", " `=`", " "],
        ],
    ),
    (
        "dbrx",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3½", " `=`", " "],
        ],
    ),
    (
        "minicpm5",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3½", " `=`", " "],
        ],
    ),
    (
        "qwen2",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "qwen35",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "seed-coder",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n", " (", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "gpt-4o",
        [
            &["I'll", " SAY't", " a", "BCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3½", " `=`", " "],
        ],
    ),
    (
        "tekken",
        [
            &["I", "'ll", " SAY", "'t", " a", "BCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "falcon",
        [
            &["I", "'", "ll", " SAY", "'", "t", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n ", "(", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}", "café", " e", "\u{301}", " カ", "3½", " ", "`=`", " "],
        ],
    ),
    (
        "deepseek-llm",
        [
            &["I", "'", "ll", " SAY", "'", "t", " aBC", "é", " ", " Ü", "ber", ".", "cpp", "\n", "\n", " x"],
            &["a", "1234", " ", "56789", "\r", "\n", " (", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}caf", "é", " e", "\u{301} ", "カ", "3½", " `=`", " "],
        ],
    ),
    (
        "deepseek-coder",
        [
            &["I", "'", "ll", " SAY", "'", "t", " aBCé", " ", " Über", ".", "cpp", "\n", "\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r", "\n", " (", "x", ")/", "\n"],
            &["你好", "，", "\u{3000}café", " e", "\u{301}", " ", "カ", "3", "½", " `=` "],
        ],
    ),
    (
        "deepseek-v3",
        [
            &["I", "'ll", " SAY", "'t", " aBCé", " ", " Über", ".cpp", "\n\n", " x"],
            &["a", "123", "4", " ", "567", "89", "\r\n", " (", "x", ")/\n"],
            &["你好", "，", "\u{3000}café", " e\u{301}", " ", "カ", "3½", " `=`", " "],
        ],
    ),
    (
        "bloom",
        [
            &["I'll", " SAY't", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a1234", " 56789", "\r\n (", "x", ")", "/", "\n"],
            &["你好", "，\u{3000}", "café", " e\u{301}", " カ3½", " `=`", " "],
        ],
    ),
    (
        "viking",
        [
            &["I'll", " SAY't", " aBCé", " ", " Über", ".", "cpp", "\n\n", " x"],
            &["a", "1", "2", "3", "4", " ", "5", "6", "7", "8", "9", "\r\n (", "x", ")", "/", "\n"],
            &["你好", "，\u{3000}", "café", " e\u{301}", " カ", "3", "½", " `=`", " "],
        ],
    ),
    (
        "gemma4",
        [
            &["I'll SAY't aBCé  Über.cpp", "\n\n", " x"],
            &["a1234 56789\r", "\n", " (x)/", "\n"],
            &["你好，\u{3000}café e\u{301} カ3½ `=` "],
        ],
    ),
];

#[test]
fn every_row_cuts_as_llama_cpp_does() {
    for (names, pre) in rows::ROWS {
        let (name, expected) =
            PIECES.iter().find(|(name, _)| names.contains(name)).expect("a line for the row");
        for (text, expected) in TEXTS.iter().zip(expected) {
            assert_eq!(pre.pieces(text), *expected, "{name}: {text:?}");
        }
    }
}

#[test]
fn a_name_has_one_row() {
    let mut names: Vec<&str> = Pre::names().collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(Pre::from_name("whitespace").is_none());
}

fn cut(name: &str, text: &'static str) -> Vec<&'static str> {
    Pre::from_name(name).expect("a row").pieces(text)
}

#[test]
fn white_space_keeps_its_last_character_for_what_follows() {
    assert_eq!(cut("gpt-2", "a \t b\u{a0}c   "), ["a", " \t", " b", "\u{a0}", "c", "   "]);
    assert_eq!(cut("gpt-2", " "), [" "]);
    assert_eq!(cut("llama-bpe", " \n \r  b"), [" \n \r", " ", " b"]);
    // A number ends the text for what precedes it.
    assert_eq!(cut("smollm", "a  1"), ["a", "  ", "1"]);
}

#[test]
fn contractions_are_of_ascii_letters() {
    assert_eq!(cut("gpt-2", "'re'LL'x"), ["'re", "'", "LL", "'", "x"]);
    assert_eq!(cut("qwen2", "'rE'Ll'ſ'x"), ["'rE", "'Ll", "'ſ", "'x"]);
    assert_eq!(cut("gpt-4o", "a'rEx'"), ["a'rE", "x", "'"]);
}

/// Letters beyond ASCII count as upper case and as lower case.
#[test]
fn cased_words() {
    assert_eq!(cut("tekken", "HTTPServer getÄB ABÉCD"), ["HTTPServer", " getÄ", "B", " ABÉ", "CD"]);
    assert_eq!(cut("gpt-4o", "aB Ab AB'S"), ["a", "B", " Ab", " AB'S"]);
}

#[test]
fn pieces_put_together_are_the_text() {
    use proptest::prelude::*;
    let part = prop::sample::select(vec![
        " ", "  ", "\n", "\r\n", "\t", "a", "B", "Ǆ", "é", "你", "カ", "1", "½", "٣", "'s", "'RE", "'", "!",
        "。", "$", "\u{a0}", "\u{85}", "\u{3000}", "🙂", "\u{301}", "\0",
    ]);
    proptest!(|(parts in prop::collection::vec(part, 0..40))| {
        let text = parts.concat();
        for (names, pre) in rows::ROWS {
            let pieces = pre.pieces(&text);
            prop_assert_eq!(pieces.concat(), text.as_str(), "{:?}", names);
            prop_assert!(!pieces.contains(&""));
        }
    });
}

/// Counted, not timed: a rule that is tried again at each character of a run looks thousands of times.
#[test]
fn each_character_is_looked_at_a_bounded_number_of_times() {
    let units = [
        "a",
        "A",
        "é",
        " ",
        "\n",
        "\r",
        "\t",
        "\u{3000}",
        ".",
        "'",
        "/",
        "=",
        "`",
        "1",
        "½",
        "你",
        "カ",
        "한",
        "🙂",
        "\u{301}",
        "\0",
        "\u{378}",
        "éA",
        "Aé",
        " \n",
        "\n ",
        " a",
        "'s",
        "a1",
        ". ",
        "\u{3000}a",
    ];
    for (names, pre) in rows::ROWS {
        for unit in units {
            // Something else behind the run, for what looks ahead.
            let text = unit.repeat(16_384) + "x";
            LOOKS.set(0);
            assert_eq!(pre.pieces(&text).concat(), text);
            let looks = LOOKS.get() as f64 / text.chars().count() as f64;
            assert!(looks < 50.0, "{names:?}: {looks} looks at each character of {unit:?}");
        }
    }
}
