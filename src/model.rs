//! From the command line to a model: opening the file, its tokenizer, and the engine on a device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use unisonic_core::format::GgufFile;
use unisonic_core::plan::Device;
use unisonic_devices::{CompileProgress, FeaturesOff, OnCompile, OpenOptions};
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::tune::TableDevice;
use unisonic_engine::{Clock, Engine, EngineError, EngineOptions};
use unisonic_planner::launches::LaunchPasses;
use unisonic_planner::passes::{Crash, Dump};
use unisonic_planner::tune::Tuning;
use unisonic_planner::{PlanError, PlanOptions};

use crate::cli::{Diagnostic, LoadArgs};
use crate::output::{bytes_bar, progress_bar, say};
use crate::tuning_tables;

/// Opens a model file.
pub fn open(path: &Path) -> anyhow::Result<GgufFile> {
    if !path.exists() {
        bail!(
            "there is no file {}; give the path of a GGUF model, or fetch one with `unisonic pull` or `make model`",
            path.display()
        );
    }
    GgufFile::open(path).with_context(|| format!("cannot open {} as a model", path.display()))
}

/// The tokenizer of a model file.
pub fn tokenizer(file: &GgufFile, path: &Path) -> anyhow::Result<Tokenizer> {
    Tokenizer::from_metadata(file.metadata())
        .with_context(|| format!("cannot use the tokenizer of {}", path.display()))
}

/// A chat template in a file of its own.
pub fn chat_template(path: &Path) -> anyhow::Result<ChatTemplate> {
    let source = std::fs::read_to_string(path).map_err(anyhow::Error::new);
    source
        .and_then(|source| Ok(ChatTemplate::new(source)?))
        .with_context(|| format!("cannot use the chat template {}", path.display()))
}

/// How much a loaded model must be ready for.
pub struct Capacity {
    /// Longest sequence in tokens; none: the engine's default.
    pub context_len: Option<u32>,
    /// Sequences at a time.
    pub sequences: u32,
    /// Most rows of a chunk whose logits are wanted.
    pub max_outputs: u32,
}

/// Plans the model and loads it on the device, with a progress bar; `--dump-ir` sees what the planner did
/// even where there is no plan.
pub fn load(file: &GgufFile, path: &Path, args: &LoadArgs, capacity: &Capacity) -> anyhow::Result<Engine> {
    load_with(file, path, args, capacity, &|_| {})
}

