//! A choice under way.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use unisonic_engine::draft::{Drafter, NgramDrafter};
use unisonic_engine::sampling::logprobs;
use unisonic_engine::schedule::{Request, RequestProgress};
use unisonic_engine::tokenizer::Tokenizer;
use unisonic_engine::{Completion, Stop};

use super::text::TextStream;
use super::{Choice, End, Finish, Output, Piece};
use crate::error::ApiError;
use crate::metrics::{Metrics, Progress, Slot};

/// A choice under way.
pub struct Job {
    index: usize,
    outputs: mpsc::Sender<(usize, Output)>,
    /// Taken when it goes to the scheduler.
    choice: Option<Choice>,
    tokenizer: Arc<Tokenizer>,
    text: TextStream,
    logprobs: Option<u32>,
    prompt_tokens: usize,
    stopped: bool,
    submitted: Instant,
    first_token: Option<Instant>,
    /// From when it runs.
    slot: Option<Slot>,
    /// Given back before the client hears of the end, or when the job is dropped.
    place: Option<OwnedSemaphorePermit>,
}

impl Job {
    pub(super) fn new(
        index: usize,
        mut choice: Choice,
        outputs: mpsc::Sender<(usize, Output)>,
        tokenizer: Arc<Tokenizer>,
        submitted: Instant,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            index,
            outputs,
            text: TextStream::new(
                Arc::clone(&tokenizer),
                std::mem::take(&mut choice.stops),
                std::mem::take(&mut choice.shown),
            ),
            tokenizer,
            logprobs: choice.logprobs,
            prompt_tokens: choice.prompt.len(),
            choice: Some(choice),
            stopped: false,
            submitted,
            first_token: None,
            slot: None,
            place,
        }
    }

    /// What the scheduler gets, once.
    pub(super) fn request(&mut self, speculation: bool) -> Option<Request> {
        let choice = self.choice.take()?;
        let drafter = speculation.then(|| Box::new(NgramDrafter::new()) as Box<dyn Drafter>);
        let tokenizer = Arc::clone(&self.tokenizer);
        Some(Request {
            prompt: choice.prompt,
            max_tokens: choice.max_tokens,
            salt: choice.salt,
            sampler: choice.sampler,
            drafter,
            is_stop: Arc::new(move |token| tokenizer.is_stop(token)),
        })
    }

    /// Whether nobody wants it any more.
    pub(super) fn is_left(&self) -> bool {
        self.outputs.is_closed()
    }

    /// It runs, and has come so far.
    pub(super) fn observe(&mut self, now: &RequestProgress, metrics: &Metrics) {
        let progress = Progress {
            submitted: self.submitted,
            prompt_tokens: self.prompt_tokens,
            known_tokens: now.known_tokens,
            generated_tokens: now.generated_tokens,
            drafted_tokens: now.drafts.drafted,
            accepted_tokens: now.drafts.accepted,
        };
        match &self.slot {
            Some(slot) => slot.set(progress),
            None => self.slot = Some(metrics.slots.take(progress)),
        }
    }

    /// Takes a token; breaks at the end of the text.
    pub(super) fn token(&mut self, token: u32, logits: &[f32], metrics: &Metrics) -> ControlFlow<()> {
        metrics.generated_tokens.inc();
        if self.first_token.is_none() {
            let now = Instant::now();
            self.first_token = Some(now);
            metrics.first_token_seconds.observe((now - self.submitted).as_secs_f64());
            metrics.prompt_tokens.inc_by(self.prompt_tokens as u64);
        }
        if self.tokenizer.is_stop(token) {
            return ControlFlow::Continue(());
        }
        let of_token = self.logprobs.and_then(|top| logprobs(logits, token, top));
        let (piece, stopped) = self.text.push(token, of_token);
        self.stopped = stopped;
        self.send_piece(piece);
        if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Sends what is left of a generation that has ended.
    pub(super) fn end(mut self, completion: &Completion, metrics: &Metrics) {
        let finish = match completion.stop {
            Stop::Eog | Stop::Grammar | Stop::Cancelled => Finish::Stop,
            Stop::Length | Stop::Context => Finish::Length,
        };
        if !self.stopped {
            let piece = self.text.finish(finish == Finish::Length);
            self.send_piece(piece);
        }
        metrics.drafted_tokens.inc_by(completion.drafts.drafted);
        metrics.accepted_tokens.inc_by(completion.drafts.accepted);
        let now = Instant::now();
        let generated_tokens = completion.token_ids.len();
        metrics.request_seconds.observe((now - self.submitted).as_secs_f64());
        if let Some(first) = self.first_token.filter(|_| generated_tokens > 1) {
            let seconds = (now - first).as_secs_f64() / (generated_tokens - 1) as f64;
            metrics.seconds_per_token.observe(seconds);
        }
        self.slot = None;
        self.place = None;
        self.send(Output::End(End { finish, generated_tokens }));
    }

    /// It cannot go on.
    pub(super) fn fail(mut self, error: ApiError) {
        self.slot = None;
        self.place = None;
        self.send(Output::Failed(error));
    }

    fn send_piece(&self, piece: Piece) {
        if piece != Piece::default() {
            self.send(Output::Piece(piece));
        }
    }

    fn send(&self, output: Output) {
        // There is room for all outputs, so what fails has no receiver.
        let _ = self.outputs.try_send((self.index, output));
    }
}
