//! Guessing by looking up: what followed the last tokens when they occurred before, in prompt or output.

use super::suffixes::Suffixes;
use super::{Confidence, Drafter};

/// Guesses that what follows the longest recurring end of the sequence is what followed it before. Good where
/// text is copied and edited: code, summaries, lists.
#[derive(Debug)]
pub struct NgramDrafter {
    suffixes: Suffixes,
}

impl NgramDrafter {
    /// For one sequence.
    pub fn new() -> Self {
        Self { suffixes: Suffixes::new() }
    }
}

impl Default for NgramDrafter {
    fn default() -> Self {
        Self::new()
    }
}

impl Drafter for NgramDrafter {
    fn look(&mut self, tokens: &[u32]) -> Option<Confidence> {
        if tokens.len() < self.suffixes.len() {
            self.restart();
        }
        let known = self.suffixes.len();
        tokens.iter().skip(known).for_each(|&token| self.suffixes.push(token));
        self.suffixes.recurrence().map(|found| Confidence::of_match_len(found.len))
    }

    fn restart(&mut self) {
        self.suffixes = Suffixes::new();
    }

    fn draft(&mut self, tokens: &[u32], width: usize, draft: &mut Vec<u32>) {
        let Some(found) = self.suffixes.recurrence() else { return };
        // Where the earlier occurrence runs into the guess itself, the sequence repeats, and so does the
        // guess.
        let first = draft.len();
        for at in found.end..found.end + width {
            let token = tokens.get(at).copied().unwrap_or_else(|| draft[first + at - tokens.len()]);
            draft.push(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(tokens: &[u32], width: usize) -> Vec<u32> {
        let mut drafter = NgramDrafter::new();
        let mut draft = Vec::new();
        if drafter.look(tokens).is_some() {
            drafter.draft(tokens, width, &mut draft);
        }
        draft
    }

    #[test]
    fn what_followed_before_is_guessed() {
        assert!(guess(&[1, 2, 3, 4], 3).is_empty());
        assert_eq!(guess(&[1, 2, 3, 4, 1, 2], 2), [3, 4]);
        assert_eq!(guess(&[1, 2, 3, 4, 1, 2], 6), [3, 4, 1, 2, 3, 4], "as long as is asked for");
        assert_eq!(guess(&[1, 1, 1], 4), [1; 4]);
        assert_eq!(guess(&[5, 7, 7], 2), [7, 7]);
    }

    #[test]
    fn the_longest_match_counts() {
        assert_eq!(guess(&[1, 2, 3, 8, 2, 3, 9, 1, 2, 3], 1), [8]);
    }

    #[test]
    fn another_sequence_is_another_index() {
        let mut drafter = NgramDrafter::new();
        assert!(drafter.look(&[1, 2, 3, 4, 1, 2]).is_some());
        drafter.restart();
        assert!(drafter.look(&[5, 6, 7, 8, 1, 2, 9]).is_none(), "what was before is forgotten");
        let mut drafter = NgramDrafter::new();
        assert!(drafter.look(&[1, 2, 3, 4, 1, 2]).is_some());
        assert!(drafter.look(&[1, 2]).is_none(), "a shorter one cannot be the same");
    }

    #[test]
    fn the_index_grows_with_the_sequence() {
        let tokens: Vec<u32> = (0..40).map(|at| at * at % 7).collect();
        let mut drafter = NgramDrafter::new();
        for len in [3, 4, 20, 40] {
            let (mut grown, sure) = (Vec::new(), drafter.look(&tokens[..len]));
            drafter.draft(&tokens[..len], 8, &mut grown);
            assert_eq!(grown, guess(&tokens[..len], 8));
            assert_eq!(drafter.look(&tokens[..len]), sure, "looking twice changes nothing");
        }
    }
}
