//! `/v1/chat/completions`: answers a conversation.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use unisonic_engine::chat::{ChatOptions, Message, encode_chat};
use unisonic_engine::tokenizer::{Specials, TokenKind};

use super::MAX_LOGPROBS;
use super::answer::{Event, Format, Usage};
use super::called;
use super::head::Head;
use super::messages::{MessageJson, messages};
use super::params::{Checked, Params, check_prompt};
use super::parts::{MARKS, Part, Rules};
use super::reply::Reply;
use super::task::{self, Task};
use super::tools::{Calls, ToolFields, Tools, for_template};
use crate::app::App;
use crate::body::{self, Object};
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::{Choice, End, Finish, Piece, TokenInfo, TokenText};

/// The fields that only conversations have.
#[derive(Debug, Deserialize)]
pub struct Request {
    messages: Vec<Object<MessageJson>>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
}

/// Answers a conversation.
pub async fn handle(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    task::handle(app, body, "chatcmpl", read).await
}

/// Reads a request.
pub(super) fn read(
    options: &Options,
    model: &Model,
    id: String,
    bytes: &[u8],
) -> Result<Task<Chat>, ApiError> {
    let request: Request = body::parse(bytes)?;
    let mut params = body::parse::<Params>(bytes)?.check(options, model)?;
    let logprobs = request.logprobs()?;
    let tools = body::parse::<ToolFields>(bytes)?.check()?;
    let (ids, rules) = prompt("messages", options, model, messages(request.messages)?, &tools, &mut params)?;
    let max_tokens = params.max_tokens.or(options.max_tokens);
    let shown = marks(model, &rules);
    let choice = |i| {
        let choice = params.choice(model, i, ids.clone(), max_tokens, logprobs)?;
        Ok::<_, ApiError>(Choice { shown: shown.clone(), ..choice })
    };
    let choices = (0..params.n).map(choice).collect::<Result<Vec<_>, _>>()?;
    let format = Chat {
        head: Head::new(id, model, params.seed),
        include_usage: params.include_usage,
        has_logprobs: logprobs.is_some(),
        choices: choices.iter().map(|_| Reply::new(rules.clone())).collect(),
    };
    Ok(Task { choices, format, prompt_tokens: ids.len(), streams: params.stream })
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
}

/// Ids of a conversation, and what the answer may have beside its content; `param` is the field that it comes from. What the
/// answer has to follow goes to `params`.
pub(super) fn prompt(
    param: &str,
    options: &Options,
    model: &Model,
    messages: Vec<Message>,
    tools: &Tools,
    params: &mut Checked,
) -> Result<(Vec<u32>, Rules), ApiError> {
    let wrong = |error: &dyn std::fmt::Display| ApiError::field(param, error);
    let template = model.template.as_ref().map_err(|error| wrong(error))?;
    let calls = Calls::of_template(template.source());
    let mut chat = ChatOptions { date: options.date.clone(), ..ChatOptions::default() };
    let messages = for_template(calls, messages, tools, &mut chat);
    let rendered = template.render(&model.tokenizer, &messages, &chat).map_err(|error| wrong(&error))?;
    let ids = encode_chat(&model.tokenizer, &rendered).map_err(|error| wrong(&error))?;
    check_prompt(param, &ids, model)?;
    let mut rules = Rules {
        calls: (!tools.tools.is_empty()).then_some(calls),
        names: tools.names(),
        parallel: tools.parallel,
        reasons: template.source().contains("</think>"),
        begins_reasoning: rendered.text().trim_end().ends_with("<think>"),
    };
    called::follow(params, &mut rules, tools, model, template.source())?;
    Ok((ids, rules))
}

/// The marks of parts that are control tokens of the model, where an answer may have such parts.
pub(super) fn marks(model: &Model, rules: &Rules) -> Vec<u32> {
    if !rules.reasons && rules.calls.is_none() {
        return Vec::new();
    }
    let id = |mark: &&str| match model.tokenizer.encode(mark, Specials::Parse).ok()?[..] {
        [id] if model.tokenizer.token_kind(id).is_some_and(TokenKind::is_control) => Some(id),
        _ => None,
    };
    MARKS.iter().filter_map(id).collect()
}

/// What the answers look like.
pub(super) struct Chat {
    head: Head,
    include_usage: bool,
    has_logprobs: bool,
    choices: Vec<Reply>,
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

    /// Those that no chunk has told yet; null if there are none.
    fn untold(&self, untold: &[TokenInfo]) -> Json {
        if untold.is_empty() { Json::Null } else { self.logprobs(untold) }
    }

    /// Adds parts to a choice; the chunks that tell of them.
    fn add(&mut self, index: usize, parts: Vec<Part>) -> Vec<Event> {
        let Some(reply) = self.choices.get_mut(index) else { return Vec::new() };
        let id = &self.head.id;
        let deltas: Vec<Json> = parts.into_iter().flat_map(|part| reply.add(part, id, index)).collect();
        let mut untold = if deltas.is_empty() { Vec::new() } else { std::mem::take(&mut reply.untold) };
        let mut events = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let logprobs = self.untold(&std::mem::take(&mut untold));
            events.push(self.chunk(index, delta, logprobs, None));
        }
        events
    }
}

impl Format for Chat {
    fn start(&mut self) -> Vec<Event> {
        let delta = json!({ "role": "assistant", "content": "" });
        (0..self.choices.len()).map(|index| self.chunk(index, delta.clone(), Json::Null, None)).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let Some(reply) = self.choices.get_mut(index) else { return Vec::new() };
        reply.logprobs.extend(piece.logprobs.iter().cloned());
        reply.untold.extend(piece.logprobs);
        let parts = reply.parts.push(&piece.text);
        self.add(index, parts)
    }

    fn end(&mut self, index: usize, end: End) -> Vec<Event> {
        let Some(reply) = self.choices.get_mut(index) else { return Vec::new() };
        let parts = reply.parts.finish();
        let mut events = self.add(index, parts);
        let Some(reply) = self.choices.get_mut(index) else { return events };
        let called = !reply.calls.is_empty() && end.finish == Finish::Stop;
        let finish = if called { "tool_calls" } else { end.finish.as_str() };
        reply.finish = Some(finish);
        let untold = std::mem::take(&mut reply.untold);
        let logprobs = self.untold(&untold);
        events.push(self.chunk(index, json!({}), logprobs, Some(finish)));
        events
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
                "message": of.message(),
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
