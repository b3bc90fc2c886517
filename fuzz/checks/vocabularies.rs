//! Small vocabularies that can write every byte, so that no text is lost in them.

use unisonic_core::format::{Metadata, Strings, Value};
use unisonic_engine::tokenizer::Tokenizer;

/// The first tokens of both vocabularies; the first three are BOS, EOS and unknown.
const CONTROLS: [&str; 12] = [
    "<s>",
    "</s>",
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|im_",
    "|>|<|",
];
const USER_DEFINED: [&str; 4] = ["<tool>", "    ", "  ", "\n\n"];

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

/// Pairs of byte symbols that are merged; some are longer than any word of some pre-tokenizers.
const MERGES: [(&str, &str); 24] = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("Ġ", "in"),
    ("a", "a"),
    ("aa", "aa"),
    ("aaaa", "aaaa"),
    ("Ġ", "Ġ"),
    ("ĠĠ", "ĠĠ"),
    ("Ċ", "Ċ"),
    ("č", "Ċ"),
    ("1", "2"),
    ("12", "3"),
    ("'", "s"),
    ("'", "l"),
    ("'l", "l"),
    ("Ã", "©"),
    ("â", "Ģ"),
    ("âĢ", "Ļ"),
    ("ð", "Ł"),
    ("ðŁ", "Ļ"),
    ("ðŁĻ", "Ĥ"),
    (".", "."),
];

/// Pieces of the SentencePiece vocabulary with their scores, ties among them.
const PIECES: [(&str, f32); 23] = [
    ("\u{301}", -9.0),
    ("▁", -1.0),
    ("▁▁", -2.0),
    ("▁▁▁▁", -3.0),
    ("t", -9.0),
    ("h", -9.0),
    ("e", -8.0),
    ("th", -4.0),
    ("he", -4.0),
    ("the", -5.0),
    ("▁the", -6.0),
    ("▁t", -3.5),
    ("a", -7.0),
    ("aa", -0.5),
    ("aaa", -0.25),
    ("aaaa", 0.0),
    ("é", -2.5),
    ("e\u{301}", 1.5),
    ("你", -3.0),
    ("你好", 2.0),
    ("🙂", 3.0),
    ("1", -1.0),
    ("\n", -1.0),
];

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// Tokens with their types and scores.
#[derive(Default)]
struct Tokens {
    texts: Vec<String>,
    types: Vec<i32>,
    scores: Vec<f32>,
}

impl Tokens {
    fn new() -> Self {
        let mut tokens = Self::default();
        for control in CONTROLS {
            tokens.push(control, if control == "<unk>" { UNKNOWN } else { CONTROL }, 0.0);
        }
        for user_defined in USER_DEFINED {
            tokens.push(user_defined, USER, 0.0);
        }
        tokens
    }

    fn push(&mut self, text: &str, ty: i32, score: f32) {
        self.texts.push(text.to_owned());
        self.types.push(ty);
        self.scores.push(score);
    }

    fn entries(self) -> Vec<(&'static str, Value)> {
        vec![
            ("tokenizer.ggml.tokens", Value::Strings(Strings::from_iter(self.texts))),
            ("tokenizer.ggml.token_type", Value::I32s(self.types)),
            ("tokenizer.ggml.scores", Value::F32s(self.scores)),
            ("tokenizer.ggml.bos_token_id", Value::U32(0)),
            ("tokenizer.ggml.eos_token_id", Value::U32(1)),
            ("tokenizer.ggml.unknown_token_id", Value::U32(2)),
        ]
    }
}

/// Character that stands for a byte in byte-level BPE (GPT-2's `bytes_to_unicode`).
fn byte_symbols() -> impl Iterator<Item = char> {
    let mut shifted = 0xff;
    (0..=255u8).map(move |byte| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => {
            shifted += 1;
            char::from_u32(shifted).expect("up to U+0143")
        }
    })
}

/// Metadata of byte-level BPE with a pre-tokenizer.
pub fn byte_bpe(pre: &str) -> Vec<(&'static str, Value)> {
    let mut tokens = Tokens::new();
    for symbol in byte_symbols() {
        tokens.push(&symbol.to_string(), NORMAL, 0.0);
    }
    let mut merges = Strings::default();
    for (left, right) in MERGES {
        tokens.push(&[left, right].concat(), NORMAL, 0.0);
        merges.push(&[left, right].join(" "));
    }
    // A word that only a tokenizer which ignores merges writes as one token.
    tokens.push("Ġhello", NORMAL, 0.0);
    let mut entries = tokens.entries();
    entries.push(("tokenizer.ggml.model", text("gpt2")));
    entries.push(("tokenizer.ggml.pre", text(pre)));
    entries.push(("tokenizer.ggml.merges", Value::Strings(merges)));
    entries
}

/// Metadata of SentencePiece BPE.
pub fn spm(space_prefix: bool) -> Vec<(&'static str, Value)> {
    let mut tokens = Tokens::new();
    for byte in 0..=255u8 {
        tokens.push(&format!("<0x{byte:02X}>"), BYTE, 0.0);
    }
    for (piece, score) in PIECES {
        tokens.push(piece, NORMAL, score);
    }
    let mut entries = tokens.entries();
    entries.push(("tokenizer.ggml.model", text("llama")));
    entries.push(("tokenizer.ggml.add_space_prefix", Value::Bool(space_prefix)));
    entries
}

/// Metadata of BPE with merge rules over characters.
pub fn characters() -> Vec<(&'static str, Value)> {
    let mut tokens = Tokens::new();
    for byte in 0..=255u8 {
        tokens.push(&format!("<0x{byte:02X}>"), BYTE, 0.0);
    }
    for (piece, _) in PIECES {
        tokens.push(piece, NORMAL, 0.0);
    }
    let rules = ["t h", "th e", "▁ the", "▁ t", "a a", "aa aa", "aa a", "▁ ▁", "▁▁ ▁▁", "e \u{301}"];
    let mut entries = tokens.entries();
    entries.push(("tokenizer.ggml.model", text("gemma4")));
    entries.push(("tokenizer.ggml.merges", Value::Strings(Strings::from_iter(rules))));
    entries
}

/// The tokenizer of these entries.
pub fn tokenizer(entries: Vec<(&'static str, Value)>) -> Tokenizer {
    let mut metadata = Metadata::default();
    for (key, value) in entries {
        assert!(metadata.insert(key, value), "{key} is there twice");
    }
    Tokenizer::from_metadata(&metadata).expect("a vocabulary as it should be")
}
