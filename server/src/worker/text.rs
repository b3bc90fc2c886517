//! From the tokens of a choice to the pieces of text that a client sees.

use std::collections::VecDeque;
use std::sync::Arc;

use unisonic_engine::StopStrings;
use unisonic_engine::sampling::{Logprobs, TokenLogprob};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Tokenizer};

/// Text that was generated, with what the model thought of its tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Whole characters.
    pub text: String,
    /// Of the tokens whose text begins in this piece, or before it with the characters that it completes; if asked for.
    pub logprobs: Vec<TokenInfo>,
}

/// A token, how probable the model finds it, and what else it would have found probable there.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    /// The token that was chosen.
    pub chosen: TokenText,
    /// The most probable ones, most probable first.
    pub top: Vec<TokenText>,
    /// Characters of the text before it.
    pub offset_chars: usize,
}

/// A token as text.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText {
    /// Its bytes, which may be a part of a character; a control token's are its name.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

impl TokenText {
    fn new(tokenizer: &Tokenizer, of: TokenLogprob) -> Self {
        let bytes = tokenizer.token_bytes(of.token, ControlTokens::Show).into_owned();
        Self { bytes, logprob: of.logprob }
    }

    /// The bytes as text; what is no character is U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The bytes as text that no other token has: `bytes:\xe2\x82` for what is not UTF-8.
    pub fn name(&self) -> String {
        let escaped = || self.bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        std::str::from_utf8(&self.bytes).map_or_else(|_| format!("bytes:{}", escaped()), str::to_owned)
    }
}

/// The text of one choice while it is generated.
pub struct TextStream {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer<Arc<Tokenizer>>,
    stops: StopStrings,
    /// Control tokens that are text.
    shown: Vec<u32>,
    /// Bytes of text that tokens have given.
    made_bytes: usize,
    /// Characters of it.
    made_chars: usize,
    /// Bytes of text that have gone out.
    passed_bytes: usize,
    /// Tokens whose text has not gone out, with the place where it begins.
    waiting: VecDeque<(usize, TokenInfo)>,
}

impl TextStream {
    /// A text that ends at one of these strings, and in which these control tokens are their names.
    pub fn new(tokenizer: Arc<Tokenizer>, stops: Vec<String>, shown: Vec<u32>) -> Self {
        Self {
            detokenizer: Detokenizer::new(Arc::clone(&tokenizer), ControlTokens::Hide),
            tokenizer,
            stops: StopStrings::new(stops),
            shown,
            made_bytes: 0,
            made_chars: 0,
            passed_bytes: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The text that this token lets out, and whether a stop string is complete with it.
    pub fn push(&mut self, token: u32, logprobs: Option<Logprobs>) -> (Piece, bool) {
        if let Some(Logprobs { chosen, top }) = logprobs {
            let text = |of| TokenText::new(&self.tokenizer, of);
            let info = TokenInfo {
                chosen: text(chosen),
                top: top.into_iter().map(text).collect(),
                offset_chars: self.made_chars,
            };
            self.waiting.push_back((self.made_bytes, info));
        }
        let text = if self.shown.contains(&token) {
            self.detokenizer.finish() + self.tokenizer.token_text(token).unwrap_or_default()
        } else {
            self.detokenizer.push(token)
        };
        self.made_bytes += text.len();
        self.made_chars += text.chars().count();
        let passed = self.stops.push(&text);
        (self.piece(passed.text), passed.stopped)
    }

    /// What is left when the generation has ended without a stop string. Where it was `cut`, by a limit, a character that the last
    /// tokens began is left out; where the model ended so, it is U+FFFD.
    pub fn finish(&mut self, cut: bool) -> Piece {
        let begun = self.detokenizer.finish();
        let text = if cut { String::new() } else { begun };
        let passed = self.stops.push(&text);
        let rest = if passed.stopped { String::new() } else { self.stops.finish() };
        let mut piece = self.piece(passed.text + &rest);
        if !passed.stopped {
            // Tokens at the end that have no text.
            piece.logprobs.extend(self.waiting.drain(..).map(|(_, info)| info));
        }
        piece
    }

    fn piece(&mut self, text: String) -> Piece {
        self.passed_bytes += text.len();
        let count = self.waiting.iter().take_while(|(start, _)| *start < self.passed_bytes).count();
        Piece { text, logprobs: self.waiting.drain(..count).map(|(_, info)| info).collect() }
    }
}

#[cfg(test)]
mod tests;
