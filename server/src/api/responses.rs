//! `/v1/responses`: answers a conversation, in OpenAI's newer shape: texts, reasoning and calls are items of the output.
//!
//! Nothing is stored: `store` is passed over, and what names something stored is refused.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use unisonic_engine::chat::Data;

use super::answer::{Event, Format, Usage};
use super::chat::{marks, prompt};
use super::head::Head;
use super::items::Input;
use super::params::{Checked, Params, ResponseFormat};
use super::parts::{Part, Parts};
use super::task::{self, Task};
use super::tools::{Call, ToolFields, call_id};
use crate::app::App;
use crate::body::{self, Object};
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::{Choice, End, Finish, Piece};

#[derive(Debug, Deserialize)]
struct Request {
    input: Input,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    conversation: Option<Data>,
    prompt: Option<Data>,
    background: Option<bool>,
    truncation: Option<String>,
    text: Option<Object<TextFormat>>,
    tools: Option<Vec<Data>>,
    tool_choice: Option<Data>,
    parallel_tool_calls: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct TextFormat {
    format: Option<Object<ResponseFormat>>,
}

/// What of a request its response says again, as it was said.
#[derive(Debug, Deserialize)]
struct Said {
    #[serde(default)]
    instructions: Json,
    #[serde(default)]
    max_output_tokens: Json,
    metadata: Option<Map<String, Json>>,
    parallel_tool_calls: Option<Json>,
    text: Option<Json>,
    tool_choice: Option<Json>,
    tools: Option<Json>,
    #[serde(default)]
    user: Json,
}

/// Answers a conversation.
pub async fn handle(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    task::handle(app, body, "resp", read).await
}

/// Reads a request.
pub(super) fn read(
    options: &Options,
    model: &Model,
    id: String,
    bytes: &[u8],
) -> Result<Task<Responses>, ApiError> {
    let request: Request = body::parse(bytes)?;
    request.check()?;
    let said: Said = body::parse(bytes)?;
    let format = request.text.and_then(|Object(text)| text.format);
    let mut params =
        body::parse::<Params>(bytes)?.with_format("text.format", format).check(options, model)?;
    if params.n != 1 {
        return Err(ApiError::unsupported("n", "a response is one answer; leave it out"));
    }
    let tools = ToolFields::flat(request.tools, request.tool_choice, request.parallel_tool_calls).check()?;
    let messages = request.input.messages(request.instructions)?;
    let (ids, rules) = prompt("input", options, model, messages, &tools, &mut params)?;
    let prompt_tokens = ids.len();
    let shown = marks(model, &rules);
    let max_tokens = params.max_tokens.or(options.max_tokens);
    let choice = Choice { shown, ..params.choice(model, 0, ids, max_tokens, None)? };
    let format = Responses {
        head: Head::new(id, model, params.seed),
        said: said.json(&params),
        parts: Parts::new(rules),
        output: Vec::new(),
        open: None,
        number: 0,
        is_complete: true,
    };
    Ok(Task { choices: vec![choice], format, prompt_tokens, streams: params.stream })
}

impl Request {
    /// Refuses what would have to be stored, or forgotten.
    fn check(&self) -> Result<(), ApiError> {
        let stored = "responses are not stored; send the whole conversation as `input`";
        let unsupported = [
            ("previous_response_id", self.previous_response_id.is_some(), stored),
            ("conversation", self.conversation.is_some(), stored),
            (
                "prompt",
                self.prompt.is_some(),
                "prompts are not stored; send the text as `instructions` and `input`",
            ),
            ("background", self.background == Some(true), "responses are not stored; leave it out and wait"),
            (
                "truncation",
                self.truncation.as_ref().is_some_and(|how| how != "disabled"),
                "only \"disabled\" is supported: nothing of a conversation is left out",
            ),
        ];
        let asked = unsupported.into_iter().find(|(_, asked, _)| *asked);
        asked.map_or(Ok(()), |(param, _, problem)| Err(ApiError::unsupported(param, problem)))
    }
}

impl Said {
    fn json(self, params: &Checked) -> Json {
        json!({
            "background": false,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata.unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true.into()),
            "previous_response_id": null,
            "store": false,
            "temperature": params.sampler().temperature,
            "text": self.text.unwrap_or_else(|| json!({ "format": { "type": "text" } })),
            "tool_choice": self.tool_choice.unwrap_or("auto".into()),
            "tools": self.tools.unwrap_or(json!([])),
            "top_p": params.sampler().top_p.unwrap_or(1.0),
            "truncation": "disabled",
            "user": self.user,
        })
    }
}

