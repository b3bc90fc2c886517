//! `unisonic run`: continues a prompt, or answers a message.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde_json::{Value as Json, json};
use unisonic_core::format::GgufFile;
use unisonic_core::plan::DeviceInfo;
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::constraint::ConstrainedAnswer;
use unisonic_engine::draft::Drafter;
use unisonic_engine::sampling::{Logprobs, MAX_TOP_LOGPROBS, Sampler, TokenLogprob, logprobs};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Specials, Tokenizer};
use unisonic_engine::{
    Completion, Engine, GenerateOptions, GreedyTokens, Sample, SavedSession, Session, Stop, generate,
};

use crate::cli::{FileArg, IdsArgs, LoadArgs};
use crate::constraint::ConstraintArgs;
use crate::digest::LogitsDigest;
use crate::model::Capacity;
use crate::numbers::whole;
use crate::output::{rate, say, spinner, write_json, write_stdout};
use crate::receipt::{Recorder, Subject};
use crate::sampling::SamplingArgs;
use crate::sessions::{KvArgs, SessionArgs};
use crate::speculation::SpeculationArgs;
use crate::{atomic, constraint, digest, interrupt, model, sessions, speculation, text};

const EXAMPLES: &str = "\
Examples:
  unisonic run model.gguf \"The capital of France is\"
  unisonic run --chat model.gguf \"What is the capital of France?\"
  unisonic run --chat --system \"Answer in French.\" model.gguf \"Good day\"
  printf 'def fibonacci(n):' | unisonic run --max-tokens 64 model.gguf -
  unisonic run --json --ids 1,2,3 model.gguf              token ids in and out
  unisonic run --max-tokens 20 --save-session s model.gguf \"Once upon\"
  unisonic run --max-tokens 20 --load-session s model.gguf     20 more tokens
  unisonic run --json-schema schema.json model.gguf \"The first primes: \"
  unisonic run --temperature 0.8 --top-p 0.95 --seed 7 model.gguf \"Once upon\"

The same prompt, options and seed give the same answer everywhere. Without --temperature each step takes the most
probable token.";

/// Continues a prompt, or answers a message with --chat; the text is streamed to stdout
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Most tokens to generate [default: until the model ends its answer or the context is full]
    #[arg(short = 'n', long, value_name = "TOKENS", value_parser = whole(0..=u32::MAX))]
    max_tokens: Option<u32>,
    /// Prints nothing but one line of JSON: token_ids (end token included), text, stop, and what ran
    #[arg(long)]
    json: bool,
    /// Adds logits_sha256 to the JSON: a digest of the bits of every step's logits (f32, little-endian)
    #[arg(long, requires = "json")]
    logits_digest: bool,
    /// With --json, adds how probable the model finds each token, and its N most probable ones there: before
    /// penalties, bias, filters and temperature
    #[arg(long, value_name = "N", requires = "json", value_parser = whole(0..=MAX_TOP_LOGPROBS))]
    logprobs: Option<u32>,
    /// Writes a receipt: model, options, tokens, and digests of all logits, for `unisonic verify` to
    /// recompute anywhere
    #[arg(long, value_name = "PATH")]
    receipt: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    constraint: ConstraintArgs,
    #[command(flatten)]
    sessions: SessionArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    kv: KvArgs,
}

/// What to continue.
#[derive(Args)]
#[group(skip)]
struct PromptArgs {
    /// Text to continue, or with --chat the user's message; `-` reads it from stdin
    #[arg(
        value_name = "PROMPT",
        required_unless_present_any = ["prompt_file", "ids", "ids_file", "load_session"],
        conflicts_with_all = ["ids", "ids_file"]
    )]
    prompt: Option<String>,
    /// Reads the prompt from a file, every byte of it
    #[arg(long, value_name = "PATH", conflicts_with_all = ["prompt", "ids", "ids_file"])]
    prompt_file: Option<PathBuf>,
    #[command(flatten)]
    ids: IdsArgs,
    /// Takes special tokens such as <|im_end|> in PROMPT as plain text
    #[arg(long, conflicts_with_all = ["chat", "ids", "ids_file"])]
    literal: bool,
    /// PROMPT is a user's message: uses the chat template of the file. Messages are always plain text
    #[arg(long, conflicts_with_all = ["ids", "ids_file"])]
    chat: bool,
    /// System message of the chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Chat template (Jinja) to use instead of the file's
    #[arg(long, value_name = "PATH", requires = "chat")]
    chat_template: Option<PathBuf>,
    /// The date that chat templates may show, as YYYY-MM-DD
    #[arg(long, value_name = "DATE", requires = "chat")]
    date: Option<String>,
}

