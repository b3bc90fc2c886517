//! `/v1/models`: the one model.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};

use super::answer;
use crate::app::App;
use crate::error::ApiError;
use crate::model::Model;

/// All models.
pub async fn list(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let model = app.model()?;
    Ok(answer::json(&json!({ "object": "list", "data": [object(&app, &model)] })))
}

/// One of them.
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let model = app.model()?;
    if id != model.name {
        let message = format!("there is no model {id:?}; the server has {:?}", model.name);
        return Err(ApiError::status(StatusCode::NOT_FOUND, "model_not_found", message));
    }
    Ok(answer::json(&object(&app, &model)))
}

fn object(app: &App, model: &Model) -> Json {
    json!({
        "id": model.name,
        "object": "model",
        "created": app.started,
        "owned_by": "unisonic",
        "context_length": model.context_len,
        "profile": model.profile,
        "device": model.device,
    })
}
