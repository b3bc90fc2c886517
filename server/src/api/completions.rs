//! `/v1/completions`: goes on with prompts as they are.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json, json};
use unisonic_engine::tokenizer::Specials;

use super::MAX_LOGPROBS;
use super::answer::{Event, Format, Usage};
use super::head::Head;
use super::params::{Params, check_places, check_prompt};
use super::task::{self, Task};
use crate::app::App;
use crate::body;
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::{End, Piece, TokenInfo};

/// OpenAI's default.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// The fields that only completions have.
#[derive(Debug, Deserialize)]
pub struct Request {
    prompt: Prompts,
    logprobs: Option<u32>,
    echo: Option<bool>,
    suffix: Option<String>,
    best_of: Option<u32>,
}

/// Goes on with prompts.
pub async fn handle(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    task::handle(app, body, "cmpl", read).await
}

/// Reads a request.
pub(super) fn read(
    options: &Options,
    model: &Model,
    id: String,
    bytes: &[u8],
) -> Result<Task<Completions>, ApiError> {
    let request: Request = body::parse(bytes)?;
    let mut params = body::parse::<Params>(bytes)?.check(options, model)?;
    request.check(params.n)?;
    let prompts = request.prompt.named();
    check_places("prompt", prompts.len().saturating_mul(params.n as usize), options)?;
    params.follow_format(model)?;
    let max_tokens = Some(params.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
    let mut choices = Vec::new();
    let mut prompt_tokens = 0;
    for (name, prompt) in prompts {
        let ids = prompt.ids(&name, model)?;
        check_prompt(&name, &ids, model)?;
        prompt_tokens += ids.len();
        for i in 0..params.n {
            choices.push(params.choice(model, i, ids.clone(), max_tokens, request.logprobs)?);
        }
    }
    let format = Completions {
        head: Head::new(id, model, params.seed),
        include_usage: params.include_usage,
        has_logprobs: request.logprobs.is_some(),
        choices: choices.iter().map(|_| Text::default()).collect(),
    };
    Ok(Task { choices, format, prompt_tokens, streams: params.stream })
}

impl Request {
    fn check(&self, n: u32) -> Result<(), ApiError> {
        if self.logprobs.is_some_and(|top| top > MAX_LOGPROBS) {
            let problem = format!("it is {}, but must be 0 to {MAX_LOGPROBS}", self.logprobs.unwrap_or(0));
            return Err(ApiError::field("logprobs", problem));
        }
        if self.echo == Some(true) {
            return Err(ApiError::unsupported("echo", "prompts are not repeated; leave it out"));
        }
        if self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
            return Err(ApiError::unsupported("suffix", "texts are not filled in; leave it out"));
        }
        if self.best_of.is_some_and(|best_of| best_of != n) {
            return Err(ApiError::unsupported("best_of", "it must be equal to `n`; leave it out"));
        }
        Ok(())
    }
}

/// One prompt or several.
#[derive(Debug, PartialEq)]
enum Prompts {
    One(Prompt),
    Many(Vec<Prompt>),
}

#[derive(Clone, Debug, PartialEq)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

impl Prompts {
    /// Each with the name of its place in the request.
    fn named(&self) -> Vec<(String, &Prompt)> {
        match self {
            Self::One(prompt) => vec![("prompt".into(), prompt)],
            Self::Many(prompts) => (0..)
                .zip(prompts)
                .map(|(index, prompt): (u32, _)| (format!("prompt[{index}]"), prompt))
                .collect(),
        }
    }
}