/// Runs the command.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let path = &args.file.file;
    let file = model::open(path)?;
    args.receipt.as_deref().map(atomic::check).transpose()?;
    args.sessions.check()?;
    let tokenizer = model::tokenizer(&file, path)?;
    let saved = args.sessions.load()?;
    let needs_digest = args.receipt.is_some() || args.sessions.is_given() || args.kv.is_given();
    let sha256 = needs_digest.then(|| digest::model_sha256(&file)).transpose()?;
    if let (Some(saved), Some(sha256)) = (&saved, sha256) {
        // Tokens of another model are not to be looked at.
        saved.check_model(sha256)?;
    }
    let prompt = sequence(&args.prompt, &file, &tokenizer, saved.as_ref())?;
    tracing::debug!(?prompt, "prompt ids");
    let follows = follows(args, saved.as_ref(), &prompt)?;
    // What is wrong with it is said before a large model is loaded.
    let grammar = constraint::grammar(follows.as_ref(), &tokenizer)?;
    let capacity = Capacity {
        context_len: args.load.context,
        sequences: 1,
        max_outputs: args.speculation.max_outputs(),
    };
    let mut engine = model::load_with(&file, path, &args.load, &capacity, &|options| {
        sha256.into_iter().for_each(|sha256| args.kv.apply(options, sha256));
    })?;
    if let Some(saved) = &saved {
        saved.check_profile(&engine.device().profile)?;
    }
    let options = match &saved {
        Some(saved) if !args.sampling.is_given() => saved.sampler().clone(),
        _ => args.sampling.options(),
    };
    let looks_at_logits = args.logits_digest || args.logprobs.is_some() || args.receipt.is_some();
    let sampler = Sampler::new(&options, engine.plan().vocab_len)?;
    let sampler = match grammar {
        None if sampler.is_greedy() && !looks_at_logits => Box::new(GreedyTokens),
        grammar => constraint::sampler(sampler, grammar),
    };
    let drafter = args.speculation.drafter(&file, &args.load, &engine)?;
    let mut session = session(args, &mut engine, saved.as_ref(), &prompt)?;
    let known = session.tokens().len();

    let recorder = args.receipt.as_deref().zip(sha256).map(|(path, sha256)| {
        let (engine, load) = (&engine, &args.load);
        let (sampler, answer) = (options.clone(), follows.clone());
        Recorder::new(path, Subject { file: &file, sha256, engine, load, sampler, answer, prompt: &prompt })
    });
    let mut steps = Steps { sampler, drafter, recorder };
    let answer = answer(&mut engine, &mut session, &mut steps, &tokenizer, &prompt, args)?;
    if let Some(recorder) = steps.recorder {
        recorder.finish(&answer.completion)?;
    }
    if let (Some(path), Some(sha256)) = (&args.sessions.save_session, sha256) {
        let tokens = [&prompt[..], &answer.completion.token_ids].concat();
        let saved = SavedSession::of(&mut engine, &session, &tokens, sha256, options)?;
        sessions::save(path, &saved.with_answer(follows))?;
    }
    if args.json {
        write_json(&answer_json(&answer, args, engine.device(), prompt.len()))?;
    } else if !answer.text.ends_with('\n') {
        write_stdout("\n")?;
    }
    report(&answer.completion, prompt.len(), known, answer.prompt_time, answer.decode_time);
    Ok(match answer.completion.stop {
        Stop::Cancelled => ExitCode::from(interrupt::EXIT_CODE),
        _ => ExitCode::SUCCESS,
    })
}

