//! `unisonic batch`: answers all lines of a file, many at a time.
//!
//! [`input`] reads lines, [`output`] writes answers and knows which are there already; what is between them
//! is a [`Scheduler`], which is kept full.

mod input;
mod output;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value as Json, json};
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::draft::{Drafter, MAX_VERIFY_ROWS, NgramDrafter};
use unisonic_engine::schedule::{Event, Request, RequestId, ScheduleLimits, Scheduler};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Tokenizer};
use unisonic_engine::{Completion, DEFAULT_CONTEXT_LEN};

use crate::cli::LoadArgs;
use crate::model::Capacity;
use crate::numbers::whole;
use crate::output::{progress_bar, say};
use crate::sampling::SamplingArgs;
use crate::sessions::KvArgs;
use crate::{digest, interrupt, model};
use input::{Facts, Lines, Reader, Task};
use output::{Origin, Output};

const DETAILS: &str = "\
Each line of INPUT is a JSON object with one of
  \"prompt\": TEXT     continued as by `unisonic run`
  \"messages\": [{\"role\": ..., \"content\": ...}, ...]     answered with the chat template of the model
  \"ids\": [1, 2, 3]   continued as they are
and, if wanted, \"id\" (any JSON), \"max_tokens\", \"response_format\" (what the answer has to follow: \
{\"type\": \"json_schema\", \"json_schema\": {\"schema\": {...}}}, {\"type\": \"json_object\"}, {\"type\": \"regex\", \"regex\": ...} or \
{\"type\": \"grammar\", \"grammar\": ...}, as `unisonic run` has them), and the options of sampling: temperature, top_k, top_p, min_p, typical, \
top_n_sigma, repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, logit_bias ({\"42\": -1.5, \"43\": \"-inf\"}), \
seed. What a line does not say it has from the command line. Blank lines are passed over.

Each line of OUTPUT is a JSON object with \"line\" (the number in INPUT, from 1), the line's \"id\" if it has one, and \
\"prompt_tokens\", \"token_ids\" (end token included), \"text\" and \"stop\", or instead \"error\". They come as they are \
completed, or with --ordered in the order of INPUT. An answer is what `unisonic run` gives, whatever runs beside it.

A batch that was stopped, in whatever way, goes on when the same command is given again: no line is lost or answered twice. \
Until it is complete OUTPUT.unfinished says what it is made of; another input, model or option is refused.

Exit codes: 0 every line has its answer or its error (stderr says how many); 130 interrupted by Ctrl-C, for another \
day; 1 something else failed; 2 the command line is wrong.

Examples:
  unisonic batch questions.jsonl -o answers.jsonl --model model.gguf
  unisonic batch in.jsonl -o out.jsonl -m model.gguf -n 200 --ordered";

/// Tokens of KV cache for each of the requests that run at a time; they share all of it.
const KV_TOKENS: u32 = 1024;

/// Answers the lines of a JSONL file, many at a time, and goes on where it was stopped
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct BatchArgs {
    /// Lines to answer
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Where answers go
    #[arg(short, long, value_name = "OUTPUT")]
    output: PathBuf,
    /// Model file in GGUF format; the first one of a sharded set
    #[arg(short, long, value_name = "FILE")]
    model: PathBuf,
    /// Answers in the order of the input; each waits for those before it
    #[arg(long)]
    ordered: bool,
    /// Lines that are worked on at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole(1..=1024u32))]
    parallel: u32,
    /// Most tokens to generate for a line that does not say [default: until the model ends its answer or the
    /// context is full]
    #[arg(short = 'n', long, value_name = "TOKENS", value_parser = whole(0..=u32::MAX))]
    max_tokens: Option<u32>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Does not guess tokens ahead; the answers are the same
    #[arg(long)]
    no_speculation: bool,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    kv: KvArgs,
}