impl Prompt {
    fn ids(&self, name: &str, model: &Model) -> Result<Vec<u32>, ApiError> {
        match self {
            Self::Ids(ids) => Ok(ids.clone()),
            // As `unisonic run` takes a prompt: what stands there is what the model sees.
            Self::Text(text) => {
                let ids = model.tokenizer.encode_prompt(text, Specials::Parse);
                ids.map_err(|error| ApiError::field(name, error))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Prompts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a list of token ids, or a list of these")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
                Ok(Prompts::One(Prompt::Text(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prompts, A::Error> {
                let mut ids = Vec::new();
                let mut prompts = Vec::new();
                while let Some(element) = seq.next_element()? {
                    match element {
                        Element::Id(id) => ids.push(id),
                        Element::Prompt(prompt) => prompts.push(prompt),
                    }
                    if !ids.is_empty() && !prompts.is_empty() {
                        return Err(A::Error::custom("expected either token ids or prompts, but found both"));
                    }
                }
                match (ids.is_empty(), prompts.is_empty()) {
                    (false, _) => Ok(Prompts::One(Prompt::Ids(ids))),
                    (true, false) => Ok(Prompts::Many(prompts)),
                    (true, true) => Err(A::Error::custom("expected at least one token id or prompt")),
                }
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

/// An element of a list of token ids or of prompts.
enum Element {
    Id(u32),
    Prompt(Prompt),
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdOrPrompt;

        impl<'de> Visitor<'de> for IdOrPrompt {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id, a text or a list of token ids")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<Element, E> {
                let wrong = || E::custom(format_args!("{id} is no token id"));
                u32::try_from(id).map(Element::Id).map_err(|_| wrong())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
                Ok(Element::Prompt(Prompt::Text(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Element, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = seq.next_element()? {
                    ids.push(id);
                }
                Ok(Element::Prompt(Prompt::Ids(ids)))
            }
        }

        deserializer.deserialize_any(IdOrPrompt)
    }
}

/// What the answers look like.
pub(super) struct Completions {
    head: Head,
    include_usage: bool,
    has_logprobs: bool,
    choices: Vec<Text>,
}

/// A choice so far.
#[derive(Default)]
struct Text {
    text: String,
    logprobs: Vec<TokenInfo>,
    finish: Option<&'static str>,
}

impl Completions {
    fn chunk(&self, choice: Json) -> Vec<Event> {
        let mut chunk = self.head.json("text_completion", json!([choice]));
        if self.include_usage {
            chunk["usage"] = Json::Null;
        }
        vec![chunk.into()]
    }

    fn logprobs(&self, infos: &[TokenInfo]) -> Json {
        if self.has_logprobs { logprobs_json(infos) } else { Json::Null }
    }
}

impl Format for Completions {
    fn start(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Vec<Event> {
        let logprobs = self.logprobs(&piece.logprobs);
        let choice =
            json!({ "index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": null });
        if let Some(choice) = self.choices.get_mut(index) {
            choice.text.push_str(&piece.text);
            choice.logprobs.extend(piece.logprobs);
        }
        self.chunk(choice)
    }

    fn end(&mut self, index: usize, end: End) -> Vec<Event> {
        let finish = end.finish.as_str();
        if let Some(choice) = self.choices.get_mut(index) {
            choice.finish = Some(finish);
        }
        self.chunk(json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish }))
    }

    fn finish(&mut self, usage: Usage) -> Vec<Event> {
        if !self.include_usage {
            return Vec::new();
        }
        let mut chunk = self.head.json("text_completion", json!([]));
        chunk["usage"] = usage.json();
        vec![chunk.into()]
    }

    fn whole(self, usage: Usage) -> Json {
        let choice = |(index, of): (usize, &Text)| {
            let logprobs = self.logprobs(&of.logprobs);
            json!({ "index": index, "text": of.text, "logprobs": logprobs, "finish_reason": of.finish })
        };
        let choices = self.choices.iter().enumerate().map(choice).collect();
        let mut whole = self.head.json("text_completion", choices);
        whole["usage"] = usage.json();
        whole
    }
}

/// Four lists, an element a token.
fn logprobs_json(infos: &[TokenInfo]) -> Json {
    let top = |info: &TokenInfo| {
        let all = info.top.iter().chain([&info.chosen]);
        let named: Map<String, Json> = all.map(|of| (of.name(), json!(of.logprob))).collect();
        Json::Object(named)
    };
    json!({
        "tokens": infos.iter().map(|info| info.chosen.name()).collect::<Vec<_>>(),
        "token_logprobs": infos.iter().map(|info| info.chosen.logprob).collect::<Vec<_>>(),
        "top_logprobs": infos.iter().map(top).collect::<Vec<_>>(),
        "text_offset": infos.iter().map(|info| info.offset_chars).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_come_in_four_shapes() {
        let prompts = |json: &str| {
            let request: Result<Request, _> = body::parse(format!(r#"{{"prompt": {json}}}"#).as_bytes());
            request.map(|request| request.prompt)
        };
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(prompts(r#""a""#).unwrap(), Prompts::One(text("a")));
        assert_eq!(prompts("[1, 2]").unwrap(), Prompts::One(Prompt::Ids(vec![1, 2])));
        assert_eq!(prompts(r#"["a", "b"]"#).unwrap(), Prompts::Many(vec![text("a"), text("b")]));
        let many = Prompts::Many(vec![Prompt::Ids(vec![1]), text("b")]);
        assert_eq!(prompts(r#"[[1], "b"]"#).unwrap(), many);
        for wrong in ["5", "null", "{}", "[]", r#"[1, "a"]"#, "[-1]", "[1.5]", "[[\"a\"]]", "[4294967296]"] {
            let error = prompts(wrong).unwrap_err();
            let param = error.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
            assert!(param.starts_with("prompt"), "{wrong}: {error}");
        }
    }
}
