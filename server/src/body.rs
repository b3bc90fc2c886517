//! Bodies of requests: read within limits, parsed with the name of what is wrong.

mod object;

pub use object::Object;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// From how many bytes on a body is large: far above what conversations have.
const LARGE_BYTES: usize = 64 << 10;
/// Large bodies that may be there at a time; others wait, or bodies would take as much memory as clients like.
const LARGE_MOST: usize = 16;

/// What bodies may take.
pub struct Limits {
    /// Most bytes of a body.
    pub max_bytes: usize,
    /// Longest time for one.
    pub time: Duration,
    large: Arc<Semaphore>,
}

impl Limits {
    /// Of each body; of all together there is one.
    pub fn new(max_bytes: usize, time: Duration) -> Self {
        Self { max_bytes, time, large: Arc::new(Semaphore::new(LARGE_MOST)) }
    }
}

/// The bytes of a body, and their place if they are many.
pub struct Read {
    bytes: Vec<u8>,
    large: Option<OwnedSemaphorePermit>,
}

impl Deref for Read {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body within limits.
pub async fn read(body: Body, limits: &Limits) -> Result<Read, ApiError> {
    let &Limits { max_bytes, time, ref large } = limits;
    let too_large = || {
        let message = format!("the body has more than {max_bytes} bytes, which is the most (--max-body)");
        ApiError::status(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    // Where the client says how long it is, nothing has to be waited for.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    let reading = async {
        let mut stream = body.into_data_stream();
        let mut read = Read { bytes: Vec::new(), large: None };
        while let Some(piece) = stream.next().await {
            let piece =
                piece.map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}")))?;
            let len = read.bytes.len() + piece.len();
            if len > max_bytes {
                return Err(too_large());
            }
            if len > LARGE_BYTES && read.large.is_none() {
                // Fails if the semaphore is closed, which nobody does.
                read.large = Arc::clone(large).acquire_owned().await.ok();
            }
            read.bytes.extend_from_slice(&piece);
        }
        Ok(read)
    };
    tokio::time::timeout(time, reading).await.unwrap_or_else(|_| {
        let message = format!("the body did not come within {} s", time.as_secs());
        Err(ApiError::status(StatusCode::REQUEST_TIMEOUT, "body_timeout", message))
    })
}

/// Parses a body. What it has beside the fields of `T` is passed over; a field that is wrong, missing or there twice is named.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Object(parsed) = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if error.classify() != serde_json::error::Category::Data {
            return ApiError::bad_request(format!("the body is not JSON: {error}"));
        }
        let parent = if path == "." { "" } else { path.as_str() };
        match (unpaired(&error.to_string()), parent) {
            (Some((field, problem)), "") => ApiError::field(field, problem),
            (Some((field, problem)), _) => ApiError::field(format!("{parent}.{field}"), problem),
            (None, "") => ApiError::bad_request(format!("the body: {error}")),
            (None, _) => ApiError::field(path, error),
        }
    })?;
    deserializer
        .end()
        .map_err(|error| ApiError::bad_request(format!("the body is not one JSON value: {error}")))?;
    Ok(parsed)
}

/// The field that is missing or there twice, which serde names in its message only: the path ends at the object.
fn unpaired(message: &str) -> Option<(&str, &'static str)> {
    let name = |after: &str| message.strip_prefix(after)?.split('`').next();
    let missing = name("missing field `").map(|field| (field, "it is missing"));
    missing.or_else(|| name("duplicate field `").map(|field| (field, "it is there twice")))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only its fields' types matter")]
    struct Body {
        temperature: Option<f64>,
        messages: Option<Vec<Object<Inner>>>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only its fields' types matter")]
    struct Inner {
        content: String,
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, param) in [
            (r#"{"temperature": "hot"}"#, "temperature"),
            (r#"{"messages": [{"content": "a"}, {"content": 5}]}"#, "messages[1].content"),
            (r#"{"messages": {}}"#, "messages"),
            (r#"{"messages": [{}]}"#, "messages[0].content"),
            (r#"{"messages": [["a"]]}"#, "messages[0]"),
            (r#"{"messages": [{"content": "a", "content": "b"}]}"#, "messages[0].content"),
            (r#"{"temperature": 1, "temperature": 1}"#, "temperature"),
        ] {
            let error = parse::<Body>(body.as_bytes()).unwrap_err();
            assert_eq!(error.json()["error"]["param"], param, "{error}");
            assert!(error.to_string().contains(param), "{error}");
        }
        for body in ["", "{", "[]", "[1, []]", "5", "{} x", "\u{0}"] {
            let error = parse::<Body>(body.as_bytes()).unwrap_err();
            assert_eq!(error.http_status(), 400, "{body}");
            assert!(error.json()["error"]["param"].is_null(), "{body}: {error}");
        }
        parse::<Body>(br#"{"unknown": {"a": [1, null]}, "temperature": null}"#).unwrap();
    }
}
