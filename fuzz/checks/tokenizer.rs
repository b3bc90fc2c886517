//! Any text through small vocabularies: what goes in comes out.
//!
//! The first byte of the input says which vocabulary and whether special tokens are parsed; the rest is the text, in
//! which bytes that are no UTF-8 become U+FFFD.

use std::sync::OnceLock;

use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Specials, Tokenizer};

use super::vocabularies;

/// One of each kind of pre-tokenizer, and SentencePiece BPE with and without a space in front.
const PRE: [&str; 4] = ["gpt-2", "smollm", "llama-bpe", "qwen2"];

struct Case {
    tokenizer: Tokenizer,
    is_spm: bool,
    space_prefix: bool,
}

fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let bpe = |pre| Case {
            tokenizer: vocabularies::tokenizer(vocabularies::byte_bpe(pre)),
            is_spm: false,
            space_prefix: false,
        };
        let spm = |space_prefix| Case {
            tokenizer: vocabularies::tokenizer(vocabularies::spm(space_prefix)),
            is_spm: true,
            space_prefix,
        };
        PRE.into_iter().map(bpe).chain([spm(false), spm(true)]).collect()
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
        ids.len() <= text.len() + usize::from(case.space_prefix) * (text.len() + 1),
        "at most a token a byte"
    );
    assert!(ids.iter().all(|&id| id < tokenizer.vocab_len()));

    let decoded = tokenizer.decode(&ids, ControlTokens::Show);
    // SentencePiece writes a space as `▁`, so a `▁` of the text comes back as a space.
    let expected = if case.is_spm { text.replace('▁', " ") } else { text.to_owned() };
    if case.space_prefix {
        // A space more behind each special token, and in front.
        let without_spaces = |text: &str| text.replace(' ', "");
        assert_eq!(without_spaces(&decoded), without_spaces(&expected));
    } else {
        assert_eq!(decoded, expected);
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
