//! A model loaded on a device, and the sequences that run on it.

use std::sync::Arc;

use unisonic_core::format::{Metadata, TensorInfo};
use unisonic_core::plan::{
    Batch, Device, DeviceInfo, Limits, PAGE_TOKENS, Plan, Program, Progress, WeightSource,
};
use unisonic_planner::PlanOptions;

use crate::EngineError;
use crate::pages::{PagePool, PageTable};

/// Longest context that is set up unless one is asked for: KV memory grows with it.
const DEFAULT_CONTEXT_LEN: u32 = 8192;

/// How to load a model. None of these can change a bit of any result.
#[derive(Clone)]
pub struct EngineOptions<'a> {
    /// Longest sequence, in tokens; `None`: what the model was made for, 8192 at most.
    pub context_len: Option<u32>,
    /// Sequences that can be at full length at a time.
    pub sequences: u32,
    /// Most rows in a batch: prompts are run in chunks of this many tokens.
    pub chunk_rows: u32,
    /// Most rows of a batch whose logits are kept: memory is this times the vocabulary.
    pub max_outputs: u32,
    /// Switches of the planner.
    pub plan: PlanOptions<'a>,
}

impl Default for EngineOptions<'_> {
    fn default() -> Self {
        Self {
            context_len: None,
            sequences: 1,
            chunk_rows: 64,
            max_outputs: 16,
            plan: PlanOptions::default(),
        }
    }
}

/// A model loaded on a device.
pub struct Engine {
    program: Box<dyn Program>,
    pages: PagePool,
    context_len: u32,
    chunk_rows: u32,
    max_outputs: u32,
}

/// One sequence of tokens with its KV pages. Dropping it gives the pages back.
#[derive(Debug)]
pub struct Session {
    tokens: Vec<u32>,
    pages: PageTable,
}

impl Session {
    /// The tokens whose keys and values are in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets all tokens past the first `len`; what stays is as if nothing had followed it.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.pages.shrink(self.tokens.len().div_ceil(PAGE_TOKENS as usize));
    }
}

impl Engine {
    /// Plans the model and loads it on the device. `progress` is called from any thread, never twice at a time.
    pub fn load(
        metadata: &Metadata,
        tensors: &[TensorInfo],
        weights: &dyn WeightSource,
        device: &dyn Device,
        options: &EngineOptions<'_>,
        progress: &Progress<'_>,
    ) -> Result<Self, EngineError> {
        let plan = unisonic_planner::plan(metadata, tensors, weights, &options.plan)?;
        warn_of_vocab_size(metadata, &plan);
        let context_len = context_len(&plan, options)?;
        for (option, value) in [
            ("sequences", options.sequences),
            ("chunk_rows", options.chunk_rows),
            ("max_outputs", options.max_outputs),
        ] {
            if value == 0 {
                return Err(EngineError::Option { option, found: "0".into(), expected: "at least 1".into() });
            }
        }
        let chunk_rows = options.chunk_rows.min(context_len);
        let kv_pages = context_len.div_ceil(PAGE_TOKENS).checked_mul(options.sequences).ok_or_else(|| {
            EngineError::Option {
                option: "sequences",
                found: options.sequences.to_string(),
                expected: format!("few enough that {context_len} tokens for each fit 2^32 pages"),
            }
        })?;
        let max_outputs = options.max_outputs.min(chunk_rows);
        let limits = Limits { kv_pages, max_rows: chunk_rows, max_outputs };
        let program = device.load(Arc::new(plan), weights, limits, progress)?;
        let pages = PagePool::new(kv_pages);
        Ok(Self { program, pages, context_len, chunk_rows, max_outputs })
    }

    /// The plan that runs.
    pub fn plan(&self) -> &Plan {
        self.program.plan()
    }

    /// The device that it runs on.
    pub fn device(&self) -> &DeviceInfo {
        self.program.device()
    }

    /// Longest sequence, in tokens.
    pub fn context_len(&self) -> u32 {
        self.context_len
    }

    /// Rows of a chunk: longer inputs are run in pieces of this many tokens.
    pub fn chunk_rows(&self) -> u32 {
        self.chunk_rows
    }

