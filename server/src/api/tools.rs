//! Tools: how a model is told of them, and how it calls them.
//!
//! Templates that know tools get them as they are. For others, Gemma's among them, the first message tells of them, and calls
//! and results become text.

use std::sync::Arc;

use serde::Deserialize;
use unisonic_engine::Digest;
use unisonic_engine::chat::{ChatOptions, Data, Message};

use crate::error::ApiError;

/// How a model writes calls, known from its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, any number of them: Qwen, ChatML (Hermes).
    Tagged,
    /// `[TOOL_CALLS][{"name": …, "arguments": …}, …]` or `[TOOL_CALLS]name[ARGS]{…}`: Mistral.
    Marked,
    /// The answer is `{"name": …, "parameters": …}`: Llama 3.
    Bare,
    /// Tagged, because the first message says so: Gemma, and whatever has no words of its own.
    Told,
}

impl Calls {
    /// By the words of a template.
    pub fn of_template(source: &str) -> Self {
        if source.contains("[TOOL_CALLS]") {
            Self::Marked
        } else if source.contains("<tool_call>") {
            Self::Tagged
        } else if source.contains("<|python_tag|>")
            || source.contains("\"parameters\": dictionary of argument")
        {
            Self::Bare
        } else {
            Self::Told
        }
    }
}

/// What may be called, and whether it may.
#[derive(Debug, Default, Deserialize)]
pub struct ToolFields {
    tools: Option<Vec<Data>>,
    tool_choice: Option<Data>,
    parallel_tool_calls: Option<bool>,
    functions: Option<Data>,
    /// Whether the request has a function's members in the tool itself.
    #[serde(skip)]
    is_flat: bool,
}

/// Whether a model calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// As it likes.
    #[default]
    Auto,
    /// It has to, one of all tools.
    Required,
    /// It has to, this one.
    Named(String),
}

/// Tools of a request that were checked.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// As the request has them; none if no call is wanted.
    pub tools: Vec<Data>,
    /// Whether one has to be called.
    pub choice: Choice,
    /// Whether there may be more than one call.
    pub parallel: bool,
}

impl Tools {
    /// The functions that may be called.
    pub fn callable(&self) -> impl Iterator<Item = &Data> {
        let is_chosen = |function: &&Data| match &self.choice {
            Choice::Named(name) => function.get("name").and_then(Data::as_text) == Some(name),
            Choice::Auto | Choice::Required => true,
        };
        self.tools.iter().filter_map(|tool| tool.get("function")).filter(is_chosen)
    }

    /// Their names.
    pub fn names(&self) -> Arc<[String]> {
        self.callable().filter_map(|function| function.get("name")?.as_text()).map(str::to_owned).collect()
    }
}

impl ToolFields {
    /// Of `/v1/responses`, where what is in `function` elsewhere is in the tool itself.
    pub fn flat(
        tools: Option<Vec<Data>>,
        tool_choice: Option<Data>,
        parallel_tool_calls: Option<bool>,
    ) -> Self {
        let nest = |tool: Data| match tool {
            Data::Object(mut members) if members.iter().any(|(name, _)| name == "name") => {
                let kinds = members.extract_if(.., |(name, _)| name == "type").collect::<Vec<_>>();
                let function = ("function".to_owned(), Data::Object(members));
                Data::Object(kinds.into_iter().chain([function]).collect())
            }
            other => other,
        };
        let tools = tools.map(|tools| tools.into_iter().map(nest).collect());
        Self { tools, tool_choice, parallel_tool_calls, functions: None, is_flat: true }
    }

    /// Checks them.
    pub fn check(self) -> Result<Tools, ApiError> {
        if self.functions.is_some_and(|functions| functions != Data::Null && functions != Data::List(vec![]))
        {
            return Err(ApiError::unsupported("functions", "it is the old name; use `tools`"));
        }
        let tools = self.tools.unwrap_or_default();
        for (index, tool) in tools.iter().enumerate() {
            let name = format!("tools[{index}]");
            if tool.get("type").and_then(Data::as_text) != Some("function") {
                return Err(ApiError::unsupported(format!("{name}.type"), "only \"function\" is supported"));
            }
            let function = tool.get("function").and_then(|function| function.get("name"));
            if function.and_then(Data::as_text).is_none_or(str::is_empty) {
                let place = if self.is_flat { "name" } else { "function.name" };
                return Err(ApiError::field(format!("{name}.{place}"), "it has to be a text"));
            }
        }
        let choice = match &self.tool_choice {
            None | Some(Data::Null) => Choice::Auto,
            Some(choice) => match choice.as_text() {
                Some("auto") => Choice::Auto,
                Some("none") => return Ok(Tools::default()),
                Some("required") => Choice::Required,
                _ => Choice::Named(named(choice)?),
            },
        };
        let tools = Tools { tools, choice, parallel: self.parallel_tool_calls.unwrap_or(true) };
        if tools.choice != Choice::Auto && tools.callable().next().is_none() {
            let problem = "there is no such tool to be called; give it in `tools`";
            return Err(ApiError::field("tool_choice", problem));
        }
        Ok(tools)
    }
}

/// The function that `{"type": "function", "function": {"name": …}}` names, or `{"type": "function", "name": …}`.
fn named(choice: &Data) -> Result<String, ApiError> {
    let is_function = choice.get("type").and_then(Data::as_text) == Some("function");
    let name = choice.get("function").unwrap_or(choice).get("name").and_then(Data::as_text);
    name.filter(|_| is_function).map(str::to_owned).ok_or_else(|| {
        let problem = "only \"auto\", \"none\", \"required\" and the name of a function are supported";
        ApiError::unsupported("tool_choice", problem)
    })
}

