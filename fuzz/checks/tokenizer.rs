//! Any text through small vocabularies: what goes in comes out.
//!
//! The first byte of the input says which vocabulary and whether special tokens are parsed; the rest is the text, in
//! which bytes that are no UTF-8 become U+FFFD.

use std::sync::OnceLock;

use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Specials, Tokenizer};

use super::vocabularies;

/// One of each kind of pre-tokenizer.
const PRE: [&str; 17] = [
    "default",
    "gpt-2",
    "smollm",
    "llama-bpe",
    "dbrx",
    "minicpm5",
    "qwen2",
    "qwen35",
    "seed-coder",
    "gpt-4o",
    "tekken",
    "falcon",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "bloom",
    "viking",
];

/// What becomes of spaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spaces {
    /// They are bytes as others are.
    Kept,
    /// They are spelled `▁`, so a `▁` of the text comes back as a space.
    Bars,
    /// And there is one more in front and behind each special token.
    BarsAndPrefix,
}

struct Case {
    tokenizer: Tokenizer,
    spaces: Spaces,
}

fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let case = |entries, spaces| Case { tokenizer: vocabularies::tokenizer(entries), spaces };
        let mut cases: Vec<Case> =
            PRE.iter().map(|pre| case(vocabularies::byte_bpe(pre), Spaces::Kept)).collect();
        cases.push(case(vocabularies::characters(), Spaces::Bars));
        cases.push(case(vocabularies::spm(false), Spaces::Bars));
        cases.push(case(vocabularies::spm(true), Spaces::BarsAndPrefix));
        cases
    })
}

pub fn check(bytes: &[u8]) {
    let Some((&first, text)) = bytes.split_first() else { return };
    let specials = if first & 1 == 0 { Specials::Parse } else { Specials::Literal };
    let case = usize::from(first >> 1) % cases().len();
    check_one(&cases()[case], &String::from_utf8_lossy(text), specials);
}

fn check_one(case: &Case, text: &str, specials: Specials) {
    let tokenizer = &case.tokenizer;
    let ids = tokenizer.encode(text, specials).expect("a vocabulary with every byte encodes every text");
    assert!(
        ids.len() <= text.len() + if case.spaces == Spaces::BarsAndPrefix { text.len() + 1 } else { 0 },
        "at most a token a byte"
    );
    assert!(ids.iter().all(|&id| id < tokenizer.vocab_len()));

    let decoded = tokenizer.decode(&ids, ControlTokens::Show);
    let bars_as_spaces = || text.replace('▁', " ");
    let without_spaces = |text: &str| text.replace(' ', "");
    match case.spaces {
        Spaces::Kept => assert_eq!(decoded, text),
        Spaces::Bars => assert_eq!(decoded, bars_as_spaces()),
        Spaces::BarsAndPrefix => assert_eq!(without_spaces(&decoded), without_spaces(&bars_as_spaces())),
    }

    let mut stream = Detokenizer::new(tokenizer, ControlTokens::Show);
    let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
    streamed.push_str(&stream.finish());
    assert_eq!(streamed, decoded);

    if specials == Specials::Literal {
        let is_control = |id: &u32| {
            tokenizer.decode(&[*id], ControlTokens::Hide).is_empty() && {
                !tokenizer.decode(&[*id], ControlTokens::Show).is_empty()
            }
        };
        assert!(!ids.iter().any(is_control), "a literal text holds no control token");
    }

    let prompt = tokenizer.encode_prompt(text, specials).expect("encodes as before");
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    assert_eq!(prompt, [bos.as_slice(), &ids].concat(), "a prompt is the text, perhaps behind BOS");
}
