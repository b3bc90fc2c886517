//! What the integration tests share: tiers, test data, and engines.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod costs;
pub mod float_state;
pub mod golden;
pub mod pieces;
pub mod program;
pub mod random_quants;

use std::io::Write;
use std::path::{Path, PathBuf};

use unisonic_core::format::{GgufFile, GgufWriter, Metadata, Value};
use unisonic_core::plan::{Device, WeightSource};
use unisonic_devices::{DeviceName, OpenOptions};
use unisonic_engine::{Engine, EngineOptions, Session};

/// How much of the tests runs (DEVELOPERS.md, "Test tiers"): each tier holds the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Needs no download.
    Quick,
    /// Also the tiny fixtures and SmolLM2-135M.
    Ci,
    /// Everything.
    Full,
}

/// The tier of this run, from `UNISONIC_TIER`.
pub fn tier() -> Tier {
    match std::env::var("UNISONIC_TIER").as_deref() {
        Err(_) | Ok("quick") => Tier::Quick,
        Ok("ci") => Tier::Ci,
        Ok("full") => Tier::Full,
        Ok(other) => panic!("UNISONIC_TIER is {other:?}; expected quick, ci or full"),
    }
}

/// Whether the tier of this run holds `tier`; if not, says what is skipped.
pub fn runs_in(tier_needed: Tier, what: &str) -> bool {
    let runs = tier() >= tier_needed;
    if !runs {
        skipped(what, &format!("runs in tier {tier_needed:?}").to_lowercase());
    }
    runs
}

/// Says on stderr, past libtest's capture, that something was left out.
pub fn skipped(what: &str, why: &str) {
    say(&format!("skipped: {what} ({why})"));
}

/// Writes a line past libtest's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A path below the repository's root.
pub fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A committed tiny llama in a quantised type.
pub fn quant(ty: &str) -> PathBuf {
    root(&format!("tests/data/quants/llama-{ty}.gguf"))
}

/// The fixtures of `make fixtures`: models of every architecture.
pub const ARCHITECTURES: [&str; 13] = [
    "llama",
    "llama-ropefreqs",
    "llama-yarn",
    "llama-moe",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "gemma2",
    "gemma3",
    "gemma4",
    "phi3",
    "gpt2",
];

/// A fixture of `make fixtures`; none, and a line that says so, in the quick tier.
pub fn fixture(name: &str) -> Option<PathBuf> {
    runs_in(Tier::Ci, &format!("tiny {name}"))
        .then(|| existing(root(&format!(".fixtures/{name}.gguf")), "make fixtures"))
}

/// SmolLM2-135M-Instruct Q4_1 of `make model`; from tier `tier_needed` on.
pub fn smollm2(tier_needed: Tier, what: &str) -> Option<PathBuf> {
    runs_in(tier_needed, what).then(|| existing(root("models/smollm2-135m-instruct-q4_1.gguf"), "make model"))
}

/// A file that the tier needs.
pub fn existing(path: PathBuf, made_by: &str) -> PathBuf {
    assert!(path.exists(), "{} is missing: run `{made_by}`", path.display());
    path
}

/// A writer with the tensors of a file and this metadata.
pub fn writer(file: &GgufFile, metadata: &Metadata) -> GgufWriter {
    let start = GgufWriter::from_metadata(metadata);
    file.tensors().iter().fold(start, |w, t| w.tensor(&t.name, t.ty, &t.dims, file.read(&t.name).unwrap()))
}

/// `general.architecture` of a model file.
pub fn architecture(model: &Path) -> String {
    GgufFile::open(model).unwrap().metadata().string("general.architecture").unwrap().unwrap().to_owned()
}

/// A model file with some metadata replaced or added.
pub fn with_metadata(model: &Path, entries: &[(&str, Value)]) -> Vec<u8> {
    let file = GgufFile::open(model).unwrap();
    let mut metadata = Metadata::default();
    let kept = file.metadata().iter().filter(|(key, _)| !entries.iter().any(|(other, _)| key == other));
    for (key, value) in kept.chain(entries.iter().map(|(key, value)| (*key, value))) {
        assert!(metadata.insert(key, value.clone()));
    }
    writer(&file, &metadata).to_bytes().unwrap()
}

/// Options that output rows can be asked of every row of a chunk.
pub fn options() -> EngineOptions<'static> {
    EngineOptions { max_outputs: u32::MAX, ..EngineOptions::default() }
}

/// Loads a model on the CPU, in profile u1 or in the exact-v diagnostic.
pub fn load(path: &Path, exact_v: bool, options: &EngineOptions<'_>) -> Engine {
    let device =
        unisonic_devices::open(DeviceName::Cpu, OpenOptions { exact_v, ..Default::default() }).unwrap();
    load_with(&*device, path, options)
}

/// Loads a model on a device by its name.
pub fn load_on(device: &str, path: &Path, options: &EngineOptions<'_>) -> Engine {
    load_with(
        &*unisonic_devices::open(device.parse().unwrap(), OpenOptions::default()).unwrap(),
        path,
        options,
    )
}

/// Loads a model on a device.
pub fn load_with(device: &dyn Device, path: &Path, options: &EngineOptions<'_>) -> Engine {
    let file = GgufFile::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Engine::load(file.metadata(), file.tensors(), &file, device, options, &|_| {})
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Appends tokens to a session; the logits after each.
pub fn extend(engine: &mut Engine, session: &mut Session, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::with_capacity(ids.len());
    engine.extend(session, ids, 0, &mut |_, logits| rows.push(logits.to_vec())).unwrap();
    rows
}

/// The logits after each token of a fresh sequence.
pub fn logits(engine: &mut Engine, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut session = engine.session();
    extend(engine, &mut session, ids)
}

/// A sequence of ids of a vocabulary, always the same for the same length.
pub fn some_ids(len: usize, vocab_len: u32) -> Vec<u32> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from((state >> 32) % u64::from(vocab_len)).unwrap()
    };
    (0..len).map(|_| next()).collect()
}