/// What the answer looks like.
pub(super) struct Responses {
    head: Head,
    /// What it says again of the request: [`Said::json`].
    said: Json,
    parts: Parts,
    /// Items that are complete.
    output: Vec<Json>,
    /// A text that still grows: whether it is reasoning, and what there is of it.
    open: Option<(bool, String)>,
    /// Of the next event.
    number: u64,
    is_complete: bool,
}

impl Responses {
    fn event(&mut self, name: &'static str, mut data: Json) -> Event {
        data["type"] = name.into();
        data["sequence_number"] = self.number.into();
        self.number += 1;
        Event { name: Some(name), data }
    }

    fn response(&self, status: &str, usage: Option<Usage>) -> Json {
        // How many tokens were cached depends on who asked before, and an answer does not. Those of reasoning are not counted
        // apart.
        let usage = usage.map(|Usage { prompt_tokens, generated_tokens }| {
            json!({
                "input_tokens": prompt_tokens,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": generated_tokens,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": prompt_tokens + generated_tokens,
            })
        });
        let why = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        let mut response = self.said.clone();
        response["id"] = self.head.id.as_str().into();
        response["object"] = "response".into();
        response["created_at"] = self.head.created.into();
        response["model"] = self.head.model.as_str().into();
        response["seed"] = self.head.seed.into();
        response["status"] = status.into();
        response["error"] = Json::Null;
        response["incomplete_details"] = why.into();
        response["output"] = self.output.clone().into();
        response["usage"] = usage.into();
        response
    }

    fn item_id(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", self.head.id, self.output.len())
    }

    fn item(&self, reasoning: bool, text: &str, status: &str) -> Json {
        if reasoning {
            let content = json!([{ "type": "reasoning_text", "text": text }]);
            return json!({ "id": self.item_id("rs"), "type": "reasoning", "summary": [], "content": content });
        }
        let part = json!([{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }]);
        let content = if status == "in_progress" { json!([]) } else { part };
        json!({
            "id": self.item_id("msg"), "type": "message", "role": "assistant", "status": status, "content": content,
        })
    }

    fn add(&mut self, part: Part) -> Vec<Event> {
        match part {
            Part::Reasoning(text) => self.add_text(true, &text),
            Part::Content(text) => self.add_text(false, &text),
            Part::Call(call) => self.add_call(call),
        }
    }

