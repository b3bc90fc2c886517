//! From the outputs of choices to the body of an answer: whole, or as server-sent events.
//!
//! A [`Format`] says what a route's answers look like. Both ways go through [`Format::piece`], so they cannot differ.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::worker::{Answers, End, Output, Piece};

/// How long a stream is silent at most: proxies close those that are.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Tokens of a request and of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of all prompts.
    pub prompt_tokens: usize,
    /// Of all choices, end tokens included.
    pub generated_tokens: usize,
}

impl Usage {
    /// OpenAI's object.
    pub fn json(self) -> Json {
        let Self { prompt_tokens, generated_tokens } = self;
        serde_json::json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated_tokens,
            "total_tokens": prompt_tokens + generated_tokens,
        })
    }
}

/// An event of a stream.
pub struct Event {
    /// Its name, in streams whose events have one.
    pub name: Option<&'static str>,
    /// What it says.
    pub data: Json,
}

impl From<Json> for Event {
    fn from(data: Json) -> Self {
        Self { name: None, data }
    }
}

impl Event {
    fn bytes(&self) -> Bytes {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        Bytes::from(format!("{name}data: {}\n\n", self.data))
    }
}

/// What the answers of a route look like. It sees what is generated as it comes, and says what a stream then shows; in the end
/// it can say it all at once.
pub trait Format: Send + 'static {
    /// Before all text.
    fn start(&mut self) -> Vec<Event>;
    /// Some text of a choice.
    fn piece(&mut self, choice: usize, piece: Piece) -> Vec<Event>;
    /// A choice has ended.
    fn end(&mut self, choice: usize, end: End) -> Vec<Event>;
    /// All have ended.
    fn finish(&mut self, usage: Usage) -> Vec<Event>;
    /// It cannot go on.
    fn failed(&mut self, error: &ApiError) -> Vec<Event> {
        vec![error.json().into()]
    }
    /// What comes after everything, not JSON.
    fn last(&self) -> &'static str {
        "data: [DONE]\n\n"
    }
    /// The answer as a whole, after [`Self::finish`].
    fn whole(self, usage: Usage) -> Json;
}

/// The answer of a request.
pub async fn answer<F: Format>(
    format: F,
    answers: Answers,
    prompt_tokens: usize,
    streams: bool,
) -> Result<Response, ApiError> {
    let usage = Usage { prompt_tokens, generated_tokens: 0 };
    let going = Going { left: answers.choices(), format, answers, usage };
    if streams {
        return Ok(event_stream(going));
    }
    let whole = going.whole().await?;
    Ok(json(&whole))
}

/// A body of JSON.
pub fn json(value: &Json) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], value.to_string()).into_response()
}

/// An answer under way.
struct Going<F> {
    format: F,
    answers: Answers,
    /// Choices that have not ended.
    left: usize,
    usage: Usage,
}

impl<F: Format> Going<F> {
    /// The events of the next output; none after the last.
    async fn next(&mut self) -> Result<Option<Vec<Event>>, ApiError> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.answers.next().await {
            Some((choice, Output::Piece(piece))) => Ok(Some(self.format.piece(choice, piece))),
            Some((choice, Output::End(end))) => {
                self.usage.generated_tokens += end.generated_tokens;
                self.left -= 1;
                let mut events = self.format.end(choice, end);
                if self.left == 0 {
                    events.extend(self.format.finish(self.usage));
                }
                Ok(Some(events))
            }
            Some((_, Output::Failed(error))) => Err(error),
            None => Err(ApiError::internal("the server stopped before the answer was complete; try again")),
        }
    }

    async fn whole(mut self) -> Result<Json, ApiError> {
        self.format.start();
        while self.next().await?.is_some() {}
        Ok(self.format.whole(self.usage))
    }
}

fn event_stream<F: Format>(mut going: Going<F>) -> Response {
    let ready: VecDeque<Bytes> = going.format.start().iter().map(Event::bytes).collect();
    // None when nothing comes after what is ready.
    let state = (Some(going), ready);
    let events = stream::unfold(state, |(mut going, mut ready)| async move {
        loop {
            if let Some(bytes) = ready.pop_front() {
                return Some((Ok::<_, Infallible>(bytes), (going, ready)));
            }
            let current = going.as_mut()?;
            match tokio::time::timeout(SILENCE_MAX, current.next()).await {
                Ok(Ok(Some(events))) => ready.extend(events.iter().map(Event::bytes)),
                Ok(Ok(None)) => {
                    ready
                        .extend(Some(current.format.last()).filter(|last| !last.is_empty()).map(Bytes::from));
                    going = None;
                }
                Ok(Err(error)) => {
                    ready.extend(current.format.failed(&error).iter().map(Event::bytes));
                    going = None;
                }
                Err(_) => ready.push_back(Bytes::from_static(b": the answer is not ready yet\n\n")),
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::from_stream(events)).into_response()
}
