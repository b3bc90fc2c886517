//! `/`: a page to chat with the model, in one file; and what is not there.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use crate::error::ApiError;

/// The page. It loads nothing from elsewhere, and may not.
pub async fn page() -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let policy = (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    ([policy], Html(include_str!("page.html"))).into_response()
}

/// `/v1/embeddings`: there are none, and why.
pub async fn embeddings() -> ApiError {
    let message = "embeddings are not implemented: the engine gives the logits of a model and not its hidden states, and there \
                   is no pooling rule that is exact on all devices yet";
    ApiError::status(StatusCode::NOT_IMPLEMENTED, "not_implemented", message)
}
