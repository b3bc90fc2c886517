//! A Rust program that runs a model itself: `cargo run --release --example embed MODEL.gguf PROMPT [DEVICE]`.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context;
use unisonic_core::format::GgufFile;
use unisonic_devices::OpenOptions;
use unisonic_engine::draft::NgramDrafter;
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Specials, Tokenizer};
use unisonic_engine::{Engine, EngineOptions, GenerateOptions, generate};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, prompt) = match &arguments[..] {
        [path, prompt, ..] => (Path::new(path), prompt),
        _ => anyhow::bail!("usage: embed MODEL.gguf PROMPT [DEVICE]"),
    };
    let device = arguments.get(2).map_or("cpu", String::as_str).parse()?;

    // A file has the weights, the vocabulary and the shape of the model; a device runs it.
    let file = GgufFile::open(path)?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let device = unisonic_devices::open(device, OpenOptions::default())?;
    let options = EngineOptions::default();
    let mut engine = Engine::load(file.metadata(), file.tensors(), &file, &*device, &options, &|_| {})
        .with_context(|| format!("cannot load {}", path.display()))?;

    // What the user wrote is text: control tokens that it spells are not taken for those.
    let ids = tokenizer.encode_prompt(prompt, Specials::Literal)?;
    let sampling = SamplerOptions { temperature: 0.8, top_p: Some(0.95), seed: 7, ..Default::default() };
    let mut sampler = Sampler::new(&sampling, engine.plan().vocab_len)?;
    let mut drafter = NgramDrafter::new();
    let mut session = engine.session();
    let mut text = Detokenizer::new(&tokenizer, ControlTokens::Hide);
    let mut output = std::io::stdout();
    write!(output, "{prompt}")?;
    let options = GenerateOptions {
        max_tokens: Some(48),
        sampler: Some(&mut sampler),
        // Guesses change the speed and nothing else.
        drafter: Some(&mut drafter),
        ..Default::default()
    };
    let is_stop = |token| tokenizer.is_stop(token);
    generate(&mut engine, &mut session, &ids, options, &is_stop, &mut |token, _logits| {
        let written = write!(output, "{}", text.push(token)).and_then(|()| output.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    writeln!(output, "{}", text.finish())?;
    Ok(())
}
