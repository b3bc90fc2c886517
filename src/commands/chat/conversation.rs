//! What was said in a chat, and what the model says next.

use std::fmt::{self, Write as _};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use unisonic_engine::chat::{ChatOptions, ChatTemplate, Message, encode_chat};
use unisonic_engine::draft::{DraftStats, Drafter};
use unisonic_engine::sampling::{Sampler, SamplerOptions};
use unisonic_engine::tokenizer::{ControlTokens, Detokenizer, Tokenizer};
use unisonic_engine::{Completion, Engine, GenerateOptions, GreedyTokens, Sample, Stop, generate};

use crate::output::{rate, say, spinner, write_stdout};
use crate::{atomic, interrupt, speculation};

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// Who answers.
pub struct Talker {
    pub name: String,
    pub engine: Engine,
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    pub drafter: Option<Box<dyn Drafter>>,
    /// Today, for the template.
    pub date: Option<String>,
}

/// How answers come about.
#[derive(Clone)]
pub struct Settings {
    pub sampler: SamplerOptions,
    /// Most tokens of an answer.
    pub max_tokens: Option<u32>,
}

impl Settings {
    /// With one of them changed; null has the default.
    fn with(&self, name: &str, value: Json) -> anyhow::Result<Self> {
        if name == "max_tokens" {
            let max_tokens: Option<NonZeroU32> = serde_json::from_value(value).context("max_tokens")?;
            return Ok(Self { max_tokens: max_tokens.map(NonZeroU32::get), ..self.clone() });
        }
        let mut json = serde_json::to_value(&self.sampler)?;
        if let Some(members) = json.as_object_mut() {
            match value {
                Json::Null => members.remove(name),
                value => members.insert(name.to_owned(), value),
            };
        }
        let sampler = serde_json::from_value(json).with_context(|| format!("cannot set {name}"))?;
        Ok(Self { sampler, ..self.clone() })
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_value(&self.sampler).unwrap_or_default();
        for (name, value) in json.as_object().into_iter().flatten() {
            writeln!(f, "{name} {value}")?;
        }
        match self.max_tokens {
            Some(max) => write!(f, "max_tokens {max}"),
            None => f.write_str("max_tokens off"),
        }
    }
}

/// Sums over all answers.
#[derive(Default)]
struct Totals {
    answers: usize,
    read: usize,
    known: usize,
    generated: usize,
    /// Tokens that decoding took time for: all but the first of an answer.
    decoded: usize,
    drafts: DraftStats,
    reading: Duration,
    decoding: Duration,
}

/// A chat under way.
pub struct Conversation {
    talker: Talker,
    settings: Settings,
    messages: Vec<Message>,
    totals: Totals,
}

/// A conversation as JSON.
#[derive(Serialize, Deserialize)]
struct Saved {
    messages: Vec<SavedMessage>,
}

#[derive(Serialize, Deserialize)]
struct SavedMessage {
    role: String,
    content: String,
}

impl Conversation {
    /// One that begins with these messages.
    pub fn new(talker: Talker, settings: Settings, messages: Vec<Message>) -> Self {
        Self { talker, settings, messages, totals: Totals::default() }
    }

    /// Who answers, and on what.
    pub fn introduction(&self) -> String {
        let Talker { name, engine, .. } = &self.talker;
        format!("{name} on {}, context of {} tokens", engine.device().id, engine.context_len())
    }

