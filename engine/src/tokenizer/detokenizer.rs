//! Text as it comes: tokens end in the middle of characters, output must not.

use std::ops::Deref;

use super::{ControlTokens, Tokenizer};

/// Turns tokens into text while they are generated.
///
/// What [`Self::push`] and [`Self::finish`] return, put together, is `String::from_utf8_lossy` of all bytes: a
/// character that is not complete is held back, bytes that can no longer become one are U+FFFD.
pub struct Detokenizer<T> {
    tokenizer: T,
    controls: ControlTokens,
    bytes: Utf8Stream,
}

impl<T: Deref<Target = Tokenizer>> Detokenizer<T> {
    /// Starts a text. `T` is a reference or an `Arc`.
    pub fn new(tokenizer: T, controls: ControlTokens) -> Self {
        Self { tokenizer, controls, bytes: Utf8Stream::default() }
    }

    /// The characters that this token completes. A token without text, and an id beyond the vocabulary, add nothing.
    pub fn push(&mut self, id: u32) -> String {
        let bytes = self.tokenizer.token_bytes(id, self.controls);
        self.bytes.push(&bytes)
    }

    /// U+FFFD if the text ended within a character; afterwards a new text may begin.
    pub fn finish(&mut self) -> String {
        self.bytes.finish()
    }
}

/// UTF-8 that arrives in pieces.
#[derive(Default)]
struct Utf8Stream {
    /// The beginning of a character: at most three bytes.
    held: Vec<u8>,
}

impl Utf8Stream {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        while !rest.is_empty() {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => error,
            };
            let (valid, tail) = rest.split_at(error.valid_up_to());
            text.push_str(&String::from_utf8_lossy(valid));
            rest = tail;
            let Some(invalid_len) = error.error_len() else { break };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = rest.get(invalid_len..).unwrap_or_default();
        }
        self.held = rest.to_vec();
        text
    }

    fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(pieces: &[&[u8]]) -> (Vec<String>, String) {
        let mut utf8 = Utf8Stream::default();
        let pushed = pieces.iter().map(|piece| utf8.push(piece)).collect();
        (pushed, utf8.finish())
    }

    #[test]
    fn a_character_comes_out_whole() {
        let (pushed, rest) = stream(&[b"\xf0\x9f", b"\x99\x82!"]);
        assert_eq!((pushed, rest.as_str()), (vec![String::new(), "🙂!".into()], ""));
        let (pushed, _) = stream(&[b"\xf0", b"\x9f", b"\x99", b"\x82"]);
        assert_eq!(pushed, ["", "", "", "🙂"]);
    }

    #[test]
    fn bytes_that_cannot_become_a_character_are_replaced_at_once() {
        let (pushed, rest) = stream(&[b"\xe4\xbd", b"a", b"\xff", b"\xe4\xbd"]);
        assert_eq!(pushed, ["", "\u{fffd}a", "\u{fffd}", ""]);
        assert_eq!(rest, "\u{fffd}");
    }

    proptest! {
        #[test]
        fn pieces_put_together_are_the_lossy_text(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "🙂".as_bytes(), "你好".as_bytes(), "👩‍👩‍👧".as_bytes(), b"a", b"\xff", b"\xf0\x9f", b"\xe4", b"\x80",
                    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", "é".as_bytes(),
                ]),
                0..12,
            ),
            cuts in prop::collection::vec(1usize..4, 1..8),
        ) {
            let bytes = parts.concat();
            let mut pieces = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle().take(bytes.len()) {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            let (pushed, end) = stream(&pieces);
            prop_assert_eq!(pushed.concat() + &end, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