/// Messages for a template that takes no more than one call a message, Llama 3's: calls in turn, each with its result.
fn one_by_one(messages: Vec<Message>) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let calls = message.more.iter_mut().find(|(name, _)| name == "tool_calls");
        let calls = match calls {
            Some((_, Data::List(calls))) if calls.len() > 1 => std::mem::take(calls),
            _ => {
                all.push(message);
                continue;
            }
        };
        let mut results = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == "tool") {
            results.push(result);
        }
        let id_of = |result: &Message| {
            let id = result.more.iter().find(|(name, _)| name == "tool_call_id");
            id.and_then(|(_, id)| id.as_text()).map(str::to_owned)
        };
        for call in calls {
            let id = call.get("id").and_then(Data::as_text);
            let result = results.iter().position(|result| id.is_some() && id_of(result).as_deref() == id);
            let result = result.or_else(|| (!results.is_empty() && id.is_none()).then_some(0));
            let mut one = Message::new(message.role.clone(), std::mem::take(&mut message.content));
            one.more.push(("tool_calls".to_owned(), Data::List(vec![call])));
            all.push(one);
            all.extend(result.map(|at| results.remove(at)));
        }
        all.extend(results);
    }
    all
}

/// Characters of a call's name, as many as Mistral's templates want.
pub const CALL_ID_LEN: usize = 9;

/// The name of a call: the same for the same answer, and unlike the others'.
pub fn call_id(answer: &str, choice: usize, index: usize) -> String {
    let digest = Digest::of(format!("{answer}/{choice}/{index}").as_bytes()).to_string();
    digest.chars().take(CALL_ID_LEN).collect()
}

/// Messages and options for a template, by its form of calls.
pub fn for_template(
    calls: Calls,
    messages: Vec<Message>,
    tools: &Tools,
    chat: &mut ChatOptions,
) -> Vec<Message> {
    if calls == Calls::Told {
        return tell(messages, &tools.tools);
    }
    chat.tools.clone_from(&tools.tools);
    if calls == Calls::Bare { one_by_one(messages) } else { messages }
}

/// Messages for a template without words for tools.
fn tell(messages: Vec<Message>, tools: &[Data]) -> Vec<Message> {
    let mut told: Vec<Message> = Vec::new();
    for mut message in messages {
        let calls = message.more.iter().find(|(name, _)| name == "tool_calls").map(|(_, calls)| calls);
        if let Some(Data::List(calls)) = calls {
            for function in calls.iter().filter_map(|call| call.get("function")) {
                let line = if message.content.is_empty() { "" } else { "\n" };
                message.content.push_str(&format!("{line}<tool_call>\n{function}\n</tool_call>"));
            }
        }
        message.more.clear();
        if message.role == "tool" {
            let content = format!("<tool_response>\n{}\n</tool_response>", message.content);
            match told.last_mut() {
                // Templates want turns by turns.
                Some(last) if last.role == "user" => last.content.push_str(&format!("\n{content}")),
                _ => told.push(Message::new("user", content)),
            }
        } else {
            told.push(message);
        }
    }
    if let Some(first) = told.first_mut()
        && !tools.is_empty()
    {
        let lines: Vec<String> = tools.iter().map(Data::to_string).collect();
        let text = format!(
            "You may call these functions, given as JSON, a line each:\n{}\nTo call one, answer with\n\
             <tool_call>\n{{\"name\": NAME, \"arguments\": OBJECT}}\n</tool_call>\nonce for each call; the results follow in \
             <tool_response>. If none is needed, just answer.\n\n",
            lines.join("\n")
        );
        first.content.insert_str(0, &text);
    }
    told
}

/// A call that a model has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Of the function.
    pub name: String,
    /// JSON.
    pub arguments: String,
}

impl Call {
    /// From `{"name": …, "arguments": …}`.
    fn from_data(data: &Data) -> Option<Self> {
        let name = data.get("name")?.as_text()?.to_owned();
        let arguments = data.get("arguments").or_else(|| data.get("parameters"));
        let arguments = match arguments {
            None | Some(Data::Null) => "{}".to_owned(),
            Some(Data::Text(text)) => serde_json::from_str::<Data>(text).ok()?.to_string(),
            Some(arguments) => arguments.to_string(),
        };
        Some(Self { name, arguments })
    }

    /// The calls in what stands between marks; none if they are not what the model was to write.
    pub fn read(calls: Calls, text: &str) -> Option<Vec<Self>> {
        let text = text.trim();
        if calls == Calls::Marked
            && let Some(calls) = read_marked(text)
        {
            return Some(calls);
        }
        let mut read = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Data>();
            match values.next()?.ok()? {
                Data::List(items) => {
                    let items: Option<Vec<Self>> = items.iter().map(Self::from_data).collect();
                    read.extend(items?);
                }
                data => read.push(Self::from_data(&data)?),
            }
            rest = rest.get(values.byte_offset()..)?.trim_start_matches([';', ',', ' ', '\n', '\r', '\t']);
        }
        (!read.is_empty()).then_some(read)
    }
}

/// `name[ARGS]{…}`, with or without `[TOOL_CALLS]` between two of them.
fn read_marked(text: &str) -> Option<Vec<Call>> {
    let mut calls = Vec::new();
    for part in text.split("[TOOL_CALLS]").map(str::trim).filter(|part| !part.is_empty()) {
        let (name, arguments) = part.split_once("[ARGS]")?;
        let name = name.split("[CALL_ID]").next()?.trim();
        let arguments: Data = serde_json::from_str(arguments.trim()).ok()?;
        calls.push(Call { name: name.to_owned(), arguments: arguments.to_string() });
    }
    (!calls.is_empty()).then_some(calls)
}

#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
