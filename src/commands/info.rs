//! `unisonic info`: what a model file holds, and whether it can be run.

use std::fmt::Write;
use std::path::Path;

use clap::Args;
use serde_json::{Value as Json, json};
use unisonic_core::format::{GgufFile, Metadata, Value};
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_planner::PlanOptions;

use crate::cli::FileArg;
use crate::model;
use crate::output::{write_json, write_stdout};

const EXAMPLES: &str = "\
Examples:
  unisonic info model.gguf
  unisonic info --tensors --metadata model.gguf
  unisonic info --json model.gguf";

/// Elements of an array that are shown; a vocabulary has hundreds of thousands.
const ARRAY_SHOWN: usize = 8;

/// Shows what a model file holds: name, sizes, types, tokenizer, licence, and whether it can be run
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArgs {
    #[command(flatten)]
    file: FileArg,
    /// Also lists every tensor
    #[arg(long)]
    tensors: bool,
    /// Also lists every metadata key; long arrays are cut
    #[arg(long)]
    metadata: bool,
    /// Prints one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &InfoArgs) -> anyhow::Result<()> {
    let path = &args.file.file;
    let file = model::open(path)?;
    let mut facts = facts(&file, path);
    if args.metadata {
        let entries = file.metadata().iter().map(|(key, value)| (key.to_owned(), shown(value)));
        facts.push(("metadata", Json::Object(entries.collect())));
    }
    if args.tensors {
        facts.push(("tensors", file.tensors().iter().map(tensor).collect()));
    }
    if args.json {
        let object = facts.into_iter().map(|(key, value)| (key.to_owned(), value));
        return write_json(&Json::Object(object.collect()));
    }
    write_stdout(&text(&facts))
}

/// Everything that is known without loading a weight, in the order in which it is shown; null where a file is silent.
fn facts(file: &GgufFile, path: &Path) -> Vec<(&'static str, Json)> {
    let metadata = file.metadata();
    let of_arch = |key: &str| number(metadata, &format!("{}.{key}", word(metadata, "general.architecture")));
    let plan = unisonic_planner::plan(metadata, file.tensors(), file, &PlanOptions::default());
    let tokenizer = Tokenizer::from_metadata(metadata);
    let model::TensorFacts { types, parameters } = model::tensor_facts(file);
    let runs = match (&plan, &tokenizer) {
        (Ok(_), Ok(_)) => {
            json!(format!("yes (profile {}; `unisonic devices` lists on what)", unisonic_core::plan::PROFILE))
        }
        (Err(error), _) => json!(format!("no: {error}")),
        (_, Err(error)) => json!(format!("no: {error}")),
    };
    vec![
        ("file", json!(path.to_string_lossy())),
        ("name", string(metadata, "general.name")),
        ("architecture", string(metadata, "general.architecture")),
        ("licence", string(metadata, "general.license")),
        ("runs", runs),
        ("size_bytes", json!(file.len_bytes())),
        ("shards", json!(file.paths().len())),
        ("parameters", json!(parameters)),
        ("types", json!(types)),
        ("context", of_arch("context_length")),
        ("layers", of_arch("block_count")),
        ("hidden", of_arch("embedding_length")),
        ("heads", of_arch("attention.head_count")),
        ("kv_heads", of_arch("attention.head_count_kv")),
        ("kv_bytes_per_token", plan.as_ref().map_or(Json::Null, |plan| json!(plan.kv_bytes_per_token()))),
        ("tokenizer", string(metadata, "tokenizer.ggml.model")),
        ("pre_tokenizer", string(metadata, "tokenizer.ggml.pre")),
        ("vocabulary", vocabulary(metadata)),
        ("chat_template", json!(metadata.get("tokenizer.chat_template").is_some())),
        ("gguf_version", json!(file.version())),
        ("alignment_bytes", json!(file.alignment_bytes())),
    ]
}

fn word<'a>(metadata: &'a Metadata, key: &str) -> &'a str {
    metadata.string(key).ok().flatten().unwrap_or_default()
}

fn string(metadata: &Metadata, key: &str) -> Json {
    metadata.string(key).ok().flatten().map_or(Json::Null, |text| json!(text))
}

fn number(metadata: &Metadata, key: &str) -> Json {
    metadata.get(key).map_or(Json::Null, shown)
}

fn vocabulary(metadata: &Metadata) -> Json {
    metadata.strings("tokenizer.ggml.tokens").ok().flatten().map_or(Json::Null, |tokens| json!(tokens.len()))
}

fn tensor(tensor: &unisonic_core::format::TensorInfo) -> Json {
    json!({ "name": tensor.name, "type": tensor.ty.name(), "dims": tensor.dims, "len_bytes": tensor.len_bytes })
}

/// A metadata value as JSON; arrays longer than [`ARRAY_SHOWN`] as their beginning and length.
fn shown(value: &Value) -> Json {
    fn array<T: Copy + Into<Json>>(values: &[T]) -> Json {
        cut(values.iter().take(ARRAY_SHOWN).map(|&value| value.into()).collect(), values.len())
    }
    fn cut(first: Vec<Json>, len: usize) -> Json {
        if first.len() == len { Json::Array(first) } else { json!({ "len": len, "first": first }) }
    }
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::U8s(v) => array(v),
        Value::I8s(v) => array(v),
        Value::U16s(v) => array(v),
        Value::I16s(v) => array(v),
        Value::U32s(v) => array(v),
        Value::I32s(v) => array(v),
        Value::U64s(v) => array(v),
        Value::I64s(v) => array(v),
        Value::F32s(v) => array(v),
        Value::F64s(v) => array(v),
        Value::Bools(v) => array(v),
        Value::Strings(v) => cut(v.iter().take(ARRAY_SHOWN).map(|s| json!(s)).collect(), v.len()),
        Value::Arrays(v) => cut(v.iter().take(ARRAY_SHOWN).map(shown).collect(), v.len()),
    }
}

/// The facts for people: one a line, lists indented below their name.
fn text(facts: &[(&'static str, Json)]) -> String {
    let mut out = String::new();
    for (name, value) in facts {
        let name = name.replace('_', " ");
        match value {
            Json::Null => {}
            Json::Object(entries) if name == "metadata" => {
                out.push_str("metadata\n");
                entries.iter().for_each(|(key, value)| line(&mut out, &format!("  {key}"), &plain(value)));
            }
            Json::Array(tensors) => {
                let _ = writeln!(out, "{name}");
                for tensor in tensors {
                    let shape = format!("{:<6} {}", plain(&tensor["type"]), tensor["dims"]);
                    line(&mut out, &format!("  {}", plain(&tensor["name"])), &shape);
                }
            }
            Json::Object(counts) => {
                let counts: Vec<String> = counts.iter().map(|(ty, count)| format!("{ty} {count}")).collect();
                line(&mut out, &name, &counts.join(", "));
            }
            value => line(&mut out, &name, &plain(value)),
        }
    }
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "{name:<20} {value}");
}

/// A value without quotes, on one line.
fn plain(value: &Json) -> String {
    match value {
        Json::String(text) if text.contains('\n') => json!(text).to_string(),
        Json::String(text) => text.clone(),
        Json::Bool(true) => "yes".into(),
        Json::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
