//! `/v1/chat/completions`: answers a conversation.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use unisonic_engine::chat::{ChatOptions, Message, encode_chat};

use super::answer::{Event, Format, Usage, answer};
use super::head::Head;
use super::messages::{MessageJson, messages};
use super::params::{Params, check_prompt};
use super::{MAX_LOGPROBS, compute, read};
use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::{Choice, End, Piece, TokenInfo, TokenText};

/// The fields that only conversations have.
#[derive(Debug, Deserialize)]
pub struct Request {
    messages: Vec<MessageJson>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    tools: Option<Json>,
    functions: Option<Json>,
}

/// Answers a conversation.
pub async fn handle(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let model = app.model()?;
    let bytes = read(&app, body).await?;
    let (of, with) = (Arc::clone(&app), Arc::clone(&model));
    let task = compute(move || Task::read(&of, &with, &bytes)).await?;
    let answers = app.submit(&model, task.choices)?;
    answer(task.format, answers, task.prompt_tokens, task.streams).await
}

struct Task {
    choices: Vec<Choice>,
    format: Chat,
    prompt_tokens: usize,
    streams: bool,
}

impl Task {
    fn read(app: &App, model: &Model, bytes: &[u8]) -> Result<Self, ApiError> {
        let request: Request = body::parse(bytes)?;
        let params = body::parse::<Params>(bytes)?.check(&app.options, model)?;
        let logprobs = request.logprobs()?;
        request.refuse_tools()?;
        let ids = prompt(&app.options, model, &messages(request.messages)?)?;
        check_prompt("messages", &ids, model)?;
        let max_tokens = params.max_tokens.or(app.options.max_tokens);
        let choice = |i| params.choice(model, i, ids.clone(), max_tokens, logprobs);
        let choices = (0..params.n).map(choice).collect::<Result<Vec<_>, _>>()?;
        let format = Chat {
            head: Head::new(app, model, "chatcmpl", params.seed),
            include_usage: params.include_usage,
            has_logprobs: logprobs.is_some(),
            choices: choices.iter().map(|_| Reply::default()).collect(),
        };
        Ok(Self { choices, format, prompt_tokens: ids.len(), streams: params.stream })
    }
}

impl Request {
    /// How many tokens to tell of beside the chosen one; none: of neither.
    fn logprobs(&self) -> Result<Option<u32>, ApiError> {
        let wanted = self.logprobs.unwrap_or(false);
        match self.top_logprobs {
            Some(top) if top > MAX_LOGPROBS => {
                Err(ApiError::field("top_logprobs", format!("it is {top}, but must be 0 to {MAX_LOGPROBS}")))
            }
            Some(top) if top > 0 && !wanted => {
                Err(ApiError::field("top_logprobs", "it needs `logprobs` to be true"))
            }
            top => Ok(wanted.then_some(top.unwrap_or(0))),
        }
    }

    fn refuse_tools(&self) -> Result<(), ApiError> {
        for (name, value) in [("tools", &self.tools), ("functions", &self.functions)] {
            let is_given = value.as_ref().is_some_and(|value| !value.is_null() && *value != json!([]));
            if is_given {
                return Err(ApiError::unsupported(name, "tools are not supported"));
            }
        }
        Ok(())
    }
}

/// Ids of a conversation.
fn prompt(options: &Options, model: &Model, messages: &[Message]) -> Result<Vec<u32>, ApiError> {
    let wrong = |error: &dyn std::fmt::Display| ApiError::field("messages", error);
    let template = model.template.as_ref().map_err(|error| wrong(error))?;
    let options = ChatOptions { date: options.date.clone(), ..ChatOptions::default() };
    let rendered = template.render(&model.tokenizer, messages, &options).map_err(|error| wrong(&error))?;
    encode_chat(&model.tokenizer, &rendered).map_err(|error| wrong(&error))
}

/// What the answers look like.
struct Chat {
    head: Head,
    include_usage: bool,
    has_logprobs: bool,
    choices: Vec<Reply>,
}

/// A choice so far.
#[derive(Default)]
struct Reply {
    content: String,
    logprobs: Vec<TokenInfo>,
    finish: Option<&'static str>,
}

impl Chat {
    fn chunk(&self, index: usize, delta: Json, logprobs: Json, finish: Option<&str>) -> Event {
        let choice = json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish });
        let mut chunk = self.head.json("chat.completion.chunk", json!([choice]));
        if self.include_usage {
            chunk["usage"] = Json::Null;
        }
        chunk.into()
    }

    fn logprobs(&self, infos: &[TokenInfo]) -> Json {
        if !self.has_logprobs {
            return Json::Null;
        }
        let content = |info: &TokenInfo| {
            let mut json = token_json(&info.chosen);
            json["top_logprobs"] = info.top.iter().map(token_json).collect();
            json
        };
        json!({ "content": infos.iter().map(content).collect::<Vec<_>>(), "refusal": null })
    }
}

impl Format for Chat {
    fn start(&mut self) -> Vec<Event> {
        let delta = json!({ "role": "assistant", "content": "" });
        (0..self.choices.len()).map(|index| self.chunk(index, delta.clone(), Json::Null, None)).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let logprobs = self.logprobs(&piece.logprobs);
        let event = self.chunk(index, json!({ "content": piece.text }), logprobs, None);
        if let Some(choice) = self.choices.get_mut(index) {
            choice.content.push_str(&piece.text);
            choice.logprobs.extend(piece.logprobs);
        }
        vec![event]
    }

    fn end(&mut self, index: usize, end: End) -> Vec<Event> {
        let finish = end.finish.as_str();
        if let Some(choice) = self.choices.get_mut(index) {
            choice.finish = Some(finish);
        }
        vec![self.chunk(index, json!({}), Json::Null, Some(finish))]
    }

    fn finish(&mut self, usage: Usage) -> Vec<Event> {
        if !self.include_usage {
            return Vec::new();
        }
        let mut chunk = self.head.json("chat.completion.chunk", json!([]));
        chunk["usage"] = usage.json();
        vec![chunk.into()]
    }

    fn whole(self, usage: Usage) -> Json {
        let choice = |(index, of): (usize, &Reply)| {
            json!({
                "index": index,
                "message": { "role": "assistant", "content": of.content, "refusal": null },
                "logprobs": self.logprobs(&of.logprobs),
                "finish_reason": of.finish,
            })
        };
        let choices = self.choices.iter().enumerate().map(choice).collect();
        let mut whole = self.head.json("chat.completion", choices);
        whole["usage"] = usage.json();
        whole
    }
}

fn token_json(of: &TokenText) -> Json {
    json!({ "token": of.text(), "logprob": of.logprob, "bytes": of.bytes })
}
