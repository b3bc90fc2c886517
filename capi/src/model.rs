//! A model on a device.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use unisonic_core::format::GgufFile;
use unisonic_core::plan::{LoadProgress, Weight};
use unisonic_devices::{DeviceName, OpenOptions};
use unisonic_engine::constraint::{ConstraintError, Grammars};
use unisonic_engine::schedule::{ScheduleLimits, Scheduler};
use unisonic_engine::{Digest, Engine, EngineError, EngineOptions};

use crate::batch::MAX_QUEUED;
use crate::cancel::{Cancel, unisonic_cancel};
use crate::entry::entry;
use crate::error::{Result, c_string, unisonic_error};
use crate::handle::{self, Object};
use crate::library::{Library, unisonic_library};
use crate::loading::{Loading, unisonic_progress_fn};
use crate::model_files::ModelFiles;
use crate::options::{self, SizeTagged, unisonic_text};
use crate::requests::Requests;
use crate::status::unisonic_status;
use crate::tokenizer::{Tokenizer, unisonic_tokenizer};
use crate::turns::{Turn, Turns};

/// A model on a device.
///
/// One call at a time runs it; others wait for their turn, and may be cancelled meanwhile. Many requests at
/// once go through unisonic_batch.
pub struct unisonic_model {
    _opaque: (),
}

/// How to load a model. None of these can change a bit of any result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_load_options {
    /// sizeof(unisonic_load_options).
    pub struct_size: usize,
    /// The device, as unisonic_device_list_get names it; NULL: "cpu".
    pub device: *const c_char,
    /// Bytes of `device`.
    pub device_len: usize,
    /// Is told how far loading is; NULL: nobody is.
    pub progress: unisonic_progress_fn,
    /// Given to `progress`.
    pub progress_user: *mut c_void,
    /// Ends loading from another thread; NULL: nobody does.
    pub cancel: *mut unisonic_cancel,
    /// Most memory that a GPU is asked for; 0: what is free.
    pub memory_limit_bytes: u64,
    /// Threads of the CPU; 0: one for each processor.
    pub threads: u32,
    /// Longest sequence, in tokens; 0: what the model was made for, 8192 at most.
    pub context_len: u32,
    /// Sequences that can be at full length at a time; 0: 1. Memory for keys and values grows with it.
    pub sequences: u32,
    /// Most tokens in a step; 0: 64.
    pub chunk_rows: u32,
    /// Most tokens of a step whose logits are kept; 0: 16.
    pub max_outputs: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_load_options {
    const NAME: &'static str = "unisonic_load_options";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What a loaded model is. Its texts live as long as the model.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_model_info {
    /// sizeof(unisonic_model_info).
    pub struct_size: usize,
    /// Of the file's metadata.
    pub architecture: unisonic_text,
    /// Of the file's metadata; may be empty.
    pub name: unisonic_text,
    /// The device that runs it, as it is opened.
    pub device: unisonic_text,
    /// Hardware or implementation.
    pub hardware: unisonic_text,
    /// The arithmetic: results of equal arithmetic have equal bits on all devices.
    pub profile: unisonic_text,
    /// Parameters of all tensors.
    pub parameters: u64,
    /// Values of a row of logits.
    pub vocab_len: u32,
    /// Longest sequence, in tokens.
    pub context_len: u32,
    /// Longest sequence that the model was made for.
    pub trained_context_len: u32,
    /// Always 0.
    pub reserved: u32,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are NULLs and numbers.
unsafe impl SizeTagged for unisonic_model_info {
    const NAME: &'static str = "unisonic_model_info";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What a loaded model takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct unisonic_model_memory {
    /// sizeof(unisonic_model_memory).
    pub struct_size: usize,
    /// Weights on the device.
    pub weights_len_bytes: u64,
    /// Keys and values of all sequences, used or not.
    pub kv_len_bytes: u64,
    /// Pages of 64 tokens for keys and values.
    pub pages: u64,
    /// Pages of sessions and requests.
    pub pages_held: u64,
    /// Pages that are only kept for sequences that may begin in the same way.
    pub pages_cached: u64,
}

// SAFETY: repr(C), the fields follow each other without a gap, and zeros are numbers.
unsafe impl SizeTagged for unisonic_model_memory {
    const NAME: &'static str = "unisonic_model_memory";
    const FIRST_LEN_BYTES: usize = size_of::<Self>();
}

/// What is behind a model.
pub(crate) struct Model {
    pub(crate) scheduler: Turns<Scheduler>,
    /// Of all batches.
    pub(crate) requests: Requests,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) facts: Facts,
    /// Made when they are first needed: that takes a moment.
    grammars: OnceLock<std::result::Result<Grammars, ConstraintError>>,
    files: ModelFiles,
}

