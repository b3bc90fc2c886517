//! `unisonic serve`: an OpenAI-compatible server for a model.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use unisonic_core::format::GgufFile;
use unisonic_engine::DEFAULT_CONTEXT_LEN;
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::draft::MAX_VERIFY_ROWS;
use unisonic_engine::sampling::SamplerOptions;
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_server::{Loaded, Options};

use crate::chat_template::TemplateArgs;
use crate::cli::{FileArg, LoadArgs, parse_size};
use crate::model::Capacity;
use crate::numbers::whole;
use crate::output::say;
use crate::sampling::SamplingArgs;
use crate::sessions::KvArgs;
use crate::{digest, model};

const DETAILS: &str = "\
A page to chat with is at http://localhost:8080/. Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, /tokenize, /detokenize, /health, /metrics. They take what OpenAI's take, \
and the other options of sampling by the names of `unisonic batch`. What a request does not say it has from the command \
line; without --temperature there, it is 1. An answer says its seed, and is the same whenever it is asked for with that seed, \
whoever else is served.

The port is open while the model loads; /health says when it is ready. Web pages of this machine may call, those of others only \
with --allow-origin. Ctrl-C or SIGTERM finishes the requests at work; a second one ends at once.

Examples:
  unisonic serve model.gguf
  unisonic serve --port 9000 --device cuda:0 --parallel 32 model.gguf
  curl localhost:8080/v1/chat/completions -d \\
    '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]}'
  UNISONIC_API_KEY=secret unisonic serve --host 0.0.0.0 model.gguf
  OPENAI_BASE_URL=http://localhost:8080/v1 OPENAI_API_KEY=none my-program";

/// Tokens of KV cache for each of the requests that run at a time; they share all of it.
const KV_TOKENS: u32 = 1024;

/// Answers requests as OpenAI's API does, many at a time
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct ServeArgs {
    #[command(flatten)]
    file: FileArg,
    /// Name or address to listen on; 0.0.0.0 for all of this machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for one that is free
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// What callers have to send as `Authorization: Bearer KEY` [default: nothing]
    #[arg(long, value_name = "KEY", env = "UNISONIC_API_KEY", hide_env_values = true, value_parser = key)]
    api_key: Option<String>,
    /// Another name that this machine is called by, beside addresses and localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Web pages that may call, each as scheme and host without a path, or * for all. May be repeated
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Name of the model in answers [default: the file's, without .gguf]
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Answers that are worked on at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole(1..=1024u32))]
    parallel: u32,
    /// Answers that wait; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(0..=100_000u32))]
    queue: u32,
    /// Most tokens of a chat's answer, if the request does not say [default: until the model ends it or the
    /// context is full]
    #[arg(short = 'n', long, value_name = "TOKENS", value_parser = whole(1..=u32::MAX))]
    max_tokens: Option<u32>,
    /// Most bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_size)]
    max_body: u64,
    /// Seconds for a client to send its request, and to take each part of the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole(1..=86_400u64))]
    client_timeout: u64,
    /// Seconds to finish the requests at work when the server is to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole(0..=86_400u64))]
    grace: u64,
    /// Writes the text of requests to the log too (with -v, which logs each request without it)
    #[arg(long)]
    log_requests: bool,
    /// Does not guess tokens ahead; the answers are the same
    #[arg(long)]
    no_speculation: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    kv: KvArgs,
}

fn key(text: &str) -> Result<String, String> {
    // As headers are trimmed, and hold no control characters.
    let fits = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err("expected a text without spaces around it".into()) }
}

/// Runs the command.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let path = &args.file.file;
    let file = model::open(path)?;
    let tokenizer = Arc::new(model::tokenizer(&file, path)?);
    let template = match args.template.given()? {
        Some(template) => Ok(template),
        None => TemplateArgs::of_file(&file).map_err(|error| error.to_string()),
    };
    if let Err(error) = &template {
        say(format_args!("note: no chats, only completions: {error}"));
    }
    let sampler = match args.sampling.options() {
        // OpenAI's default.
        options if !args.sampling.draws() => SamplerOptions { temperature: 1.0, ..options },
        options => options,
    };
    sampler.check(tokenizer.vocab_len())?;
    let options = Options {
        host: args.host.clone(),
        port: args.port,
        api_key: args.api_key.clone(),
        allow_hosts: args.allow_host.clone(),
        allow_origins: args.allow_origin.clone(),
        running: args.parallel as usize,
        queued: args.queue as usize,
        speculation: !args.no_speculation,
        sampler,
        max_tokens: args.max_tokens,
        date: args.template.date.clone(),
        max_body_bytes: usize::try_from(args.max_body).unwrap_or(usize::MAX),
        client_timeout: Duration::from_secs(args.client_timeout),
        grace: Duration::from_secs(args.grace),
        log_requests: args.log_requests,
        say: Arc::new(|line| say(format_args!("{line}"))),
        ..Options::default()
    };
    let load = move || load(&args, &file, &tokenizer, template.clone()).map_err(|error| format!("{error:#}"));
    unisonic_server::serve(options, Box::new(load))?;
    Ok(ExitCode::SUCCESS)
}

fn load(
    args: &ServeArgs,
    file: &GgufFile,
    tokenizer: &Arc<Tokenizer>,
    template: Result<ChatTemplate, String>,
) -> anyhow::Result<Loaded> {
    let path = &args.file.file;
    let outputs = args.parallel.max(MAX_VERIFY_ROWS as u32);
    let capacity = Capacity { context_len: args.load.context, sequences: 1, max_outputs: outputs };
    let sha256 = args.kv.is_given().then(|| digest::model_sha256(file)).transpose()?;
    let engine = model::load_with(file, path, &args.load, &capacity, &|options| {
        // Beside the rows that decode there is room for prompts.
        options.chunk_rows = args.load.chunk.unwrap_or(options.chunk_rows.max(args.parallel + 64));
        let context_len = args.load.context.unwrap_or(DEFAULT_CONTEXT_LEN);
        options.kv_pages = Some(args.parallel.saturating_mul(KV_TOKENS).max(context_len).div_ceil(64));
        sha256.into_iter().for_each(|sha256| args.kv.apply(options, sha256));
    })?;
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = args.alias.clone().unwrap_or_else(stem);
    Ok(Loaded { engine, name, tokenizer: Arc::clone(tokenizer), template })
}