/// What the answer follows: what is asked for, or if nothing is and a saved answer goes on, what that does.
fn follows(
    args: &RunArgs,
    saved: Option<&SavedSession>,
    prompt: &[u32],
) -> anyhow::Result<Option<ConstrainedAnswer>> {
    Ok(match (args.constraint.read()?, saved) {
        (Some(constraint), _) => Some(ConstrainedAnswer { start: prompt.len(), constraint }),
        (None, Some(saved)) if saved.tokens().len() == prompt.len() => saved.answer().cloned(),
        (None, _) => None,
    })
}

/// A session that begins with what is known of the prompt already.
fn session(
    args: &RunArgs,
    engine: &mut Engine,
    saved: Option<&SavedSession>,
    prompt: &[u32],
) -> anyhow::Result<Session> {
    Ok(match saved {
        Some(saved) => saved.restore(engine)?,
        None if args.kv.is_given() => engine.session_for(b"", prompt)?,
        None => engine.session(),
    })
}

/// What takes part in each step beside the engine.
struct Steps {
    sampler: Box<dyn Sample>,
    drafter: Option<Box<dyn Drafter>>,
    recorder: Option<Recorder>,
}

/// A completion with its text and how long it took.
struct Answer {
    completion: Completion,
    text: String,
    logits_sha256: Option<String>,
    /// Of each token, if asked for.
    logprobs: Vec<Logprobs>,
    prompt_time: Duration,
    decode_time: Duration,
}

/// Generates, streaming the text unless the result is JSON.
fn answer(
    engine: &mut Engine,
    session: &mut Session,
    steps: &mut Steps,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    args: &RunArgs,
) -> anyhow::Result<Answer> {
    let prompt = &prompt[session.tokens().len()..];
    let mut detokenizer = Detokenizer::new(tokenizer, ControlTokens::Hide);
    let mut text = String::new();
    let mut digest = args.logits_digest.then(LogitsDigest::default);
    let mut of_tokens = Vec::new();
    let mut output = Ok(());
    interrupt::defer_first_interrupt();
    let started = Instant::now();
    let mut first_token = None;
    let waiting = spinner(&format!("reading {} tokens of prompt", prompt.len()));
    let emit = |piece: &str, text: &mut String| -> anyhow::Result<()> {
        text.push_str(piece);
        if args.json || piece.is_empty() { Ok(()) } else { write_stdout(piece) }
    };

    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        cancelled: Some(&interrupt::requested),
        sampler: Some(&mut *steps.sampler),
        drafter: steps.drafter.as_deref_mut().map(|drafter| drafter as _),
    };
    let completion = generate(
        engine,
        session,
        prompt,
        options,
        &|token| tokenizer.is_stop(token),
        &mut |token, logits| {
            if first_token.is_none() {
                first_token = Some(Instant::now());
                waiting.finish_and_clear();
            }
            if let Some(digest) = &mut digest {
                digest.update(logits);
            }
            of_tokens.extend(args.logprobs.and_then(|top| logprobs(logits, token, top)));
            if let Some(recorder) = &mut steps.recorder {
                recorder.push(logits);
            }
            if !tokenizer.is_stop(token) {
                output = emit(&detokenizer.push(token), &mut text);
            }
            if output.is_err() || interrupt::requested() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        },
    );
    waiting.finish_and_clear();
    let completion = completion?;
    output?;
    emit(&detokenizer.finish(), &mut text)?;
    let ended = Instant::now();
    let first_token = first_token.unwrap_or(ended);
    Ok(Answer {
        completion,
        text,
        logits_sha256: digest.map(LogitsDigest::finish),
        logprobs: of_tokens,
        prompt_time: first_token - started,
        decode_time: ended - first_token,
    })
}

/// The line of `--json`.
fn answer_json(answer: &Answer, args: &RunArgs, device: &DeviceInfo, prompt_tokens: usize) -> Json {
    let mut line = json!({
        "model": args.file.file.to_string_lossy(),
        "device": device.id,
        "profile": device.profile,
        "prompt_tokens": prompt_tokens,
        "token_ids": answer.completion.token_ids,
        "text": answer.text,
        "stop": answer.completion.stop.as_str(),
    });
    if let Some(digest) = &answer.logits_sha256 {
        line["logits_sha256"] = digest.as_str().into();
    }
    if args.logprobs.is_some() {
        line["logprobs"] = answer.logprobs.iter().map(logprobs_json).collect();
    }
    // Not by default: it depends on the machine's speed, and the rest of the line on the input alone.
    if args.speculation.is_given() {
        line["speculation"] = speculation::json(answer.completion.drafts);
    }
    line
}

