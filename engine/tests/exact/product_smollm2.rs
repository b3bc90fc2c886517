//! The [`product`](super::product) on SmolLM2-135M, for which its own first two layers guess.

use std::path::{Path, PathBuf};
use std::time::Instant;

use unisonic_core::format::{GgufFile, Metadata, TensorInfo, Value};
use unisonic_cpu::native::CpuDevice;
use unisonic_engine::constraint::{ConstrainedSampler, Grammars};
use unisonic_engine::draft::StepCosts;
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::{Engine, EngineOptions, Sample};

use super::common::{CHEAP_ROWS, ids, long_schema, options, quick, say, tier_choice};
use super::product::{Case, NEIGHBOURS, Product, name, pairwise};

/// The model; none, and a line that says so, in the quick tier.
fn model() -> Option<PathBuf> {
    if quick() {
        say("skipped: the product on SmolLM2-135M (runs in tier ci)");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let path = root.join("models/smollm2-135m-instruct-q4_1.gguf");
    assert!(path.exists(), "{} is missing: run `make model`", path.display());
    Some(path)
}

/// The first layers of the model, and no more.
fn first_layers(file: &GgufFile, count: u32, options: &EngineOptions<'_>) -> Engine {
    let mut metadata = Metadata::default();
    for (key, value) in file.metadata().iter() {
        let value = if key == "llama.block_count" { Value::U32(count) } else { value.clone() };
        assert!(metadata.insert(key, value));
    }
    let layer = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<u32>().ok();
    let is_kept = |tensor: &&TensorInfo| layer(&tensor.name).is_none_or(|layer| layer < count);
    let tensors: Vec<TensorInfo> = file.tensors().iter().filter(is_kept).cloned().collect();
    Engine::load(&metadata, &tensors, file, &CpuDevice::new(), options, &|_| {}).unwrap()
}

#[test]
fn every_pair_of_choices_gives_the_same_answer() {
    let Some(path) = model() else { return };
    let file = GgufFile::open(&path).unwrap();
    let load = |options: &EngineOptions<'_>| {
        let (metadata, tensors) = (file.metadata(), file.tensors());
        let mut engine = Engine::load(metadata, tensors, &file, &CpuDevice::new(), options, &|_| {}).unwrap();
        engine.set_costs(StepCosts::known(CHEAP_ROWS));
        engine
    };
    let draft_options = EngineOptions { sequences: 70, context_len: Some(256), ..options() };
    let mut draft = first_layers(&file, 2, &draft_options);
    draft.set_costs(StepCosts::known([1e-6; 7]));
    let vocab_len = draft.plan().vocab_len;
    let grammars = Grammars::new(&Tokenizer::from_metadata(file.metadata()).unwrap()).unwrap();
    let by_grammar = |start| -> Box<dyn Sample> {
        let drawn = SamplerOptions { temperature: 1.1, seed: 4, ..SamplerOptions::default() };
        let sampler = Sampler::new(&drawn, vocab_len).unwrap();
        Box::new(ConstrainedSampler::new(sampler, grammars.compile(&long_schema()).unwrap(), start))
    };
    // Something to look up.
    let product = Product::new(&load, &load, draft, ids(51, 30, 1000).repeat(3), &by_grammar);
    let all = pairwise();
    let is_small = |case: &&Case| NEIGHBOURS[case[2]] <= 2;
    let small: Vec<Case> = all.iter().filter(is_small).copied().take(4).collect();
    let cases = tier_choice(Vec::new(), small, all.clone());
    if cases.len() < all.len() {
        let left = all.len() - cases.len();
        say(&format!("skipped: {left} of {} cases on SmolLM2-135M (run in tier full)", all.len()));
    }
    for case in cases {
        let start = Instant::now();
        product.check(case);
        println!("{}: {:.1} s", name(case), start.elapsed().as_secs_f64());
    }
}