/// [`load`] with other options of the engine.
pub fn load_with(
    file: &GgufFile,
    path: &Path,
    args: &LoadArgs,
    capacity: &Capacity,
    change: &dyn Fn(&mut EngineOptions<'_>),
) -> anyhow::Result<Engine> {
    let (device, _) = open_device(args)?;
    load_on(&*device, file, path, args, capacity, change)
}

/// Opens the device. What was measured on it before is used, unless that is switched off.
pub fn open_device(args: &LoadArgs) -> anyhow::Result<(Box<dyn Device>, Tuning)> {
    let tuning = Tuning::default();
    let features_off = FeaturesOff::named(&args.features_off)?;
    let cache = args.cache.open();
    let device = unisonic_devices::open(
        args.device,
        OpenOptions {
            exact_v: args.diagnostic == Some(Diagnostic::ExactV),
            threads: args.threads.map(|threads| threads as usize),
            memory_limit_bytes: args.memory_limit,
            launch_passes: LaunchPasses::without(&args.passes_off),
            tuning: tuning.clone(),
            features_off,
            cache: cache.clone(),
            on_compile: Some(compile_bar()),
        },
    )?;
    if let (Some(cache), false, Some(_)) = (cache, features_off.tuning_table, device.hardware())
        && let Some(table) = tuning_tables::kept(&cache, &TableDevice::of(&*device))
    {
        tracing::info!(kernels = table.kernels.len(), "kernels as `unisonic tune` measured them");
        tuning.set_table(table.rows());
    }
    Ok((device, tuning))
}

/// [`load_with`] on a device that is open.
pub fn load_on(
    device: &dyn Device,
    file: &GgufFile,
    path: &Path,
    args: &LoadArgs,
    capacity: &Capacity,
    change: &dyn Fn(&mut EngineOptions<'_>),
) -> anyhow::Result<Engine> {
    let texts = RefCell::new(Vec::new());
    let dump = |name: &str, text: &str| texts.borrow_mut().push((name.to_owned(), text.to_owned()));
    let mut options = EngineOptions {
        context_len: capacity.context_len,
        sequences: capacity.sequences,
        chunk_rows: args.chunk_rows(),
        max_outputs: capacity.max_outputs,
        clock: Some(clock()),
        plan: PlanOptions {
            passes_off: args.passes_off.clone(),
            stop_after: args.stop_after.clone(),
            dump: args.dump_ir.is_some().then_some(&dump as &Dump<'_>),
        },
        ..EngineOptions::default()
    };
    change(&mut options);
    let bar = bytes_bar("loading", 0);
    let loaded = Engine::load(file.metadata(), file.tensors(), file, device, &options, &|progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.loaded_bytes);
    });
    bar.finish_and_clear();
    if let Some(folder) = &args.dump_ir {
        if let Ok(engine) = &loaded {
            dump("plan", &engine.plan().to_string());
        }
        write_ir(folder, &texts.borrow())?;
    }
    if let Err(EngineError::Plan(PlanError::Pass(error))) = &loaded
        && let Some(crash) = error.crash()
    {
        write_crash(&args.dump_ir.clone().unwrap_or_else(std::env::temp_dir), crash)?;
    }
    let engine = loaded.with_context(|| format!("cannot load {}", path.display()))?;
    let profile = &engine.device().profile;
    if profile != unisonic_core::plan::PROFILE {
        say(format_args!("note: diagnostic arithmetic `{profile}`; results are not those of the product"));
    }
    tracing::info!(device = engine.device().name, profile, context_len = engine.context_len(), "loaded");
    Ok(engine)
}

/// Shows how far the kernels of a GPU are while they are compiled.
fn compile_bar() -> Arc<OnCompile> {
    let shown = Mutex::new(None);
    Arc::new(move |CompileProgress { done, total }| {
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = shown.get_or_insert_with(|| progress_bar("compiling kernels", total as u64));
        bar.set_position(done as u64);
        if done == total {
            bar.finish_and_clear();
            *shown = None;
        }
    })
}

/// By which the engine learns what its steps cost.
pub fn clock() -> Clock {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// What the tensors of a file are.
pub struct TensorFacts {
    /// Tensors of each type.
    pub types: BTreeMap<&'static str, u64>,
    /// Elements of all tensors.
    pub parameters: u64,
}

/// Counts the tensors of a file.
pub fn tensor_facts(file: &GgufFile) -> TensorFacts {
    let mut facts = TensorFacts { types: BTreeMap::new(), parameters: 0 };
    for tensor in file.tensors() {
        *facts.types.entry(tensor.ty.name()).or_default() += 1;
        facts.parameters = facts.parameters.saturating_add(tensor.rows().saturating_mul(tensor.row_len()));
    }
    facts
}

/// Writes the graph as built and after each pass that changed it, and the plan, as numbered text files.
fn write_ir(folder: &Path, texts: &[(String, String)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (number, (name, text)) in texts.iter().enumerate() {
        let path = folder.join(format!("{number:02}-{name}.txt"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes what runs a pass again that failed.
fn write_crash(folder: &Path, crash: &Crash) -> anyhow::Result<()> {
    let path = folder.join(format!("unisonic-crash-{}.txt", crash.pass));
    std::fs::write(&path, crash.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    say(format_args!("note: `unisonic passes --replay {}` runs the pass that failed", path.display()));
    Ok(())
}

/// Refuses ids that the model does not have, before anything is loaded.
pub fn check_ids(ids: &[u32], vocab_len: u32) -> anyhow::Result<()> {
    match ids.iter().find(|&&id| id >= vocab_len) {
        Some(id) => {
            bail!("token id {id}, but the vocabulary has {vocab_len} tokens (0 to {})", vocab_len - 1)
        }
        None => Ok(()),
    }
}
