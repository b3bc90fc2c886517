//! Choosing tokens that follow a grammar.

use super::Grammar;
use super::position::Position;
use crate::sampling::Sampler;
use crate::{EngineError, Sample};

/// A sampler whose answer follows a grammar.
///
/// Two positions go along with the answer. The judge makes the masks; what it does depends on the chosen tokens alone, so
/// that even a limit it runs into is the same with and without guesses. The scout looks at guesses, on its own copy of all
/// that llguidance keeps.
pub struct ConstrainedSampler {
    sampler: Sampler,
    judge: Position,
    /// None after it has failed: then there are no guesses.
    scout: Option<Position>,
    answer_start: usize,
}

impl ConstrainedSampler {
    /// For an answer that begins at index `answer_start` of the sequence, which is the length of the prompt.
    pub fn new(sampler: Sampler, grammar: Grammar, answer_start: usize) -> Self {
        let Grammar { judge, scout } = grammar;
        Self { sampler, judge, scout: Some(scout), answer_start }
    }

    /// The scout after these tokens.
    fn scout(&mut self, tokens: &[u32]) -> Option<&mut Position> {
        let answer = tokens.get(self.answer_start..)?;
        let went = self.scout.as_mut()?.go_to(answer);
        if let Err(error) = went {
            tracing::warn!(%error, "guesses cannot be held against the grammar; going on without them");
            self.scout = None;
        }
        self.scout.as_mut()
    }

    fn go_to(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        Ok(self.judge.go_to(tokens.get(self.answer_start..).unwrap_or(&[]))?)
    }
}

impl Sample for ConstrainedSampler {
    fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32, EngineError> {
        self.go_to(before)?;
        let mask = self.judge.mask()?;
        Ok(self.sampler.choose(logits, before, Some(mask.as_slice()))?)
    }

    fn is_complete(&mut self, tokens: &[u32]) -> Result<bool, EngineError> {
        self.go_to(tokens)?;
        Ok(self.judge.is_complete())
    }

    fn possible(&mut self, tokens: &[u32], guesses: &[u32]) -> usize {
        self.scout(tokens).map_or(0, |scout| scout.possible(guesses))
    }

    fn forced(&mut self, tokens: &[u32]) -> Vec<u32> {
        self.scout(tokens).map_or(Vec::new(), Position::forced)
    }
}
