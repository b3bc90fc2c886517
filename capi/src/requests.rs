//! What happens to the requests of batches, while whichever thread steps the model.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use unisonic_engine::Stop;
use unisonic_engine::schedule::{Event, RequestId};

use crate::asked::Answer;
use crate::completion::{Completion, unisonic_stop};
use crate::error::Result;
use crate::locks::lock_whole;

/// The requests of all batches of a model that the scheduler has.
#[derive(Default)]
pub(crate) struct Requests(Mutex<HashMap<RequestId, Arc<Mutex<InFlight>>>>);

/// A request that waits or runs.
pub(crate) struct InFlight {
    answer: Option<Answer>,
    keeps_logits: bool,
    /// What the host has not been told yet.
    pub(crate) happened: VecDeque<Happened>,
    /// How it ended.
    end: Option<Result<Stop>>,
    /// Tokens and text that the host was told.
    tokens: Vec<u32>,
    text: String,
}

/// A token with the text that it lets out; none for text that was held back.
pub(crate) struct Happened {
    pub(crate) token: Option<u32>,
    pub(crate) text: String,
    pub(crate) logits: Vec<f32>,
    pub(crate) index: u32,
}

impl Requests {
    /// Follows a request.
    pub(crate) fn insert(&self, id: RequestId, request: &Arc<Mutex<InFlight>>) {
        lock_whole(&self.0).insert(id, Arc::clone(request));
    }

    /// Follows it no longer: whatever happens to it, it ends.
    pub(crate) fn remove(&self, id: RequestId) {
        lock_whole(&self.0).remove(&id);
    }

    /// Takes what happens in a step. A request that nobody follows ends.
    pub(crate) fn take(&self, event: Event<'_>) -> ControlFlow<()> {
        let (Event::Token { id, .. } | Event::Done { id, .. } | Event::Failed { id, .. }) = &event;
        let Some(request) = lock_whole(&self.0).get(id).cloned() else { return ControlFlow::Break(()) };
        let id = *id;
        let mut request = lock_whole(&request);
        match event {
            Event::Token { token, logits, .. } => return request.token(token, logits),
            Event::Done { completion, .. } => request.finish(completion.stop),
            Event::Failed { error, .. } => request.end = Some(Err(error.into())),
        }
        self.remove(id);
        ControlFlow::Continue(())
    }
}

impl InFlight {
    pub(crate) fn new(answer: Answer, keeps_logits: bool) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            answer: Some(answer),
            keeps_logits,
            happened: VecDeque::new(),
            end: None,
            tokens: Vec::new(),
            text: String::new(),
        }))
    }

    fn token(&mut self, token: u32, logits: &[f32]) -> ControlFlow<()> {
        let Some(answer) = &mut self.answer else { return ControlFlow::Break(()) };
        let text = answer.push(token, logits);
        let logits = if self.keeps_logits { logits.to_vec() } else { Vec::new() };
        let index = self.tokens.len() + self.happened.len();
        self.happened.push_back(Happened { token: Some(token), text, logits, index: index as u32 });
        if answer.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The scheduler has ended it.
    pub(crate) fn finish(&mut self, stop: Stop) {
        if let Some(answer) = &mut self.answer {
            let text = answer.finish();
            if !text.is_empty() {
                let index = (self.tokens.len() + self.happened.len()) as u32;
                self.happened.push_back(Happened { token: None, text, logits: Vec::new(), index });
            }
        }
        self.end = Some(Ok(stop));
    }

    /// The host was told this.
    pub(crate) fn told(&mut self, happened: &Happened) {
        self.tokens.extend(happened.token);
        self.text.push_str(&happened.text);
    }

    /// What it came to, once the host has been told everything.
    pub(crate) fn completion(&mut self) -> Option<Result<Completion>> {
        if !self.happened.is_empty() {
            return None;
        }
        let stop = match self.end.take()? {
            Ok(stop) => stop,
            Err(error) => return Some(Err(error)),
        };
        let answer = self.answer.take()?;
        let cause = match stop {
            Stop::Cancelled if answer.stopped => unisonic_stop::StopString,
            other => other.into(),
        };
        Some(Ok(self.whole(answer, cause, stop)))
    }

    /// What it comes to with what the host was told so far.
    pub(crate) fn cut(&mut self, cause: unisonic_stop) -> Option<Completion> {
        self.happened.clear();
        let answer = self.answer.take()?;
        Some(self.whole(answer, cause, Stop::Cancelled))
    }

    fn whole(&mut self, answer: Answer, cause: unisonic_stop, stop: Stop) -> Completion {
        let (tokens, text) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.text));
        answer.complete(tokens, &text, cause, stop.as_str())
    }
}