/// Runs the command.
pub fn run(args: &BatchArgs) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let facts = Facts::of(&args.input)?;
    let file = model::open(&args.model)?;
    let tokenizer = Arc::new(model::tokenizer(&file, &args.model)?);
    let model_sha256 = digest::model_sha256(&file)?;
    let outputs = args.parallel.max(MAX_VERIFY_ROWS as u32);
    let capacity = Capacity { context_len: args.load.context, sequences: 1, max_outputs: outputs };
    let engine = model::load_with(&file, &args.model, &args.load, &capacity, &|options| {
        // Beside the rows that decode there is room for prompts.
        options.chunk_rows = args.load.chunk.unwrap_or(options.chunk_rows.max(args.parallel + 192));
        let context_len = args.load.context.unwrap_or(DEFAULT_CONTEXT_LEN);
        options.kv_pages = Some((args.parallel * KV_TOKENS).max(context_len).div_ceil(64));
        args.kv.apply(options, model_sha256);
    })?;
    let origin = Origin {
        unisonic_batch: 1,
        input_sha256: facts.sha256,
        model_sha256,
        profile: engine.device().profile.clone(),
        context_len: engine.context_len(),
        max_tokens: args.max_tokens,
        sampler: args.sampling.options(),
        ordered: args.ordered,
    };
    let reader = Reader {
        tokenizer: &tokenizer,
        template: ChatTemplate::from_metadata(file.metadata(), None).map_err(|error| error.to_string()),
        sampler: origin.sampler.clone(),
        max_tokens: args.max_tokens,
        vocab_len: engine.plan().vocab_len,
        grammars: OnceCell::new(),
    };
    // What is wrong with the common options is not every line's error.
    args.sampling.sampler(reader.vocab_len)?;
    let output = Output::open(&args.output, &origin)?;
    let limits = ScheduleLimits { max_running: args.parallel as usize, max_queued: args.parallel as usize };
    let mut work = Work {
        scheduler: Scheduler::new(engine, limits),
        lines: Lines::of(&args.input, &facts)?,
        output,
        waiting: HashMap::new(),
        bar: progress_bar("answering", facts.lines),
        tally: Tally::default(),
    };
    work.bar.set_position(work.output.done().len() as u64);
    interrupt::defer_first_interrupt();
    let started = Instant::now();
    let complete = work.run(&reader, &tokenizer, args)?;
    work.bar.finish_and_clear();
    work.report(started.elapsed().as_secs_f64());
    if !complete {
        let left = work.lines_left(&facts);
        say(format_args!("interrupted with {left} lines left; the same command goes on with them"));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    work.lines.check(&facts)?;
    work.output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// A batch under way.
struct Work {
    scheduler: Scheduler,
    lines: Lines,
    output: Output,
    /// The line of each request.
    waiting: HashMap<RequestId, WaitingLine>,
    bar: ProgressBar,
    tally: Tally,
}

/// A line whose request has not ended.
struct WaitingLine {
    line: u64,
    id: Option<Json>,
    prompt_tokens: usize,
}

/// What this process did.
#[derive(Default)]
struct Tally {
    answered: u64,
    errors: u64,
    tokens: u64,
}

impl Work {
    /// Answers all lines; false if interrupted.
    fn run(
        &mut self,
        reader: &Reader<'_>,
        tokenizer: &Arc<Tokenizer>,
        args: &BatchArgs,
    ) -> anyhow::Result<bool> {
        let mut more = true;
        let mut ended = Vec::new();
        while !interrupt::requested() {
            // A queue as long as what runs: whoever ends has a successor in the same step.
            while more && self.has_room(args) {
                more = self.take_line(reader, tokenizer, args)?;
            }
            let busy = self.scheduler.step(&mut |event| {
                match event {
                    Event::Token { .. } => self.tally.tokens += 1,
                    Event::Done { id, completion } => ended.push((id, Ok(completion))),
                    Event::Failed { id, error } => ended.push((id, Err(error))),
                }
                ControlFlow::Continue(())
            })?;
            for (request, end) in ended.drain(..) {
                let Some(WaitingLine { line, id, prompt_tokens }) = self.waiting.remove(&request) else {
                    continue;
                };
                let answer = end.map(|completion| answer(&completion, prompt_tokens, tokenizer));
                self.add(line, id, answer.map_err(anyhow::Error::new))?;
            }
            if !busy && !more {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says what was done in so many seconds.
    fn report(&self, seconds: f64) {
        let Tally { answered, errors, tokens } = self.tally;
        let rate = tokens as f64 / seconds.max(1e-9);
        say(format_args!(
            "[answered: {answered} lines; errors: {errors}; answered before: {}; generated: {tokens} tokens, {rate:.1}/s]",
            self.output.done().len()
        ));
    }

    fn lines_left(&self, facts: &Facts) -> u64 {
        let Tally { answered, errors, .. } = self.tally;
        facts.lines.saturating_sub(self.output.done().len() as u64 + answered + errors)
    }

    fn has_room(&self, args: &BatchArgs) -> bool {
        // In order, one slow line must not let answers pile up without end.
        self.scheduler.queued() < args.parallel as usize && self.output.held() < 64 * args.parallel as usize
    }

    /// Takes the next line that has no answer; false if there is none.
    fn take_line(
        &mut self,
        reader: &Reader<'_>,
        tokenizer: &Arc<Tokenizer>,
        args: &BatchArgs,
    ) -> anyhow::Result<bool> {
        let Some((line, text)) = self.lines.next()? else { return Ok(false) };
        if self.output.done().contains(&line) {
            return Ok(true);
        }
        self.output.expect(line);
        let (id, task) = reader.read(text);
        let submitted = task.and_then(|task| {
            let prompt_tokens = task.prompt.len();
            Ok((self.scheduler.submit(request(task, tokenizer, args))?, prompt_tokens))
        });
        match submitted {
            Ok((request, prompt_tokens)) => {
                self.waiting.insert(request, WaitingLine { line, id, prompt_tokens });
            }
            Err(error) => self.add(line, id, Err(error))?,
        }
        Ok(true)
    }

    fn add(&mut self, line: u64, id: Option<Json>, answer: anyhow::Result<Json>) -> anyhow::Result<()> {
        self.bar.inc(1);
        let answer = match answer {
            Ok(answer) => {
                self.tally.answered += 1;
                answer
            }
            Err(error) => {
                self.tally.errors += 1;
                json!({ "error": format!("{error:#}") })
            }
        };
        self.output.add(line, id, answer)
    }
}

fn request(task: Task, tokenizer: &Arc<Tokenizer>, args: &BatchArgs) -> Request {
    let drafter = (!args.no_speculation).then(|| Box::new(NgramDrafter::new()) as Box<dyn Drafter>);
    let tokenizer = Arc::clone(tokenizer);
    Request {
        prompt: task.prompt,
        max_tokens: task.max_tokens,
        salt: Vec::new(),
        sampler: task.sampler,
        drafter,
        is_stop: Arc::new(move |token| tokenizer.is_stop(token)),
    }
}

fn answer(completion: &Completion, prompt_tokens: usize, tokenizer: &Tokenizer) -> Json {
    let mut detokenizer = Detokenizer::new(tokenizer, ControlTokens::Hide);
    let shown = completion.token_ids.iter().filter(|&&token| !tokenizer.is_stop(token));
    let mut text: String = shown.map(|&token| detokenizer.push(token)).collect();
    text.push_str(&detokenizer.finish());
    json!({
        "prompt_tokens": prompt_tokens,
        "token_ids": completion.token_ids,
        "text": text,
        "stop": completion.stop.as_str(),
    })
}
