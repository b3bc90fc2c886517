//! The thread that runs the engine.
//!
//! [`Handle::submit`] gives it work and returns the [`Answers`] as they come; dropping those cancels what is left of them.
//! `run` is the thread: it loads the model, drives the scheduler while there is work, and sleeps while there is none. `job` is
//! a choice under way, `text` makes its tokens text.

mod job;
mod run;
mod text;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use unisonic_engine::Sample;

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::model::{Load, Status};
use job::Job;

pub use text::{Piece, TokenInfo, TokenText};

/// What one choice of an answer asks for.
pub struct Choice {
    /// Token ids; at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<u32>,
    /// Chooses the tokens.
    pub sampler: Box<dyn Sample>,
    /// Strings that end the text.
    pub stops: Vec<String>,
    /// How many of the most probable tokens to tell of beside the chosen one; `None`: of neither.
    pub logprobs: Option<u32>,
    /// Only requests of the same salt share keys and values.
    pub salt: Vec<u8>,
    /// Control tokens that are text in the answer: marks of tool calls and of reasoning.
    pub shown: Vec<u32>,
}

/// What becomes of a choice.
#[derive(Clone, Debug)]
pub enum Output {
    /// Some more text.
    Piece(Piece),
    /// All text is there.
    End(End),
    /// It cannot go on.
    Failed(ApiError),
}

/// How a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub finish: Finish,
    /// Tokens that were generated, an end token included.
    pub generated_tokens: usize,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its answer, or a stop string did.
    Stop,
    /// `max_tokens` were generated, or the context is full.
    Length,
}

impl Finish {
    /// OpenAI's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// The outputs of the choices of one request, as they come. Dropped, it cancels those that have not ended.
pub struct Answers {
    outputs: mpsc::Receiver<(usize, Output)>,
    choices: usize,
}

impl Answers {
    /// Number of choices.
    pub fn choices(&self) -> usize {
        self.choices
    }

    /// The next output and whose it is; `None` when nothing more comes, which before the end of each choice means that the
    /// thread is gone.
    pub async fn next(&mut self) -> Option<(usize, Output)> {
        self.outputs.recv().await
    }
}

/// How many requests the thread takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Choices that run at a time.
    pub running: usize,
    /// Choices that wait.
    pub queued: usize,
    /// Whether tokens are guessed ahead.
    pub speculation: bool,
}

impl Limits {
    /// Choices that may be there at a time.
    pub fn places(&self) -> usize {
        self.running.max(1).saturating_add(self.queued).min(Semaphore::MAX_PERMITS)
    }
}

enum Command {
    Run(Vec<Job>),
    Stop,
}

/// How the thread ended: as it was told to, or because the model cannot be loaded.
pub type Ended = Result<(), String>;

/// The way to the thread.
pub struct Handle {
    commands: mpsc::Sender<Command>,
    places: Arc<Semaphore>,
    limits: Limits,
}

impl Handle {
    /// Starts the thread, which loads the model first.
    pub fn start(
        limits: Limits,
        status: watch::Sender<Status>,
        metrics: Arc<Metrics>,
        load: Load,
    ) -> std::io::Result<(Self, JoinHandle<()>, oneshot::Receiver<Ended>)> {
        // A place for each command, and one for the last.
        let (commands, received) =
            mpsc::channel(limits.places().saturating_add(1).min(Semaphore::MAX_PERMITS));
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            let worker = run::Worker { limits, status, metrics, commands: received };
            // Nobody to tell: the server has ended.
            let _ = end.send(worker.run(load));
        })?;
        let places = Arc::new(Semaphore::new(limits.places()));
        Ok((Self { commands, places, limits }, thread, ended))
    }

    /// Choices that run or wait.
    pub fn in_use(&self) -> usize {
        self.limits.places() - self.places.available_permits()
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Submits the choices of a request, all or none.
    pub fn submit(&self, choices: Vec<Choice>, model: &Arc<crate::model::Model>) -> Option<Answers> {
        let count = choices.len();
        let places = Arc::clone(&self.places).try_acquire_many_owned(u32::try_from(count).ok()?).ok();
        let mut places = places?;
        let room = |choice: &Choice| {
            let left = (model.context_len as usize).saturating_sub(choice.prompt.len());
            // Each token may let out a piece; then the rest, and the end.
            left.min(choice.max_tokens.map_or(left, |max| max as usize)) + 2
        };
        let room: usize = choices.iter().map(room).sum();
        let (sender, outputs) = mpsc::channel(room.min(Semaphore::MAX_PERMITS));
        let now = Instant::now();
        let mut jobs = Vec::with_capacity(count);
        for (index, choice) in choices.into_iter().enumerate() {
            jobs.push(Job::new(
                index,
                choice,
                sender.clone(),
                Arc::clone(&model.tokenizer),
                now,
                places.split(1),
            ));
        }
        self.commands.try_send(Command::Run(jobs)).ok()?;
        Some(Answers { outputs, choices: count })
    }

    /// Ends the thread; what still runs is cancelled.
    pub fn stop(&self) {
        // Fails if it has ended already.
        let _ = self.commands.try_send(Command::Stop);
    }
}
