//! What every route that generates does with a request: read it off the threads that serve connections, give its choices to the
//! engine, and answer.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;

use super::answer::{Format, answer};
use super::read;
use crate::app::App;
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::Choice;

/// A request that was read.
pub struct Task<F> {
    /// What the engine gets.
    pub choices: Vec<Choice>,
    /// What the answer looks like.
    pub format: F,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Whether the answer comes in pieces.
    pub streams: bool,
}

/// Reads a body; the text is the id of its answer.
pub type Read<F> = fn(&Options, &Model, String, &[u8]) -> Result<Task<F>, ApiError>;

/// Answers a request; ids of answers begin with `kind`.
pub async fn handle<F: Format>(
    app: Arc<App>,
    body: Body,
    kind: &str,
    task: Read<F>,
) -> Result<Response, ApiError> {
    let model = app.model()?;
    let bytes = read(&app, body).await?;
    let (of, with, id) = (Arc::clone(&app), Arc::clone(&model), app.id(kind));
    let task = app.compute(move || task(&of.options, &with, id, &bytes)).await?;
    let answers = app.submit(&model, task.choices)?;
    answer(task.format, answers, task.prompt_tokens, task.streams).await
}
