//! The input of `/v1/responses`: a text, or items, which become messages.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use unisonic_engine::chat::{Data, Message};

use super::messages::Content;
use crate::body::Object;
use crate::error::ApiError;

/// A text or items.
#[derive(Debug)]
pub enum Input {
    /// What a user says.
    Text(String),
    /// A conversation.
    Items(Vec<Object<Item>>),
}

/// A message, a call, or its result.
#[derive(Debug, Deserialize)]
pub struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    #[serde(default)]
    content: Content,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    #[serde(default)]
    output: Content,
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrItems;

        impl<'de> Visitor<'de> for TextOrItems {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of items")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Input, E> {
                Ok(Input::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Input, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Input::Items(items))
            }
        }

        deserializer.deserialize_any(TextOrItems)
    }
}

impl Input {
    /// The messages for the template; at least one.
    pub fn messages(self, instructions: Option<String>) -> Result<Vec<Message>, ApiError> {
        let mut messages: Vec<Message> =
            instructions.map(|text| Message::new("system", text)).into_iter().collect();
        match self {
            Self::Text(text) => messages.push(Message::new("user", text)),
            Self::Items(items) if items.is_empty() => {
                return Err(ApiError::field("input", "it is empty: there is nothing to answer"));
            }
            Self::Items(items) => {
                for (index, Object(item)) in items.into_iter().enumerate() {
                    item.add_to(&mut messages, &format!("input[{index}]"))?;
                }
            }
        }
        Ok(messages)
    }
}

impl Item {
    fn add_to(self, messages: &mut Vec<Message>, place: &str) -> Result<(), ApiError> {
        let missing = |name: &str| ApiError::field(format!("{place}.{name}"), "it is missing");
        match self.kind.as_deref().unwrap_or("message") {
            "message" => {
                let role = self.role.ok_or_else(|| missing("role"))?;
                let role = if role == "developer" { "system".to_owned() } else { role };
                messages.push(Message::new(role, self.content.text(&format!("{place}.content"))?));
            }
            "function_call" => {
                let arguments = self.arguments.ok_or_else(|| missing("arguments"))?;
                let arguments = serde_json::from_str(&arguments).unwrap_or(Data::Text(arguments));
                let name = Data::Text(self.name.ok_or_else(|| missing("name"))?);
                let function = Data::object([("name", name), ("arguments", arguments)]);
                let id = Data::Text(self.call_id.ok_or_else(|| missing("call_id"))?);
                let call =
                    Data::object([("id", id), ("type", Data::text("function")), ("function", function)]);
                add_call(messages, call);
            }
            "function_call_output" => {
                let mut message = Message::new("tool", self.output.text(&format!("{place}.output"))?);
                let id = self.call_id.ok_or_else(|| missing("call_id"))?;
                message.more.push(("tool_call_id".into(), Data::Text(id)));
                messages.push(message);
            }
            // Templates leave the reasoning of earlier answers out.
            "reasoning" => {}
            kind => {
                let problem = format!(
                    "{kind:?} is not supported, only message, function_call, function_call_output and reasoning"
                );
                return Err(ApiError::unsupported(format!("{place}.type"), problem));
            }
        }
        Ok(())
    }
}

/// Adds a call to the assistant's last message, which is where templates look for it.
fn add_call(messages: &mut Vec<Message>, call: Data) {
    if messages.last().is_none_or(|last| last.role != "assistant") {
        messages.push(Message::new("assistant", ""));
    }
    let Some(last) = messages.last_mut() else { return };
    match last.more.iter_mut().find(|(name, _)| name == "tool_calls") {
        Some((_, Data::List(calls))) => calls.push(call),
        _ => last.more.push(("tool_calls".into(), Data::List(vec![call]))),
    }
}
