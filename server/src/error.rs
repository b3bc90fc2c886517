//! Errors as OpenAI's clients know them.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value as Json, json};
use unisonic_engine::EngineError;
use unisonic_engine::sampling::SamplerError;
use unisonic_engine::schedule::SubmitError;

/// A request that is not answered, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    message: String,
    kind: &'static str,
    /// The field that is wrong.
    param: Option<String>,
    /// A word for programs.
    code: Option<&'static str>,
    /// Seconds after which to try again.
    retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None, retry_after: None }
    }

    /// The request is wrong as a whole.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field of the request is wrong; the message names it.
    pub fn field(param: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        let param = param.into();
        Self { param: Some(param.clone()), ..Self::bad_request(format!("`{param}`: {problem}")) }
    }

    /// A field that asks for what we cannot do.
    pub fn unsupported(param: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::field(param, problem) }
    }

    /// The prompt does not fit.
    pub fn context(param: &str, prompt_tokens: usize, context_len: u32) -> Self {
        let problem = format!(
            "the prompt has {prompt_tokens} tokens, but the context holds {context_len} for prompt and answer together; \
             shorten the prompt, or start the server with a longer --context"
        );
        Self { code: Some("context_length_exceeded"), ..Self::field(param, problem) }
    }

    /// Another status with the same shape.
    pub fn status(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
        Self { code: Some(code), ..Self::new(status, kind, message) }
    }

    /// Our fault, or the machine's.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Nobody can be served now.
    pub fn unavailable(code: &'static str, message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::status(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// There is no place for the request.
    pub fn queue_full(places: usize, retry_after: u64) -> Self {
        let message = format!(
            "all {places} places for requests are taken; try again in {retry_after} s, or start the server with a longer \
             --queue"
        );
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        Self { code: Some("queue_full"), retry_after: Some(retry_after), ..error }
    }

    /// The HTTP status.
    pub fn http_status(&self) -> StatusCode {
        self.status
    }

    /// The object that is sent.
    pub fn json(&self) -> Json {
        let Self { message, kind, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::ContextOverflow { needed, context_len, .. } => {
                Self::context("prompt", needed.saturating_sub(1), context_len)
            }
            EngineError::OutOfPages { .. } => Self::unavailable("out_of_pages", error.to_string(), 1),
            EngineError::Sampling(error) => error.into(),
            EngineError::EmptyPrompt => Self::field("prompt", error),
            _ => Self::internal(error.to_string()),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::QueueFull { max_queued } => Self::queue_full(max_queued, 1),
            SubmitError::Request(error) => error.into(),
        }
    }
}

impl From<SamplerError> for ApiError {
    fn from(error: SamplerError) -> Self {
        let param = match &error {
            SamplerError::Option(of) => of.option.replace(['-', ' '], "_"),
            SamplerError::BiasToken { .. }
            | SamplerError::RepeatedBias { .. }
            | SamplerError::NothingAllowed { .. } => "logit_bias".into(),
            SamplerError::NotFinite { .. } => return Self::internal(error.to_string()),
        };
        Self::field(param, error)
    }
}
