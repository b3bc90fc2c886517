//! Messages of a conversation, as clients send them, and as the chat template takes them.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use unisonic_engine::chat::Message;

use crate::error::ApiError;

/// A message.
#[derive(Debug, Deserialize)]
pub struct MessageJson {
    role: String,
    #[serde(default)]
    content: Content,
    tool_calls: Option<Json>,
}

/// A text, or parts of one; null and nothing are an empty one.
#[derive(Debug, Default, PartialEq)]
enum Content {
    #[default]
    None,
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, PartialEq)]
struct Part {
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
    fn text(self, name: &str) -> Result<String, ApiError> {
        match self {
            Self::None => Ok(String::new()),
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => {
                let mut whole = String::new();
                for (index, part) in parts.into_iter().enumerate() {
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
pub fn messages(messages: Vec<MessageJson>) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "it is empty: there is nothing to answer; give one message"));
    }
    let message = |(index, message): (usize, MessageJson)| {
        let MessageJson { role, content, tool_calls } = message;
        if tool_calls.is_some_and(|calls| !calls.is_null()) {
            return Err(ApiError::unsupported(
                format!("messages[{index}].tool_calls"),
                "tools are not supported",
            ));
        }
        // The newer name of the same thing, which templates do not know.
        let role = if role == "developer" { "system".to_owned() } else { role };
        Ok(Message::new(role, content.text(&format!("messages[{index}].content"))?))
    };
    messages.into_iter().enumerate().map(message).collect()
}
