//! The routes, a file each, and what they share.

pub mod answer;
mod called;
pub mod chat;
pub mod completions;
mod head;
mod items;
mod messages;
pub mod models;
pub mod page;
mod params;
mod parts;
mod reply;
pub mod responses;
mod task;
pub mod tokens;
mod tools;
mod values;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::model::{Model, Status};
use crate::options::Options;

/// Most tokens that are told of beside the chosen one, as at OpenAI.
const MAX_LOGPROBS: u32 = 20;

/// Whether requests can be answered: 200, or 503 with the reason.
pub async fn health(State(app): State<Arc<App>>) -> Response {
    let (code, health) = match &*app.status().borrow() {
        Status::Ready(_) => (StatusCode::OK, json!({ "status": "ok" })),
        Status::Loading => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "loading" })),
        Status::Failed(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "failed", "error": error }))
        }
        Status::Stopping => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "stopping" })),
    };
    let mut response = answer::json(&health);
    *response.status_mut() = code;
    response
}

/// Counters, gauges and histograms.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let content_type = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    let model = app.model().ok();
    ([(header::CONTENT_TYPE, content_type)], app.metrics.text(model.as_deref())).into_response()
}

/// Reads the body of a request.
async fn read(app: &App, body: Body) -> Result<body::Read, ApiError> {
    let bytes = body::read(body, &app.bodies).await?;
    if app.options.log_requests {
        tracing::info!(body = %String::from_utf8_lossy(&bytes), "request");
    }
    Ok(bytes)
}

/// Reads a body as each route does, without answering it: for tests that search for bodies that no server should be given. What
/// is wrong with it for each of the routes.
pub fn check_request(options: &Options, model: &Model, bytes: &[u8]) -> Vec<ApiError> {
    let id = String::new;
    let errors = [
        chat::read(options, model, id(), bytes).err(),
        completions::read(options, model, id(), bytes).err(),
        responses::read(options, model, id(), bytes).err(),
        body::parse::<tokens::TokenizeRequest>(bytes).err(),
        body::parse::<tokens::DetokenizeRequest>(bytes).err(),
    ];
    errors.into_iter().flatten().collect()
}
