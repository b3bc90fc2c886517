//! Stop strings in a text that comes in pieces.

use memchr::memmem;

/// Lets text through up to the first stop string; holds back what may be the beginning of one.
///
/// The first stop string is the one that is complete first, of those that end at one place the longest, so that what comes out
/// does not depend on how the text is cut into pieces.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// The end of the text so far, a beginning of a stop string.
    held: String,
}

/// What a piece lets out.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Text that no stop string touches.
    pub text: String,
    /// Whether a stop string is complete: the text ends here.
    pub stopped: bool,
}

impl StopStrings {
    /// Stop strings of a text; empty ones stop nothing.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self { stops, held: String::new() }
    }

    /// Takes a piece of text.
    pub fn push(&mut self, piece: &str) -> Passed {
        if self.stops.is_empty() {
            return Passed { text: piece.to_owned(), stopped: false };
        }
        self.held.push_str(piece);
        // What is held begins no match that is complete, so every match reaches into the piece.
        let matches = self.stops.iter().filter_map(|stop| {
            let start = memmem::find(self.held.as_bytes(), stop.as_bytes())?;
            Some((start + stop.len(), start))
        });
        if let Some((_, start)) = matches.min() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return Passed { text, stopped: true };
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        // A match of valid UTF-8 begins at a character.
        let rest = self.held.split_off(self.held.len() - kept);
        Passed { text: std::mem::replace(&mut self.held, rest), stopped: false }
    }

    /// The text has ended: what was held is no stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that is a proper beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    let is_beginning = |len: &usize| {
        let end = text.as_bytes().get(text.len() - len..);
        end == stop.as_bytes().get(..*len)
    };
    (1..=longest).rev().find(is_beginning).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pass(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut stop_strings = StopStrings::new(stops.iter().map(|stop| stop.to_string()).collect());
        let mut texts = Vec::new();
        for piece in pieces {
            let passed = stop_strings.push(piece);
            texts.push(passed.text);
            if passed.stopped {
                return (texts, true);
            }
        }
        texts.push(stop_strings.finish());
        (texts, false)
    }

    /// Report 5.01 (vLLM #3574).
    #[test]
    fn nothing_of_a_stop_string_gets_out() {
        let (texts, stopped) = pass(&["DEFGHIJ"], &["ABC", "DEF", "G", "HI", "J"]);
        assert_eq!((texts.concat().as_str(), stopped), ("ABC", true));
        assert_eq!(texts[0], "ABC", "what cannot be a stop string is not held");
        let (texts, stopped) = pass(&["DEFGHIJ"], &["ABC", "DEF", "GX", "DE"]);
        assert_eq!((texts, stopped), (["ABC", "", "DEFGX", "", "DE"].map(String::from).to_vec(), false));
    }

    #[test]
    fn characters_stay_whole() {
        // Both begin with the same two bytes.
        let (texts, stopped) = pass(&["你好"], &["a你", "们"]);
        assert_eq!((texts, stopped), (["a", "你们", ""].map(String::from).to_vec(), false));
        assert_eq!(pass(&["🙂"], &["😀🙂!"]), (vec!["😀".to_owned()], true));
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(
            text in "[ab]{0,20}",
            stops in prop::collection::vec("[ab]{1,4}", 1..4),
            cuts in prop::collection::vec(1_usize..5, 1..6),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (whole, stopped) = pass(&stops, &[&text]);
            let mut pieces = Vec::new();
            let mut rest = text.as_str();
            for cut in cuts.iter().cycle().take(text.len()) {
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            let (pieces, piece_stopped) = pass(&stops, &pieces);
            prop_assert_eq!((pieces.concat(), piece_stopped), (whole.concat(), stopped));
            prop_assert_eq!(stopped, stops.iter().any(|stop| text.contains(stop)));
            prop_assert!(!stopped || stops.iter().all(|stop| !whole.concat().contains(stop)));
        }
    }
}
