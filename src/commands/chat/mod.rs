//! `unisonic chat`: a conversation in the terminal, or one that a script writes to stdin.
//!
//! `input` reads messages, `command` those that begin with a slash, `conversation` holds what was said and answers.
//! stdout has the answers and nothing else.

mod command;
mod conversation;
mod input;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use unisonic_engine::chat::Message;

use crate::chat_template::TemplateArgs;
use crate::cli::{FileArg, LoadArgs};
use crate::model::Capacity;
use crate::numbers::whole;
use crate::output::say;
use crate::sampling::SamplingArgs;
use crate::sessions::KvArgs;
use crate::speculation::SpeculationArgs;
use crate::{digest, interrupt, model};
use command::{Command, HELP};
use conversation::{Conversation, Settings, Talker};
use input::{Input, Line};

const DETAILS: &str = "\
A line is a message. One that ends in \\ goes on in the next line, Alt-Enter begins another, and lines between two lines of \
\"\"\" are one message. Lines that begin with / are commands; /help lists them. Ctrl-C stops an answer, Ctrl-D ends the chat.

Messages are never parsed for special tokens. What the model has read of a conversation it does not read again, also \
after /undo and /retry. The same messages, options and seed give the same answers everywhere. Without --temperature each step \
takes the most probable token.

Examples:
  unisonic chat model.gguf
  unisonic chat --system \"Answer in French.\" --temperature 0.8 model.gguf
  printf 'Name a colour.\\nAnd another.\\n' | unisonic chat model.gguf";

/// A conversation in the terminal
#[derive(Args)]
#[command(after_help = DETAILS)]
pub struct ChatArgs {
    #[command(flatten)]
    file: FileArg,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Keeps the lines that were typed in a file, for the arrow keys of the next chat [default: nowhere]
    #[arg(long, value_name = "PATH")]
    history: Option<PathBuf>,
    /// Most tokens of an answer [default: until the model ends it or the context is full]
    #[arg(short = 'n', long, value_name = "TOKENS", value_parser = whole(1..=u32::MAX))]
    max_tokens: Option<u32>,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    speculation: SpeculationArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    kv: KvArgs,
}

/// Runs the command.
pub fn run(args: &ChatArgs) -> anyhow::Result<ExitCode> {
    interrupt::install()?;
    let mut conversation = open(args)?;
    let mut input = Input::open(args.history.clone())?;
    if input.is_terminal() {
        say(format_args!("{}; /help lists commands, Ctrl-D ends", conversation.introduction()));
    }
    loop {
        let line = match input.next()? {
            Line::Message(line) => line,
            Line::Interrupted => {
                say(format_args!("/quit or Ctrl-D ends the chat"));
                continue;
            }
            Line::End => break,
        };
        match follow(&line, &mut conversation) {
            Ok(Flow::GoOn) => {}
            Ok(Flow::Quit) => break,
            // A script has to hear of it; a person reads it and goes on.
            Err(error) if !input.is_terminal() || error.is::<crate::output::StdoutClosed>() => {
                return Err(error);
            }
            Err(error) => say(format_args!("error: {error:#}")),
        }
    }
    input.close()?;
    Ok(ExitCode::SUCCESS)
}

enum Flow {
    GoOn,
    Quit,
}

/// Loads the model.
fn open(args: &ChatArgs) -> anyhow::Result<Conversation> {
    let path = &args.file.file;
    let file = model::open(path)?;
    let tokenizer = model::tokenizer(&file, path)?;
    let template = args.template.template(&file)?;
    let capacity = Capacity {
        context_len: args.load.context,
        sequences: 1,
        max_outputs: args.speculation.max_outputs(),
    };
    let settings = Settings { sampler: args.sampling.options(), max_tokens: args.max_tokens };
    settings.sampler.check(tokenizer.vocab_len())?;
    let sha256 = args.kv.is_given().then(|| digest::model_sha256(&file)).transpose()?;
    let engine = model::load_with(&file, path, &args.load, &capacity, &|options| {
        sha256.into_iter().for_each(|sha256| args.kv.apply(options, sha256));
    })?;
    let drafter = args.speculation.drafter(&file, &args.load, &engine)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let talker = Talker { name, engine, tokenizer, template, drafter, date: args.template.date.clone() };
    let system = args.system.iter().map(|text| Message::new("system", text)).collect();
    Ok(Conversation::new(talker, settings, system))
}

/// Does what a line asks for.
fn follow(line: &str, conversation: &mut Conversation) -> anyhow::Result<Flow> {
    match Command::parse(line)? {
        Command::Nothing => {}
        Command::Say(text) => conversation.answer_to(text)?,
        Command::Help => say(format_args!("{HELP}")),
        Command::Clear => conversation.clear(),
        Command::System(None) => match conversation.system() {
            Some(text) => say(format_args!("{text}")),
            None => say(format_args!("there is no system message")),
        },
        Command::System(Some(text)) => conversation.set_system(text),
        Command::Save(path) => {
            conversation.save(&path).with_context(|| format!("/save {}", path.display()))?;
        }
        Command::Load(path) => {
            conversation.load(&path).with_context(|| format!("/load {}", path.display()))?;
        }
        Command::Undo => conversation.undo()?,
        Command::Retry => conversation.retry()?,
        Command::Show => say(format_args!("{}", conversation.settings())),
        Command::Set { name, value } => conversation.set(&name, &value)?,
        Command::Stats => say(format_args!("{}", conversation.stats())),
        Command::Quit => return Ok(Flow::Quit),
    }
    Ok(Flow::GoOn)
}