    /// How answers come about.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes a setting; `value` is JSON, a word, or `off`.
    pub fn set(&mut self, name: &str, value: &str) -> anyhow::Result<()> {
        let value = match value {
            "off" => Json::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        };
        let settings = self.settings.with(name, value)?;
        settings.sampler.check(self.talker.engine.plan().vocab_len)?;
        self.settings = settings;
        Ok(())
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|first| first.role == SYSTEM).map(|first| first.content.as_str())
    }

    /// Replaces it; an empty one is none.
    pub fn set_system(&mut self, text: String) {
        let rest = usize::from(self.system().is_some());
        let system = Some(text).filter(|text| !text.is_empty()).map(|text| Message::new(SYSTEM, text));
        self.messages.splice(..rest, system);
    }

    /// Begins anew; the system message stays.
    pub fn clear(&mut self) {
        self.messages.truncate(usize::from(self.system().is_some()));
    }

    /// Forgets the last message and its answer.
    pub fn undo(&mut self) -> anyhow::Result<()> {
        let Some(last) = self.messages.iter().rposition(|message| message.role == USER) else {
            bail!("there is no message to forget");
        };
        self.messages.truncate(last);
        Ok(())
    }

    /// Answers the last message again.
    pub fn retry(&mut self) -> anyhow::Result<()> {
        let Some(last) = self.messages.iter().rposition(|message| message.role == USER) else {
            bail!("there is no message to answer");
        };
        let before = self.messages.split_off(last + 1);
        let sampler = &mut self.settings.sampler;
        let seed = sampler.seed;
        sampler.seed = seed.wrapping_add(u64::from(sampler.temperature > 0.0));
        self.answer().inspect_err(|_| {
            self.messages.extend(before);
            self.settings.sampler.seed = seed;
        })
    }

    /// Writes the conversation to a file.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let saved = |of: &Message| SavedMessage { role: of.role.clone(), content: of.content.clone() };
        let saved = Saved { messages: self.messages.iter().map(saved).collect() };
        atomic::write(path, format!("{}\n", serde_json::to_string(&saved)?).as_bytes())
    }

    /// Goes on with the conversation of a file.
    pub fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let bytes = std::fs::read(path).context("cannot read it")?;
        let saved: Saved = serde_json::from_slice(&bytes).context("it is no conversation")?;
        let message = |SavedMessage { role, content }| Message::new(role, content);
        self.messages = saved.messages.into_iter().map(message).collect();
        Ok(())
    }

    /// Answers a message. One that cannot be answered is forgotten.
    pub fn answer_to(&mut self, text: String) -> anyhow::Result<()> {
        self.messages.push(Message::new(USER, text));
        let len = self.messages.len();
        self.answer().inspect_err(|_| self.messages.truncate(len - 1))
    }

    /// The ids that the answer follows.
    fn prompt(&self) -> anyhow::Result<Vec<u32>> {
        let Talker { tokenizer, template, date, engine, .. } = &self.talker;
        let options = ChatOptions { date: date.clone(), ..ChatOptions::default() };
        let rendered = template.render(tokenizer, &self.messages, &options)?;
        let prompt = encode_chat(tokenizer, &rendered)?;
        if prompt.len() >= engine.context_len() as usize {
            bail!(
                "the conversation has {} tokens, but the context holds {} with the answer; /undo or /clear forget some, and \
                 --context may allow more",
                prompt.len(),
                engine.context_len()
            );
        }
        Ok(prompt)
    }

    /// Answers the last message.
    fn answer(&mut self) -> anyhow::Result<()> {
        let prompt = self.prompt()?;
        let Talker { engine, tokenizer, drafter, .. } = &mut self.talker;
        let sampler = Sampler::new(&self.settings.sampler, engine.plan().vocab_len)?;
        let mut sampler: Box<dyn Sample> =
            if sampler.is_greedy() { Box::new(GreedyTokens) } else { Box::new(sampler) };
        // What it begins with stays in the prefix tree, whatever is undone, answered again or loaded.
        let mut session = engine.session_for(b"", &prompt)?;
        let known = session.tokens().len();
        let unread = prompt.get(known..).unwrap_or_default();
        let mut shown = Shown::new(tokenizer, unread.len());
        // Templates may leave out of a conversation what they wrote before, and commands change it.
        if let Some(drafter) = drafter {
            drafter.restart();
        }
        let options = GenerateOptions {
            max_tokens: self.settings.max_tokens,
            cancelled: Some(&interrupt::requested),
            sampler: Some(&mut *sampler),
            drafter: drafter.as_deref_mut().map(|drafter| drafter as _),
        };
        interrupt::defer_first_interrupt();
        let is_stop = |token| tokenizer.is_stop(token);
        let completion =
            generate(engine, &mut session, unread, options, &is_stop, &mut |token, _| shown.push(token));
        interrupt::settle();
        let (text, times) = shown.finish()?;
        let completion = completion?;
        self.totals.add(&completion, prompt.len(), known, times);
        report(&completion, prompt.len(), known, times);
        if completion.token_ids.is_empty() {
            bail!("stopped before there was an answer; the message is forgotten");
        }
        self.messages.push(Message::new(ASSISTANT, text));
        Ok(())
    }

    /// What there was so far.
    pub fn stats(&self) -> String {
        let Totals { answers, read, known, generated, decoded, drafts, reading, decoding } = &self.totals;
        let pages = self.talker.engine.page_use();
        let mut text = format!(
            "{}\nanswers: {answers}; tokens read: {read}{}, known already: {known}; generated: {generated}{}{}\n",
            self.introduction(),
            rate(*read, *reading),
            rate(*decoded, *decoding),
            speculation::phrase(*drafts),
        );
        let _ = write!(
            text,
            "messages: {}; KV pages kept: {} of {}",
            self.messages.len(),
            pages.held + pages.cached,
            pages.held + pages.cached + pages.free
        );
        text
    }
}

