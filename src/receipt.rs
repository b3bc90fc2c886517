//! `run --receipt`: what was run and what came of it, in a file.

use std::path::{Path, PathBuf};

use unisonic_core::format::GgufFile;
use unisonic_engine::constraint::ConstrainedAnswer;
use unisonic_engine::receipt::{LogitsChain, MadeWith, ModelId, Receipt};
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::{Completion, Digest, Engine};

use crate::atomic;
use crate::cli::LoadArgs;

/// Notes the logits of a run.
pub struct Recorder {
    path: PathBuf,
    receipt: Receipt,
    chain: LogitsChain,
}

/// What will run.
pub struct Subject<'a> {
    pub file: &'a GgufFile,
    pub sha256: Digest,
    pub engine: &'a Engine,
    pub load: &'a LoadArgs,
    pub sampler: SamplerOptions,
    pub answer: Option<ConstrainedAnswer>,
    pub prompt: &'a [u32],
}

impl Recorder {
    /// For a receipt in the file `path`.
    pub fn new(path: &Path, subject: Subject<'_>) -> Self {
        let file = subject.file.paths().next().unwrap_or(Path::new(""));
        let receipt = Receipt {
            unisonic_receipt: 0,
            model: ModelId { file: file.to_string_lossy().into_owned(), sha256: subject.sha256 },
            profile: subject.engine.device().profile.clone(),
            made_with: MadeWith {
                program: concat!("unisonic ", env!("CARGO_PKG_VERSION")).into(),
                device: subject.engine.device().id.clone(),
                chunk_rows: subject.engine.chunk_rows(),
                context_len: subject.engine.context_len(),
                passes_off: subject.load.passes_off.clone(),
            },
            sampler: subject.sampler,
            answer: subject.answer,
            prompt_ids: subject.prompt.to_vec(),
            output_ids: Vec::new(),
            stop: String::new(),
            chain: Vec::new(),
            sha256: None,
        };
        let chain = receipt.new_chain();
        Self { path: path.to_owned(), receipt, chain }
    }

    /// Notes the logits that the next token was chosen from.
    pub fn push(&mut self, logits: &[f32]) {
        self.receipt.chain.push(self.chain.push(logits));
    }

    /// Writes the receipt.
    pub fn finish(self, completion: &Completion) -> anyhow::Result<()> {
        let receipt = Receipt {
            output_ids: completion.token_ids.clone(),
            stop: completion.stop.as_str().into(),
            ..self.receipt
        };
        atomic::write(&self.path, receipt.seal().to_json().as_bytes())
    }
}