/// `{"id": .., "logprob": .., "top": [{"id": .., "logprob": ..}, ..]}`, the most probable first; read as
/// binary32 the numbers are those of docs/numerics.md, bit for bit.
fn logprobs_json(of: &Logprobs) -> Json {
    let json = |of: &TokenLogprob| json!({ "id": of.token, "logprob": of.logprob });
    let mut line = json(&of.chosen);
    line["top"] = of.top.iter().map(json).collect();
    line
}

/// All tokens before the answer: those that were saved, and the prompt.
fn sequence(
    args: &PromptArgs,
    file: &GgufFile,
    tokenizer: &Tokenizer,
    saved: Option<&SavedSession>,
) -> anyhow::Result<Vec<u32>> {
    let Some(saved) = saved else { return prompt_ids(args, file, tokenizer) };
    let more = match (args.ids.read()?, &args.prompt, &args.prompt_file) {
        (Some(ids), ..) => ids,
        (None, None, None) => Vec::new(),
        _ => tokenizer.encode(&prompt_text(args)?, specials(args))?,
    };
    let tokens = [saved.tokens(), &more].concat();
    model::check_ids(&tokens, tokenizer.vocab_len())?;
    Ok(tokens)
}

fn specials(args: &PromptArgs) -> Specials {
    if args.literal { Specials::Literal } else { Specials::Parse }
}

/// The ids of the prompt, whichever way it was given.
fn prompt_ids(args: &PromptArgs, file: &GgufFile, tokenizer: &Tokenizer) -> anyhow::Result<Vec<u32>> {
    if let Some(ids) = args.ids.read()? {
        model::check_ids(&ids, tokenizer.vocab_len())?;
        return Ok(ids);
    }
    let text = prompt_text(args)?;
    if args.chat {
        return chat_ids(args, text, file, tokenizer);
    }
    Ok(tokenizer.encode_prompt(&text, specials(args))?)
}

fn prompt_text(args: &PromptArgs) -> anyhow::Result<String> {
    match (&args.prompt, &args.prompt_file) {
        (Some(prompt), _) => text::argument(prompt),
        (None, Some(path)) => text::file(path),
        (None, None) => bail!("there is no prompt"),
    }
}

fn chat_ids(
    args: &PromptArgs,
    text: String,
    file: &GgufFile,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Vec<u32>> {
    let template = match &args.chat_template {
        Some(path) => model::chat_template(path)?,
        None => ChatTemplate::from_metadata(file.metadata(), None)?,
    };
    let system = args.system.iter().map(|text| Message::new("system", text));
    let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
    let options = ChatOptions { date: args.date.clone(), ..ChatOptions::default() };
    let rendered = template.render(tokenizer, &messages, &options)?;
    tracing::debug!(prompt = rendered.text(), "rendered chat");
    Ok(encode_chat(tokenizer, &rendered)?)
}

/// The closing line on stderr.
fn report(
    completion: &Completion,
    prompt_tokens: usize,
    known: usize,
    prompt_time: Duration,
    decode_time: Duration,
) {
    let generated = completion.token_ids.len();
    // The first token comes with the prompt; the others are what decoding took time for.
    let decoded = generated.saturating_sub(1);
    // Without a token nothing was run.
    let read = if generated > 0 { prompt_tokens - known } else { 0 };
    let reused = if known > 0 { format!(" ({known} known)") } else { String::new() };
    say(format_args!(
        "[prompt: {prompt_tokens} tokens{reused}{}; generated: {generated} tokens{}{}; stop: {}]",
        rate(read, prompt_time),
        rate(decoded, decode_time),
        speculation::phrase(completion.drafts),
        completion.stop.as_str()
    ));
}