/// Until the first token, and from there to the end.
#[derive(Clone, Copy)]
struct Times {
    reading: Duration,
    decoding: Duration,
}

impl Totals {
    fn add(&mut self, completion: &Completion, prompt: usize, known: usize, times: Times) {
        let generated = completion.token_ids.len();
        if generated > 0 {
            self.read += prompt - known;
            self.reading += times.reading;
        }
        self.answers += 1;
        self.known += known;
        self.generated += generated;
        self.decoded += generated.saturating_sub(1);
        self.decoding += times.decoding;
        self.drafts.steps += completion.drafts.steps;
        self.drafts.drafted += completion.drafts.drafted;
        self.drafts.accepted += completion.drafts.accepted;
    }
}

/// An answer as it comes, on stdout.
struct Shown<'a> {
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer<&'a Tokenizer>,
    text: String,
    waiting: indicatif::ProgressBar,
    started: Instant,
    first_token: Option<Instant>,
    output: anyhow::Result<()>,
}

impl<'a> Shown<'a> {
    fn new(tokenizer: &'a Tokenizer, unread: usize) -> Self {
        Self {
            tokenizer,
            detokenizer: Detokenizer::new(tokenizer, ControlTokens::Hide),
            text: String::new(),
            waiting: spinner(&format!("reading {unread} tokens")),
            started: Instant::now(),
            first_token: None,
            output: Ok(()),
        }
    }

    fn push(&mut self, token: u32) -> ControlFlow<()> {
        if self.first_token.is_none() {
            self.first_token = Some(Instant::now());
            self.waiting.finish_and_clear();
        }
        if !self.tokenizer.is_stop(token) {
            let piece = self.detokenizer.push(token);
            self.show(&piece);
        }
        if self.output.is_err() || interrupt::requested() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn show(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.output.is_ok() && !piece.is_empty() {
            self.output = write_stdout(piece);
        }
    }

    /// The whole text, and how long it took.
    fn finish(mut self) -> anyhow::Result<(String, Times)> {
        self.waiting.finish_and_clear();
        let ended = Instant::now();
        let rest = self.detokenizer.finish();
        self.show(&rest);
        if self.first_token.is_some() && !self.text.ends_with('\n') && self.output.is_ok() {
            self.output = write_stdout("\n");
        }
        self.output?;
        let first = self.first_token.unwrap_or(ended);
        Ok((self.text, Times { reading: first - self.started, decoding: ended - first }))
    }
}

/// The closing line on stderr.
fn report(completion: &Completion, prompt: usize, known: usize, times: Times) {
    let generated = completion.token_ids.len();
    let stop = match completion.stop {
        Stop::Eog => String::new(),
        stop => format!("; stop: {}", stop.as_str()),
    };
    say(format_args!(
        "[{} tokens read{}, {known} known; {generated} generated{}{}{stop}]",
        prompt - known,
        if generated > 0 { rate(prompt - known, times.reading) } else { String::new() },
        rate(generated.saturating_sub(1), times.decoding),
        speculation::phrase(completion.drafts),
    ));
}