    /// An empty sequence, for this engine alone.
    pub fn session(&self) -> Session {
        Session { tokens: Vec::new(), pages: PageTable::new(self.pages.clone()) }
    }

    /// Appends tokens to a sequence, in chunks, and hands over the logits that follow each token from index
    /// `first_output` of `tokens` on: `sink(index, logits)`, in order.
    ///
    /// After an error the session holds the chunks before the one that failed; nothing is half done.
    pub fn extend(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        first_output: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        if !session.pages.is_of(&self.pages) {
            return Err(EngineError::ForeignSession);
        }
        let needed = session.tokens.len() + tokens.len();
        if needed > self.context_len as usize {
            return Err(EngineError::ContextOverflow {
                needed,
                context_len: self.context_len,
                trained_len: self.plan().context_len,
            });
        }
        let pages = needed.div_ceil(PAGE_TOKENS as usize);
        session.pages.grow(pages).map_err(|(needed, free)| EngineError::OutOfPages {
            needed,
            free,
            total: self.pages.total(),
        })?;
        let mut start = 0;
        while start < tokens.len() {
            let end = self.chunk_end(start, tokens.len(), first_output);
            if let Err(error) = self.run_chunk(session, tokens, start..end, first_output, sink) {
                session.truncate(session.tokens.len());
                return Err(error);
            }
            start = end;
        }
        Ok(())
    }

    /// End of the chunk that begins at `start`: at most `chunk_rows` rows of which at most `max_outputs` are outputs.
    fn chunk_end(&self, start: usize, len: usize, first_output: usize) -> usize {
        let rows_end = start + self.chunk_rows as usize;
        let outputs_end = start.max(first_output).saturating_add(self.max_outputs as usize);
        len.min(rows_end).min(outputs_end)
    }

    fn run_chunk(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        chunk: std::ops::Range<usize>,
        first_output: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let base = session.tokens.len() as u32;
        let rows = chunk.len() as u32;
        let positions: Vec<u32> = (base..base + rows).collect();
        let outputs: Vec<u32> = (0..rows).filter(|&row| chunk.start + row as usize >= first_output).collect();
        let batch = Batch {
            tokens: &tokens[chunk.clone()],
            positions: &positions,
            sequences: &vec![0; rows as usize],
            page_tables: &[session.pages.pages()],
            outputs: &outputs,
        };
        let flags = self.program.run(&batch)?;
        if let Some(flag) = flags.first() {
            return Err(EngineError::Range {
                position: positions[flag.row as usize],
                step: self.plan().steps[flag.step as usize].label.clone(),
                profile: self.device().profile.clone(),
            });
        }
        session.tokens.extend_from_slice(&tokens[chunk.clone()]);
        for (output, &row) in outputs.iter().enumerate() {
            sink(chunk.start + row as usize, self.program.logits(output));
        }
        Ok(())
    }
}

/// The tokenizer and the shapes of tensors decide how many tokens there are, as in llama.cpp; a `vocab_size` that says
/// otherwise changes nothing, but someone should hear of it.
fn warn_of_vocab_size(metadata: &Metadata, plan: &Plan) {
    let Ok(Some(architecture)) = metadata.string("general.architecture") else { return };
    let key = format!("{architecture}.vocab_size");
    if let Some(said) = metadata.u32(&key).ok().flatten().filter(|&said| said != plan.vocab_len) {
        tracing::warn!(
            key,
            said,
            used = plan.vocab_len,
            "the file says a wrong vocabulary size; it is not used"
        );
    }
}

fn context_len(plan: &Plan, options: &EngineOptions<'_>) -> Result<u32, EngineError> {
    let trained = plan.context_len;
    match options.context_len {
        None => Ok(trained.min(DEFAULT_CONTEXT_LEN)),
        Some(len) if (1..=trained).contains(&len) => Ok(len),
        Some(len) => Err(EngineError::Option {
            option: "context length",
            found: len.to_string(),
            expected: format!("1 to {trained}, the context that the model was made for"),
        }),
    }
}