/// What does not change while a model is loaded.
pub(crate) struct Facts {
    architecture: CString,
    name: CString,
    device: CString,
    hardware: CString,
    profile: CString,
    parameters: u64,
    pub(crate) vocab_len: u32,
    pub(crate) context_len: u32,
    trained_context_len: u32,
    weights_len_bytes: u64,
    kv_len_bytes_per_token: u64,
}

impl Facts {
    /// The error of a sequence that is too long.
    pub(crate) fn overflow(&self, needed: usize) -> EngineError {
        let (context_len, trained_len) = (self.context_len, self.trained_context_len);
        EngineError::ContextOverflow { needed, context_len, trained_len }
    }

    pub(crate) fn device(&self) -> String {
        self.device.to_string_lossy().into_owned()
    }
}

impl Object for Model {
    type Handle = unisonic_model;
    const NAME: &'static str = "model";
}

impl Model {
    /// Waits until this thread may run the model.
    pub(crate) fn turn(&self, cancel: Option<&Cancel>) -> Result<Turn<'_, Scheduler>> {
        self.scheduler.take(cancel)
    }

    /// SHA-256 of the file, computed once; of a sharded set that of the digests of its files.
    pub(crate) fn digest(&self) -> Result<Digest> {
        self.files.digest()
    }

    /// Grammars over the model's tokens.
    pub(crate) fn grammars(&self) -> Result<&Grammars> {
        let grammars = self.grammars.get_or_init(|| Grammars::new(&self.tokenizer.vocabulary));
        Ok(grammars.as_ref().map_err(Clone::clone)?)
    }

    /// Where the model was.
    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    /// Refuses ids that the model does not have.
    pub(crate) fn check(&self, tokens: &[u32], name: &str) -> Result {
        crate::tokenizer::check_tokens(tokens, self.facts.vocab_len, name)
    }
}

/// Loads the model of a GGUF file, of which `path` may be any shard. `path` is the path's bytes on Unix,
/// whatever they are, and UTF-8 elsewhere; it need not end with a NUL. Free the model with
/// unisonic_model_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_load(
    library: *mut unisonic_library,
    path: *const c_char,
    path_len: usize,
    load_options: *const unisonic_load_options,
    model: *mut *mut unisonic_model,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let model = options::out(model, "model")?;
            let library = entry.object::<Library>(library)?;
            let path = options::path(path, path_len, "path")?;
            let given = options::read(load_options)?;
            options::reserved(given.reserved)?;
            let loading = Loading::new(given.progress, given.progress_user, Cancel::of(given.cancel)?);
            let loaded = load(&library, &path, &given, &loading)?;
            handle::write(model, &library, Arc::new(loaded))
        })
    }
}

/// # Safety
/// The texts in `given` are as the header asks.
unsafe fn load(
    library: &Library,
    path: &Path,
    given: &unisonic_load_options,
    loading: &Loading,
) -> Result<Model> {
    // SAFETY: the caller says so.
    let device = match unsafe { options::text(given.device, given.device_len, "device") }? {
        "" => DeviceName::Cpu,
        name => name.parse::<DeviceName>()?,
    };
    let file = GgufFile::open(path)?;
    let files = ModelFiles::of(&file)?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let or_none = |value: u32| (value != 0).then_some(value);
    let opened = OpenOptions {
        threads: or_none(given.threads).map(|threads| threads as usize),
        memory_limit_bytes: (given.memory_limit_bytes != 0).then_some(given.memory_limit_bytes),
        cache: library.cache().cloned(),
        ..OpenOptions::default()
    };
    let device = unisonic_devices::open(device, opened)?;
    loading.check()?;
    let start = Instant::now();
    let defaults = EngineOptions::default();
    let engine_options = EngineOptions {
        context_len: or_none(given.context_len),
        sequences: given.sequences.max(1),
        chunk_rows: or_none(given.chunk_rows).unwrap_or(defaults.chunk_rows),
        max_outputs: or_none(given.max_outputs).unwrap_or(defaults.max_outputs),
        clock: Some(Arc::new(move || start.elapsed())),
        ..defaults
    };
    let tell = |progress: LoadProgress| loading.progress(progress);
    let weights = loading.watched(&file);
    let engine = Engine::load(file.metadata(), file.tensors(), &weights, &*device, &engine_options, &tell);
    // What ended it is not what failed, but who asked for it.
    loading.check()?;
    let engine = engine?;
    let facts = facts(&file, &engine);
    let limits = ScheduleLimits { max_queued: MAX_QUEUED, ..ScheduleLimits::default() };
    let device = &engine.device().id;
    tracing::info!(device, context_len = facts.context_len, "loaded {}", path.display());
    Ok(Model {
        scheduler: Turns::new(Scheduler::new(engine, limits), Model::NAME),
        requests: Requests::default(),
        tokenizer: Arc::new(tokenizer),
        facts,
        grammars: OnceLock::new(),
        files,
    })
}

