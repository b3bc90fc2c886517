//! Who guesses tokens ahead, from the command line.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::bail;
use clap::{Args, ValueEnum};
use unisonic_core::format::GgufFile;
use unisonic_engine::Engine;
use unisonic_engine::draft::{DraftStats, Drafter, MAX_VERIFY_ROWS, ModelDrafter, NgramDrafter};

use crate::cli::LoadArgs;
use crate::model::{self, Capacity};

/// Guessing tokens and checking many in one step. No choice here can change a bit of the result.
#[derive(Args)]
#[command(next_help_heading = "Speculation")]
pub struct SpeculationArgs {
    /// How tokens are guessed ahead, which changes the speed and no result; given, the JSON says how it went
    /// [default: ngram]
    #[arg(long, value_name = "HOW", conflicts_with = "draft_model")]
    speculate: Option<Speculate>,
    /// Guesses with this model, which has to have the same vocabulary, and should be much smaller
    #[arg(long, value_name = "FILE")]
    draft_model: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Speculate {
    /// No guesses
    Off,
    /// What followed the last tokens when they occurred before, in prompt or answer
    Ngram,
}

impl SpeculationArgs {
    /// Rows of a step whose logits are wanted.
    pub fn max_outputs(&self) -> u32 {
        if self.speculate == Some(Speculate::Off) { 1 } else { MAX_VERIFY_ROWS as u32 }
    }

    /// Whether the choice was made by the caller, who then may want to know how it went.
    pub fn is_given(&self) -> bool {
        self.speculate.is_some() || self.draft_model.is_some()
    }

    /// Who guesses, if anyone does.
    pub fn drafter(
        &self,
        file: &GgufFile,
        load: &LoadArgs,
        engine: &Engine,
    ) -> anyhow::Result<Option<Box<dyn Drafter>>> {
        if self.speculate == Some(Speculate::Off) {
            return Ok(None);
        }
        let Some(path) = &self.draft_model else { return Ok(Some(Box::new(NgramDrafter::new()))) };
        let draft_file = model::open(path)?;
        same_vocabulary(file, &draft_file, path)?;
        let capacity = Capacity { context_len: None, sequences: 1, max_outputs: 1 };
        let draft = Arc::new(Mutex::new(model::load(&draft_file, path, load, &capacity)?));
        Ok(Some(Box::new(ModelDrafter::new(draft, engine.plan().vocab_len, b"")?)))
    }
}

/// Equal ids have to mean equal tokens, or every guess would be wrong.
fn same_vocabulary(file: &GgufFile, draft: &GgufFile, path: &Path) -> anyhow::Result<()> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    if file.metadata().get(TOKENS) != draft.metadata().get(TOKENS) {
        bail!(
            "{} has another vocabulary than the model; give a smaller model of the same family",
            path.display()
        );
    }
    Ok(())
}

/// What guessing did, for machines.
pub fn json(drafts: DraftStats) -> serde_json::Value {
    serde_json::json!({ "steps": drafts.steps, "drafted": drafts.drafted, "accepted": drafts.accepted })
}

/// `; guessed: 12 of 40 right`, or nothing where nothing was guessed.
pub fn phrase(drafts: DraftStats) -> String {
    match drafts.drafted {
        0 => String::new(),
        drafted => format!("; guessed: {} of {drafted} right", drafts.accepted),
    }
}