    fn add_text(&mut self, reasoning: bool, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|(open, _)| *open != reasoning) {
            events.extend(self.close());
            self.open = Some((reasoning, String::new()));
            let (index, item) = (self.output.len(), self.item(reasoning, "", "in_progress"));
            let added = json!({ "output_index": index, "item": item });
            events.push(self.event("response.output_item.added", added));
            if !reasoning {
                let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
                let place = self.place("msg");
                events.push(self.event("response.content_part.added", with(place, "part", part)));
            }
        }
        if let Some((_, open)) = &mut self.open {
            open.push_str(text);
        }
        let (name, kind) = match reasoning {
            true => ("response.reasoning_text.delta", "rs"),
            false => ("response.output_text.delta", "msg"),
        };
        let mut delta = with(self.place(kind), "delta", text.into());
        delta["logprobs"] = json!([]);
        events.push(self.event(name, delta));
        events
    }

    fn place(&self, kind: &str) -> Json {
        json!({ "item_id": self.item_id(kind), "output_index": self.output.len(), "content_index": 0 })
    }

    /// Completes the text that is open.
    fn close(&mut self) -> Vec<Event> {
        let Some((reasoning, text)) = self.open.take() else { return Vec::new() };
        let mut events = Vec::new();
        if reasoning {
            let done = with(self.place("rs"), "text", text.as_str().into());
            events.push(self.event("response.reasoning_text.done", done));
        } else {
            let mut done = with(self.place("msg"), "text", text.as_str().into());
            done["logprobs"] = json!([]);
            events.push(self.event("response.output_text.done", done));
            let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
            let place = self.place("msg");
            events.push(self.event("response.content_part.done", with(place, "part", part)));
        }
        let item = self.item(reasoning, &text, self.status());
        events.push(self.done(item));
        events
    }

    /// An item is complete.
    fn done(&mut self, item: Json) -> Event {
        let done = json!({ "output_index": self.output.len(), "item": item });
        self.output.push(item);
        self.event("response.output_item.done", done)
    }

    fn add_call(&mut self, Call { name, arguments }: Call) -> Vec<Event> {
        let mut events = self.close();
        let id = self.item_id("fc");
        let call_id = call_id(&self.head.id, 0, self.output.len());
        let item = |arguments: &str, status: &str| {
            json!({
                "id": id, "type": "function_call", "call_id": call_id, "name": name,
                "arguments": arguments, "status": status,
            })
        };
        let index = self.output.len();
        let added = json!({ "output_index": index, "item": item("", "in_progress") });
        events.push(self.event("response.output_item.added", added));
        let place = json!({ "item_id": id, "output_index": index });
        let delta = with(place.clone(), "delta", arguments.as_str().into());
        events.push(self.event("response.function_call_arguments.delta", delta));
        let done = with(place, "arguments", arguments.as_str().into());
        events.push(
            self.event("response.function_call_arguments.done", with(done, "name", name.as_str().into())),
        );
        let item = item(&arguments, "completed");
        events.push(self.done(item));
        events
    }

    fn status(&self) -> &'static str {
        if self.is_complete { "completed" } else { "incomplete" }
    }
}

/// An object with one member more.
fn with(mut object: Json, name: &str, value: Json) -> Json {
    object[name] = value;
    object
}

impl Format for Responses {
    fn start(&mut self) -> Vec<Event> {
        let response = json!({ "response": self.response("in_progress", None) });
        vec![self.event("response.created", response.clone()), self.event("response.in_progress", response)]
    }

    fn piece(&mut self, _choice: usize, piece: Piece) -> Vec<Event> {
        let parts = self.parts.push(&piece.text);
        parts.into_iter().flat_map(|part| self.add(part)).collect()
    }

    fn end(&mut self, _choice: usize, end: End) -> Vec<Event> {
        let parts = self.parts.finish();
        let mut events: Vec<Event> = parts.into_iter().flat_map(|part| self.add(part)).collect();
        self.is_complete = end.finish == Finish::Stop;
        events.extend(self.close());
        events
    }

    fn finish(&mut self, usage: Usage) -> Vec<Event> {
        let response = json!({ "response": self.response(self.status(), Some(usage)) });
        let name = if self.is_complete { "response.completed" } else { "response.incomplete" };
        vec![self.event(name, response)]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Event> {
        let error = &error.json()["error"];
        let mut response = self.response("failed", None);
        response["error"] =
            json!({ "code": error["code"].as_str().unwrap_or("server_error"), "message": error["message"] });
        let failed = json!({ "code": error["code"], "message": error["message"], "param": error["param"] });
        vec![self.event("error", failed), self.event("response.failed", json!({ "response": response }))]
    }

    fn last(&self) -> &'static str {
        ""
    }

    fn whole(self, usage: Usage) -> Json {
        self.response(self.status(), Some(usage))
    }
}