fn facts(file: &GgufFile, engine: &Engine) -> Facts {
    let (plan, device) = (engine.plan(), engine.device());
    let name = file.metadata().string("general.name").ok().flatten().unwrap_or_default();
    let elements = file.tensors().iter().map(|tensor| tensor.rows().saturating_mul(tensor.row_len()));
    Facts {
        architecture: c_string(&plan.architecture),
        name: c_string(name),
        device: c_string(&device.id),
        hardware: c_string(&device.name),
        profile: c_string(&device.profile),
        parameters: elements.fold(0, u64::saturating_add),
        vocab_len: plan.vocab_len,
        context_len: engine.context_len(),
        trained_context_len: plan.context_len,
        weights_len_bytes: plan.weights.iter().map(Weight::len_bytes).sum(),
        kv_len_bytes_per_token: plan.kv_bytes_per_token(),
    }
}

/// The tokenizer of a model. It may outlive the model; free it with unisonic_tokenizer_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_tokenizer(
    model: *mut unisonic_model,
    tokenizer: *mut *mut unisonic_tokenizer,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let tokenizer = options::out(tokenizer, "tokenizer")?;
            let (model, library) = entry.object_of::<Model>(model)?;
            handle::write(tokenizer, &library, Arc::clone(&model.tokenizer))
        })
    }
}

/// Describes a model into `info`, whose struct_size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_get_info(
    model: *mut unisonic_model,
    info: *mut unisonic_model_info,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let model = entry.object::<Model>(model)?;
            let facts = &model.facts;
            let found = unisonic_model_info {
                struct_size: size_of::<unisonic_model_info>(),
                architecture: unisonic_text::of(&facts.architecture),
                name: unisonic_text::of(&facts.name),
                device: unisonic_text::of(&facts.device),
                hardware: unisonic_text::of(&facts.hardware),
                profile: unisonic_text::of(&facts.profile),
                parameters: facts.parameters,
                vocab_len: facts.vocab_len,
                context_len: facts.context_len,
                trained_context_len: facts.trained_context_len,
                reserved: 0,
            };
            options::write(info, &found)
        })
    }
}

/// What a model takes, into `memory`, whose struct_size is set. Waits for the call that runs the model, if
/// one does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_get_memory(
    model: *mut unisonic_model,
    memory: *mut unisonic_model_memory,
    error: *mut *mut unisonic_error,
) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe {
        entry(error, |entry| {
            let model = entry.object::<Model>(model)?;
            let pages = model.turn(None)?.engine().page_use();
            let page_len_bytes =
                model.facts.kv_len_bytes_per_token * u64::from(unisonic_core::plan::PAGE_TOKENS);
            let found = unisonic_model_memory {
                struct_size: size_of::<unisonic_model_memory>(),
                weights_len_bytes: model.facts.weights_len_bytes,
                kv_len_bytes: page_len_bytes * pages.total as u64,
                pages: pages.total as u64,
                pages_held: pages.held as u64,
                pages_cached: pages.cached as u64,
            };
            options::write(memory, &found)
        })
    }
}

/// Frees a model; NULL is fine. Its memory goes when its sessions and batches are freed too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisonic_model_free(model: *mut unisonic_model) -> unisonic_status {
    // SAFETY: the promises of the header.
    unsafe { handle::free::<Model>(model) }
}
