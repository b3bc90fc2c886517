//! `/tokenize` and `/detokenize`: text to token ids and back.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use unisonic_engine::tokenizer::{ControlTokens, Specials};

use super::{answer, read};
use crate::app::App;
use crate::body;
use crate::error::ApiError;

/// Most ids whose text is asked for at a time: a token has up to a hundred times the bytes that its id takes here.
const IDS_MAX: usize = 1 << 18;

/// A text.
#[derive(Debug, Deserialize)]
pub struct TokenizeRequest {
    #[serde(alias = "prompt", alias = "text")]
    content: String,
    /// Whether the ids begin with BOS and end with EOS, where the file asks for them.
    #[serde(default)]
    add_special: Option<bool>,
    /// Whether special tokens in the text are these tokens, and not text.
    #[serde(default)]
    parse_special: Option<bool>,
}

/// Token ids.
#[derive(Debug, Deserialize)]
pub struct DetokenizeRequest {
    tokens: Vec<u32>,
}

/// Ids of a text.
pub async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let model = app.model()?;
    let bytes = read(&app, body).await?;
    let ids = app.compute(move || {
        let request: TokenizeRequest = body::parse(&bytes)?;
        let parse = request.parse_special.unwrap_or(true);
        let specials = if parse { Specials::Parse } else { Specials::Literal };
        let tokenizer = &model.tokenizer;
        let ids = if request.add_special.unwrap_or(false) {
            tokenizer.encode_prompt(&request.content, specials)
        } else {
            tokenizer.encode(&request.content, specials)
        };
        ids.map_err(|error| ApiError::field("content", error))
    });
    Ok(answer::json(&json!({ "tokens": ids.await? })))
}

/// The text of ids.
pub async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let model = app.model()?;
    let bytes = read(&app, body).await?;
    let text = app.compute(move || {
        let DetokenizeRequest { tokens } = body::parse(&bytes)?;
        if tokens.len() > IDS_MAX {
            let problem =
                format!("it has {} ids, but {IDS_MAX} are the most; send them in pieces", tokens.len());
            return Err(ApiError::field("tokens", problem));
        }
        if let Some(index) = tokens.iter().position(|&id| id >= model.tokenizer.vocab_len()) {
            let problem = format!("the model's tokens are 0 to {}", model.tokenizer.vocab_len() - 1);
            return Err(ApiError::field(format!("tokens[{index}]"), problem));
        }
        Ok(model.tokenizer.decode(&tokens, ControlTokens::Show))
    });
    Ok(answer::json(&json!({ "content": text.await? })))
}
