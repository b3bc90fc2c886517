//! Messages of a conversation, as clients send them, and as the chat template takes them.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use unisonic_engine::chat::{Data, Message};

use crate::body::Object;
use crate::error::ApiError;

/// A message.
#[derive(Debug, Deserialize)]
pub struct MessageJson {
    role: String,
    #[serde(default)]
    content: Content,
    tool_calls: Option<Vec<Object<CallJson>>>,
    tool_call_id: Option<String>,
    name: Option<String>,
    reasoning: Option<String>,
    /// Another name of it; some clients send back both.
    reasoning_content: Option<String>,
}

/// A call of an earlier answer.
#[derive(Debug, Deserialize)]
struct CallJson {
    id: Option<String>,
    function: Object<FunctionJson>,
}

#[derive(Debug, Deserialize)]
struct FunctionJson {
    name: String,
    arguments: Option<Data>,
}

impl CallJson {
    /// For templates, which write arguments as JSON themselves.
    fn data(self) -> Data {
        let Object(FunctionJson { name, arguments }) = self.function;
        let arguments = match arguments {
            Some(Data::Text(text)) => serde_json::from_str(&text).unwrap_or(Data::Text(text)),
            Some(arguments) => arguments,
            None => Data::Object(Vec::new()),
        };
        let function = Data::object([("name", Data::Text(name)), ("arguments", arguments)]);
        let id = Data::Text(self.id.unwrap_or_default());
        Data::object([("id", id), ("type", Data::text("function")), ("function", function)])
    }
}

/// A text, or parts of one; null and nothing are an empty one.
#[derive(Debug, Default, PartialEq)]
pub enum Content {
    /// Neither.
    #[default]
    None,
    /// A text.
    Text(String),
    /// Parts of one.
    Parts(Vec<Object<Part>>),
}

/// A part of a content.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;

        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of parts, or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Content, E> {
                Ok(Content::None)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }

        deserializer.deserialize_any(TextOrParts)
    }
}

impl Content {
    /// The text, parts put together as they are; `name` is the content's place in the request.
    pub fn text(self, name: &str) -> Result<String, ApiError> {
        match self {
            Self::None => Ok(String::new()),
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => {
                let mut whole = String::new();
                for (index, Object(part)) in parts.into_iter().enumerate() {
                    if !["text", "input_text", "output_text"].contains(&part.kind.as_str()) {
                        let problem =
                            format!("parts of type {:?} are not supported, only \"text\"", part.kind);
                        return Err(ApiError::unsupported(format!("{name}[{index}].type"), problem));
                    }
                    let missing = || ApiError::field(format!("{name}[{index}].text"), "it is missing");
                    whole.push_str(&part.text.ok_or_else(missing)?);
                }
                Ok(whole)
            }
        }
    }
}

/// The messages for the template; at least one.
pub fn messages(messages: Vec<Object<MessageJson>>) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "it is empty: there is nothing to answer; give one message"));
    }
    let message = |(index, Object(message)): (usize, Object<MessageJson>)| {
        let MessageJson { role, content, tool_calls, tool_call_id, name, reasoning, reasoning_content } =
            message;
        let reasoning = reasoning.or(reasoning_content);
        // The newer name of the same thing, which templates do not know.
        let role = if role == "developer" { "system".to_owned() } else { role };
        let mut message = Message::new(role, content.text(&format!("messages[{index}].content"))?);
        let calls = tool_calls.unwrap_or_default();
        if !calls.is_empty() {
            let calls = calls.into_iter().map(|Object(call)| call.data()).collect();
            message.more.push(("tool_calls".into(), Data::List(calls)));
        }
        for (name, text) in [("tool_call_id", tool_call_id), ("name", name), ("reasoning_content", reasoning)]
        {
            message.more.extend(text.map(|text| (name.to_owned(), Data::Text(text))));
        }
        Ok(message)
    };
    messages.into_iter().enumerate().map(message).collect()
}
