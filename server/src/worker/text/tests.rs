//! Texts of tokens of a byte each.

use std::path::Path;

use proptest::prelude::*;
use unisonic_core::format::GgufFile;

use super::*;

fn tokenizer() -> Arc<Tokenizer> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/quants/llama-Q4_0.gguf");
    let file = GgufFile::open(&path).expect("the committed model");
    Arc::new(Tokenizer::from_metadata(file.metadata()).expect("its tokenizer"))
}

/// Ids of bytes: the model's vocabulary is three control tokens and all bytes.
fn ids(bytes: &[u8]) -> Vec<u32> {
    bytes.iter().map(|&byte| u32::from(byte) + 3).collect()
}

fn info(token: u32) -> Option<Logprobs> {
    let of = |token| TokenLogprob { token, logprob: -1.5 };
    Some(Logprobs { chosen: of(token), top: vec![of(token), of(7)] })
}

/// Pieces of a text, the last one of its end; whether it was stopped.
fn pieces(text: &[u8], stops: &[&str]) -> (Vec<Piece>, bool) {
    let mut stream =
        TextStream::new(tokenizer(), stops.iter().map(|stop| stop.to_string()).collect(), Vec::new());
    let mut pieces = Vec::new();
    for id in ids(text) {
        let (piece, stopped) = stream.push(id, info(id));
        pieces.push(piece);
        if stopped {
            return (pieces, true);
        }
    }
    pieces.push(stream.finish(false));
    (pieces, false)
}

fn texts(pieces: &[Piece]) -> Vec<&str> {
    pieces.iter().map(|piece| piece.text.as_str()).collect()
}

fn bytes(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| &piece.logprobs).flat_map(|info| info.chosen.bytes.clone()).collect()
}

/// Report 5.04 (ferrox #124, llama.cpp #9195), and the bytes field of 5.07 (vLLM #4795).
#[test]
fn a_character_of_four_tokens_comes_whole() {
    let (pieces, _) = pieces("a🙂".as_bytes(), &[]);
    assert_eq!(texts(&pieces), ["a", "", "", "", "🙂", ""]);
    assert_eq!(bytes(&pieces), "a🙂".as_bytes(), "each token once");
    let first = &pieces[4].logprobs[0];
    assert_eq!((first.chosen.bytes.as_slice(), first.offset_chars), (&b"\xf0"[..], 1));
    assert_eq!((first.chosen.text().as_str(), first.chosen.name().as_str()), ("\u{fffd}", "bytes:\\xf0"));
    assert_eq!(first.top.len(), 2);
}

#[test]
fn tokens_of_a_stop_string_are_not_told_of() {
    let (pieces, stopped) = pieces(b"ABCDEFx", &["CDEF"]);
    assert!(stopped);
    assert_eq!(texts(&pieces).concat(), "AB");
    assert_eq!(bytes(&pieces), b"AB");
}

#[test]
fn what_is_held_comes_with_the_end() {
    let (pieces, stopped) = pieces(b"ABCDE\xf0\x9f", &["CDEF"]);
    assert!(!stopped);
    assert_eq!(texts(&pieces).concat(), "ABCDE\u{fffd}");
    assert_eq!(bytes(&pieces), b"ABCDE\xf0\x9f");
}

/// Report 5.04 again: an answer that ends at a limit does not end in U+FFFD.
#[test]
fn a_character_that_a_limit_cuts_is_left_out() {
    let mut stream = TextStream::new(tokenizer(), vec!["B\u{fffd}".into()], Vec::new());
    let mut pieces: Vec<Piece> =
        ids(b"AB\xf0\x9f").into_iter().map(|id| stream.push(id, info(id)).0).collect();
    pieces.push(stream.finish(true));
    assert_eq!(texts(&pieces).concat(), "AB");
    assert_eq!(bytes(&pieces), b"AB\xf0\x9f", "its tokens are told of");
}

proptest! {
    #[test]
    fn pieces_put_together_are_the_text_before_the_stop(
        text in "[ab🙂é]{0,12}",
        stop in "[ab🙂é]{1,3}",
    ) {
        let (pieces, stopped) = pieces(text.as_bytes(), &[&stop]);
        let right = text.find(&stop).map_or(text.as_str(), |at| &text[..at]);
        prop_assert_eq!(texts(&pieces).concat(), right);
        prop_assert_eq!(stopped, text.contains(&stop));
        prop_assert_eq!(bytes(&pieces), right.as_bytes());
    }
}
