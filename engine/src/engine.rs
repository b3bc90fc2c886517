//! A model loaded on a device, and the sequences that run on it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use unisonic_core::format::{Metadata, TensorInfo};
use unisonic_core::plan::{
    Device, DeviceInfo, Limits, PAGE_TOKENS, Plan, Program, Progress, Weight, WeightSource,
};
use unisonic_planner::PlanOptions;

use crate::draft::StepCosts;
use crate::kv::store::KvStore;
use crate::kv::{CacheKey, KvCache, KvDir, PageTable, PageUse, locked};
use crate::{EngineError, Session};

/// Longest context that is set up unless one is asked for: KV memory grows with it.
pub const DEFAULT_CONTEXT_LEN: u32 = 8192;

/// Tells the time, from any start; what is measured with it changes the speed of things and no result.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How to load a model. None of these can change a bit of any result.
#[derive(Clone)]
pub struct EngineOptions<'a> {
    /// Longest sequence, in tokens; `None`: what the model was made for, 8192 at most.
    pub context_len: Option<u32>,
    /// Sequences that can be at full length at a time.
    pub sequences: u32,
    /// KV pages of 64 tokens, for sequences and for the prefixes that are kept of earlier ones; `None`: what
    /// the sequences need at full length.
    pub kv_pages: Option<u32>,
    /// Digest of the weights, for KV pages that outlive the engine; may be empty for others.
    pub weights_digest: Vec<u8>,
    /// Where KV pages are kept for engines to come; needs the digest of the weights. `None`: nowhere.
    pub kv_dir: Option<KvDir>,
    /// Most rows in a batch: prompts are run in chunks of this many tokens.
    pub chunk_rows: u32,
    /// Most rows of a batch whose logits are kept: memory is this times the vocabulary.
    pub max_outputs: u32,
    /// Measures steps, for speculation to know what they cost; `None`: it goes by expectations.
    pub clock: Option<Clock>,
    /// Switches of the planner.
    pub plan: PlanOptions<'a>,
}

impl Default for EngineOptions<'_> {
    fn default() -> Self {
        Self {
            context_len: None,
            sequences: 1,
            kv_pages: None,
            weights_digest: Vec::new(),
            kv_dir: None,
            chunk_rows: 64,
            max_outputs: 16,
            clock: None,
            plan: PlanOptions::default(),
        }
    }
}

/// A model loaded on a device.
pub struct Engine {
    pub(crate) program: Box<dyn Program>,
    pub(crate) cache: Arc<Mutex<KvCache>>,
    /// The key of pages without a salt.
    key: CacheKey,
    pub(crate) store: Option<KvStore>,
    context_len: u32,
    chunk_rows: u32,
    max_outputs: u32,
    pub(crate) rows_run: u64,
    pub(crate) clock: Option<Clock>,
    pub(crate) costs: StepCosts,
}

impl Engine {
    /// Plans the model and loads it on the device. `progress` is called from any thread, never twice at a
    /// time.
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
        let kv_pages = kv_pages(context_len, options)?;
        let max_outputs = options.max_outputs.min(chunk_rows);
        let store = open_store(options)?;
        let limits = Limits { kv_pages, max_rows: chunk_rows, max_outputs };
        let program = device.load(Arc::new(plan), weights, limits, progress)?;
        let weights_bytes = program.plan().weights.iter().map(Weight::len_bytes).sum();
        let cache = Arc::new(Mutex::new(KvCache::new(kv_pages)));
        let key = CacheKey {
            weights: options.weights_digest.clone(),
            profile: program.device().profile.clone(),
            ..CacheKey::default()
        };
        Ok(Self {
            program,
            cache,
            key,
            store,
            context_len,
            chunk_rows,
            max_outputs,
            rows_run: 0,
            clock: options.clock.clone(),
            costs: StepCosts::expected(weights_bytes),
        })
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

    /// Most rows of a step whose logits are kept.
    pub fn max_outputs(&self) -> u32 {
        self.max_outputs
    }

    /// Rows that were run since the model was loaded.
    pub fn rows_run(&self) -> u64 {
        self.rows_run
    }

    /// What steps take.
    pub fn costs(&self) -> &StepCosts {
        &self.costs
    }

    /// Replaces what was measured.
    pub fn set_costs(&mut self, costs: StepCosts) {
        self.costs = costs;
    }

    /// An empty sequence, for this engine alone; nothing of it is kept when it is dropped.
    pub fn session(&self) -> Session {
        self.empty_session(None)
    }

    /// A sequence that begins with as many tokens of `prompt` as the prefix tree has under this salt, but not
    /// with the last, whose logits someone will want. Its pages stay in the tree for others after it has
    /// ended. What the tree does not have is taken from [`EngineOptions::kv_dir`].
    ///
    /// What it begins with can be seen in [`Session::tokens`] and in the time until the rest is run, and
    /// nowhere else.
    pub fn session_for(&mut self, salt: &[u8], prompt: &[u32]) -> Result<Session, EngineError> {
        let key = CacheKey { salt: salt.to_vec(), ..self.key.clone() };
        let mut session = self.empty_session(Some(key));
        let known = &prompt[..prompt.len().saturating_sub(1)];
        let (mut len, common) = session.pages.attach(known);
        if let Some(slots) = common
            && self.copy_slots(&mut session, &slots, None)?
        {
            len += slots.len;
        }
        session.tokens = known[..len].to_vec();
        self.attach_stored(&mut session, known)?;
        Ok(session)
    }

    fn empty_session(&self, key: Option<CacheKey>) -> Session {
        let pages = PageTable::new(Arc::clone(&self.cache), key);
        Session { tokens: Vec::new(), pages, stored: Vec::new() }
    }

    /// Where the KV pages are.
    pub fn page_use(&self) -> PageUse {
        locked(&self.cache).page_use()
    }
}

/// The tokenizer and the shapes of tensors decide how many tokens there are, as in llama.cpp; a `vocab_size`
/// that says otherwise changes nothing, but someone should hear of it.
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

fn open_store(options: &EngineOptions<'_>) -> Result<Option<KvStore>, EngineError> {
    let Some(dir) = &options.kv_dir else { return Ok(None) };
    if options.weights_digest.is_empty() {
        let (found, expected) = ("set without a digest of the weights".into(), "set together with it".into());
        return Err(EngineError::Option { option: "kv_dir", found, expected });
    }
    let failed = |problem| EngineError::KvDir { path: dir.path.clone(), problem };
    Ok(Some(KvStore::open(dir).map_err(failed)?))
}

/// Pages to set up: enough for one sequence at least.
fn kv_pages(context_len: u32, options: &EngineOptions<'_>) -> Result<u32, EngineError> {
    let one = context_len.div_ceil(PAGE_TOKENS);
    match options.kv_pages {
        Some(pages) if pages >= one => Ok(pages),
        Some(pages) => Err(EngineError::Option {
            option: "kv_pages",
            found: pages.to_string(),
            expected: format!("at least {one}, which the context of {context_len} tokens takes"),
        }),
        None => one.checked_mul(options.sequences).ok_or_else(|| EngineError::Option {
            option: "sequences",
            found: options.sequences.to_string(),
            expected: format!("few enough that {context_len} tokens for each fit 2^32 pages"),
        }),
    }
}
