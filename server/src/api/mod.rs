//! The routes, a file each, and what they share.

pub mod answer;
pub mod chat;
pub mod completions;
mod head;
mod messages;
pub mod models;
mod params;
pub mod tokens;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::model::Status;

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
    ([(header::CONTENT_TYPE, content_type)], app.metrics.text()).into_response()
}

/// Reads the body of a request.
async fn read(app: &App, body: Body) -> Result<Bytes, ApiError> {
    let bytes = body::read(body, app.options.max_body_bytes, app.options.client_timeout).await?;
    if app.options.log_requests {
        tracing::info!(body = %String::from_utf8_lossy(&bytes), "request");
    }
    Ok(bytes)
}

/// Work that takes the processor's time rather than somebody else's, off the threads that serve connections.
async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(ApiError::internal("a request could not be read; this is a bug, please report it"))
    })
}

/// Parses a body as each route does, for tests that search for bodies that no server should be given.
pub fn check_request(bytes: &[u8]) -> Vec<ApiError> {
    fn error<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<ApiError> {
        body::parse::<T>(bytes).err()
    }
    let errors = [
        error::<params::Params>(bytes),
        error::<chat::Request>(bytes),
        error::<completions::Request>(bytes),
        error::<tokens::TokenizeRequest>(bytes),
        error::<tokens::DetokenizeRequest>(bytes),
    ];
    errors.into_iter().flatten().collect()
}
