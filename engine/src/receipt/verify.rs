//! Recomputing a receipt.

use super::Receipt;
use crate::{Engine, EngineError, Sample};

/// What recomputing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All tokens, and the bits of all logits that they were chosen from, are the receipt's.
    Equal,
    /// They are not.
    Differs(Difference),
}

/// The first token of the output that is not what the receipt says, or was not chosen from the same logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the token in the output.
    pub step: usize,
    /// Position of the token in the sequence.
    pub position: usize,
    /// The token in the receipt.
    pub expected: u32,
    /// The token that is chosen here, after all tokens of the receipt before it.
    pub found: u32,
    /// Whether logits differ.
    pub logits_differ: bool,
}

/// Recomputes the logits of a receipt, as many tokens at a time as the engine runs in a chunk, and chooses each token again.
///
/// The engine has to run the receipt's model and arithmetic ([`Receipt::check`]), `sampler` its options. Ends with the chunk of
/// the first difference; `progress(tokens done)` is called after each chunk.
pub fn verify(
    engine: &mut Engine,
    receipt: &Receipt,
    sampler: &mut dyn Sample,
    progress: &mut dyn FnMut(usize),
) -> Result<Verdict, EngineError> {
    if receipt.prompt_ids.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    let Some((_, outputs_before)) = receipt.output_ids.split_last() else { return Ok(Verdict::Equal) };
    let all = [&receipt.prompt_ids, outputs_before].concat();
    let mut check = Check { receipt, all: &all, sampler, chain: receipt.new_chain(), end: Ok(None) };
    let mut session = engine.session();
    let first_output = receipt.prompt_ids.len() - 1;
    // No more at a time than a step can have outputs, so that one chunk is one step.
    let chunk = engine.chunk_rows().min(engine.max_outputs()).max(1) as usize;
    let (prompt, outputs) = all.split_at(first_output);
    engine.extend(&mut session, prompt, prompt.len(), &mut |_, _| {})?;
    for tokens in outputs.chunks(chunk) {
        let base = session.tokens().len();
        engine.extend(&mut session, tokens, 0, &mut |index, logits| check.row(base + index, logits))?;
        if let Some(difference) = std::mem::replace(&mut check.end, Ok(None))? {
            return Ok(Verdict::Differs(difference));
        }
        progress(session.tokens().len() - first_output);
    }
    Ok(Verdict::Equal)
}

struct Check<'a> {
    receipt: &'a Receipt,
    /// All tokens but the last.
    all: &'a [u32],
    sampler: &'a mut dyn Sample,
    chain: super::LogitsChain,
    /// The first difference or error.
    end: Result<Option<Difference>, EngineError>,
}

impl Check<'_> {
    /// Looks at the logits that follow the token at a position.
    fn row(&mut self, position: usize, logits: &[f32]) {
        if matches!(self.end, Ok(None)) {
            self.end = self.difference(position, logits);
        }
    }

    fn difference(&mut self, position: usize, logits: &[f32]) -> Result<Option<Difference>, EngineError> {
        let step = position + 1 - self.receipt.prompt_ids.len();
        let logits_differ = self.receipt.chain.get(step) != Some(&self.chain.push(logits));
        let found = self.sampler.sample(logits, &self.all[..=position])?;
        let expected = self.receipt.output_ids[step];
        let equal = found == expected && !logits_differ;
        Ok((!equal).then_some(Difference { step, position: position + 1, expected, found, logits_differ }))
    }
}
