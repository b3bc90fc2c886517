//! A place in a grammar.

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;

use super::ConstraintError;
use super::grammars::reason;

/// Where a grammar is after some tokens of an answer.
pub(super) struct Position {
    matcher: Matcher,
    /// The tokens that led there.
    held: Vec<u32>,
}

impl Position {
    /// At the beginning.
    pub(super) fn new(matcher: Matcher) -> Self {
        Self { matcher, held: Vec::new() }
    }

    /// The same place, with a copy of all that llguidance keeps.
    pub(super) fn fork(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), held: self.held.clone() }
    }

    /// Goes to the place after these tokens, forward or back.
    pub(super) fn go_to(&mut self, answer: &[u32]) -> Result<(), ConstraintError> {
        let common = self.held.iter().zip(answer).take_while(|(held, token)| held == token).count();
        let back = self.held.len() - common;
        if back > 0 {
            self.matcher.rollback(back).map_err(|error| self.failed(&error))?;
            self.held.truncate(common);
        }
        for &token in &answer[common..] {
            self.matcher.consume_token(token).map_err(|error| self.failed(&error))?;
            self.held.push(token);
        }
        Ok(())
    }

    /// Which tokens may come next: bit `id % 32` of word `id / 32`.
    pub(super) fn mask(&mut self) -> Result<SimpleVob, ConstraintError> {
        self.matcher.compute_mask().map_err(|error| self.failed(&error))
    }

    /// Whether nothing may come any more.
    pub(super) fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// How many of these tokens may come here, one after the other.
    pub(super) fn possible(&mut self, tokens: &[u32]) -> usize {
        self.matcher.validate_tokens(tokens).unwrap_or(0)
    }

    /// The text that has to come here, cut greedily.
    pub(super) fn forced(&mut self) -> Vec<u32> {
        let bytes = self.matcher.compute_ff_bytes();
        match self.matcher.tok_env() {
            Ok(tokens) if !bytes.is_empty() => tokens.tok_trie().greedy_tokenize(&bytes),
            _ => Vec::new(),
        }
    }

    fn failed(&self, error: &anyhow::Error) -> ConstraintError {
        ConstraintError::Failed { tokens: self.held.len(), reason: reason(error) }
    }
}
