//! The message that answers a conversation, part by part.

use serde_json::{Value as Json, json};

use super::parts::{Part, Parts, Rules};
use super::tools::{Call, call_id};
use crate::worker::TokenInfo;

/// A choice so far.
pub struct Reply {
    /// Tells its parts apart.
    pub parts: Parts,
    reasoning: String,
    content: String,
    /// Calls as OpenAI writes them.
    pub calls: Vec<Json>,
    /// Of all tokens.
    pub logprobs: Vec<TokenInfo>,
    /// Of those that no event has told of.
    pub untold: Vec<TokenInfo>,
    /// Why it ended.
    pub finish: Option<&'static str>,
}

impl Reply {
    /// One that has not begun.
    pub fn new(rules: Rules) -> Self {
        Self {
            parts: Parts::new(rules),
            reasoning: String::new(),
            content: String::new(),
            calls: Vec::new(),
            logprobs: Vec::new(),
            untold: Vec::new(),
            finish: None,
        }
    }

    /// Adds a part of a choice of an answer; how a stream tells of it.
    pub fn add(&mut self, part: Part, answer: &str, choice: usize) -> Vec<Json> {
        match part {
            Part::Reasoning(text) => {
                self.reasoning.push_str(&text);
                vec![json!({ "reasoning": text })]
            }
            Part::Content(text) => {
                self.content.push_str(&text);
                vec![json!({ "content": text })]
            }
            Part::Call(Call { name, arguments }) => {
                let index = self.calls.len();
                let id = call_id(answer, choice, index);
                let call = |arguments: &str| {
                    let function = json!({ "name": name, "arguments": arguments });
                    json!({ "id": id, "type": "function", "function": function })
                };
                self.calls.push(call(&arguments));
                let mut head = call("");
                head["index"] = index.into();
                let rest = json!({ "index": index, "function": { "arguments": arguments } });
                vec![json!({ "tool_calls": [head] }), json!({ "tool_calls": [rest] })]
            }
        }
    }

    /// The whole message.
    pub fn message(&self) -> Json {
        let mut message = json!({ "role": "assistant", "content": self.content, "refusal": null });
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.clone().into();
            if self.content.is_empty() {
                message["content"] = Json::Null;
            }
        }
        if !self.reasoning.is_empty() {
            message["reasoning"] = self.reasoning.clone().into();
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::CALL_ID_LEN;
    use super::*;

    /// Report 5.09 (llama.cpp PR #13800, #22722).
    #[test]
    fn a_call_is_named_once_and_its_arguments_follow() {
        let mut reply = Reply::new(Rules::default());
        let call = |name: &str| Part::Call(Call { name: name.into(), arguments: r#"{"a":1}"#.into() });
        let deltas: Vec<Json> =
            [call("f"), call("g")].into_iter().flat_map(|part| reply.add(part, "chatcmpl-1", 0)).collect();
        assert_eq!(deltas.len(), 4);
        for (index, (pair, name)) in deltas.chunks(2).zip(["f", "g"]).enumerate() {
            let (head, rest) = (&pair[0]["tool_calls"][0], &pair[1]["tool_calls"][0]);
            assert_eq!(head["id"].as_str().map(str::len), Some(CALL_ID_LEN));
            assert_eq!((&head["index"], &head["type"]), (&index.into(), &"function".into()));
            assert_eq!(head["function"], json!({ "name": name, "arguments": "" }));
            assert_eq!(*rest, json!({ "index": index, "function": { "arguments": r#"{"a":1}"# } }));
        }
        let message = reply.message();
        assert!(message["content"].is_null());
        assert_eq!(message["tool_calls"][1]["function"], json!({ "name": "g", "arguments": r#"{"a":1}"# }));
        assert_ne!(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
    }
}
