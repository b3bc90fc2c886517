//! What requests of all kinds may ask for: how tokens are chosen, how many answers, and where they end.
//!
//! The names are OpenAI's, and `unisonic batch`'s where OpenAI has none.

use serde::Deserialize;
use unisonic_engine::chat::Data;
use unisonic_engine::constraint::{ConstrainedSampler, Constraint, ConstraintKind, Grammar};
use unisonic_engine::sampling::{Sampler, SamplerOptions, Window};
use unisonic_engine::{GreedyTokens, Sample};

use super::values::{Biases, Seed, Texts};
use crate::body::Object;
use crate::error::ApiError;
use crate::model::Model;
use crate::options::Options;
use crate::worker::Choice;

/// Most stop strings of a request, and their length.
const STOPS_MAX: usize = 64;
const STOP_LEN_MAX_BYTES: usize = 1024;
/// The field that says what an answer has to be.
const RESPONSE_FORMAT: &str = "response_format";

/// Fields of a request that say how its answer comes about.
#[derive(Debug, Default, Deserialize)]
pub struct Params {
    stream: Option<bool>,
    stream_options: Option<Object<StreamOptions>>,
    n: Option<u32>,
    #[serde(default)]
    stop: Texts,
    seed: Option<Seed>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    typical: Option<f64>,
    /// Another name of it; clients of several servers send both.
    typical_p: Option<f64>,
    top_n_sigma: Option<f64>,
    repeat_penalty: Option<f64>,
    /// Another name of it.
    repetition_penalty: Option<f64>,
    repeat_last_n: Option<i64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    #[serde(default)]
    logit_bias: Biases,
    max_tokens: Option<u32>,
    /// The newer name of it, and that of responses.
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    cache_salt: Option<String>,
    response_format: Option<Object<ResponseFormat>>,
    /// There is one model, whatever it is called.
    #[serde(rename = "model")]
    _model: Option<String>,
    /// The field that the format comes from, if not `response_format`.
    #[serde(skip)]
    format_param: Option<&'static str>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// What the answer has to be: text, any JSON, or JSON of a schema.
#[derive(Debug, Deserialize)]
pub struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Object<JsonSchema>>,
    /// The place for it in responses, and at llama.cpp.
    schema: Option<Data>,
}

#[derive(Debug, Deserialize)]
struct JsonSchema {
    schema: Option<Data>,
}

impl ResponseFormat {
    /// `param` is the field that it comes from.
    fn constraint(self, param: &str) -> Result<Option<Constraint>, ApiError> {
        let schema = self.json_schema.and_then(|Object(of)| of.schema).or(self.schema);
        match (self.kind.as_str(), schema) {
            ("text", _) => Ok(None),
            ("json_object", None) => Ok(Some(Constraint::json_object())),
            ("json_object" | "json_schema", Some(schema)) => {
                Ok(Some(Constraint::new(ConstraintKind::JsonSchema, schema.to_string())))
            }
            ("json_schema", None) => {
                let of = if param == RESPONSE_FORMAT { ".json_schema" } else { "" };
                Err(ApiError::field(format!("{param}{of}.schema"), "it is missing"))
            }
            (kind, _) => {
                let problem = format!("{kind:?} is not supported, only text, json_object and json_schema");
                Err(ApiError::unsupported(format!("{param}.type"), problem))
            }
        }
    }
}

/// Fields that were checked for a model.
pub struct Checked {
    /// Choices for each prompt; at least 1.
    pub n: u32,
    /// Whether the answer comes in pieces.
    pub stream: bool,
    /// Whether a stream ends with what was used.
    pub include_usage: bool,
    /// The seed of choice 0; choice `i` has the one `i` later.
    pub seed: u64,
    /// Most tokens, if the request says.
    pub max_tokens: Option<u32>,
    sampler: SamplerOptions,
    stops: Vec<String>,
    salt: Vec<u8>,
    /// What the answer has to be.
    format: Option<Constraint>,
    /// The field that says so.
    format_param: &'static str,
    /// What the answer follows: compiled once for all choices.
    grammar: Option<Grammar>,
}

impl Params {
    /// With a format that the request has in another field.
    pub fn with_format(self, param: &'static str, format: Option<Object<ResponseFormat>>) -> Self {
        match format {
            Some(format) => Self { response_format: Some(format), format_param: Some(param), ..self },
            None => self,
        }
    }

    /// Checks everything, in the place of the defaults.
    pub fn check(self, options: &Options, model: &Model) -> Result<Checked, ApiError> {
        let stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !stream {
            return Err(ApiError::field("stream_options", "it is for streams only; set `stream` to true"));
        }
        let n = self.n.unwrap_or(1);
        check_places("n", n as usize, options)?;
        let stops = self.stops()?;
        let seed = match self.seed {
            Some(Seed(seed)) => seed,
            // 32 bits: JavaScript's numbers hold them too.
            None => getrandom::u32().map_err(|error| ApiError::internal(error.to_string()))?.into(),
        };
        let sampler = self.sampler(&options.sampler)?;
        sampler.check(model.vocab_len)?;
        let format_param = self.format_param.unwrap_or(RESPONSE_FORMAT);
        let format =
            self.response_format.map(|Object(of)| of.constraint(format_param)).transpose()?.flatten();
        Ok(Checked {
            n,
            stream,
            include_usage: self.stream_options.and_then(|of| of.include_usage).unwrap_or(false),
            seed,
            max_tokens: self.max_output_tokens.or(self.max_completion_tokens).or(self.max_tokens),
            sampler,
            stops,
            salt: self.cache_salt.unwrap_or_default().into_bytes(),
            format,
            format_param,
            grammar: None,
        })
    }

    fn stops(&self) -> Result<Vec<String>, ApiError> {
        let Texts(stops) = &self.stop;
        if stops.len() > STOPS_MAX {
            return Err(ApiError::field(
                "stop",
                format!("it has {} strings, but {STOPS_MAX} are the most", stops.len()),
            ));
        }
        if let Some(index) = stops.iter().position(|stop| stop.len() > STOP_LEN_MAX_BYTES) {
            let problem = format!("it has more than {STOP_LEN_MAX_BYTES} bytes, which are the most");
            return Err(ApiError::field(format!("stop[{index}]"), problem));
        }
        Ok(stops.clone())
    }

    fn sampler(&self, default: &SamplerOptions) -> Result<SamplerOptions, ApiError> {
        let repeat_window = match self.repeat_last_n {
            None => default.repeat_window,
            Some(-1) => Window::All,
            Some(n) => Window::Last(u32::try_from(n).map_err(|_| {
                ApiError::field("repeat_last_n", format!("it is {n}, but must be -1 (all) to {}", u32::MAX))
            })?),
        };
        let top_k = match self.top_k {
            None => default.top_k,
            Some(k) if k <= 0 => None,
            Some(k) => Some(u32::try_from(k).unwrap_or(u32::MAX)),
        };
        let mut logit_bias = default.logit_bias.clone();
        logit_bias.retain(|(token, _)| !self.logit_bias.0.iter().any(|(other, _)| other == token));
        logit_bias.extend(&self.logit_bias.0);
        Ok(SamplerOptions {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k,
            // 1 and 0 are how clients say that they want none.
            top_p: self.top_p.or(default.top_p).filter(|&p| p != 1.0),
            min_p: self.min_p.or(default.min_p).filter(|&p| p != 0.0),
            typical: self.typical.or(self.typical_p).or(default.typical).filter(|&p| p != 1.0),
            top_n_sigma: self.top_n_sigma.or(default.top_n_sigma),
            repeat_penalty: self.repeat_penalty.or(self.repetition_penalty).unwrap_or(default.repeat_penalty),
            repeat_window,
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            logit_bias,
            seed: default.seed,
        })
    }
}

impl Checked {
    /// How tokens are chosen, but for the seed.
    pub fn sampler(&self) -> &SamplerOptions {
        &self.sampler
    }

    /// What the answer has to be, if the request says.
    pub fn format(&self) -> Option<&Constraint> {
        self.format.as_ref()
    }

    /// The field that says it.
    pub fn format_param(&self) -> &'static str {
        self.format_param
    }

    /// Makes the answer follow what it has to be.
    pub fn follow_format(&mut self, model: &Model) -> Result<(), ApiError> {
        let Some(format) = self.format.take() else { return Ok(()) };
        self.follow(model, self.format_param, &format)
    }

    /// Makes the answer follow something, which comes from a field.
    pub fn follow(&mut self, model: &Model, param: &str, constraint: &Constraint) -> Result<(), ApiError> {
        let grammar = model.grammars().and_then(|grammars| grammars.compile(constraint));
        self.grammar = Some(grammar.map_err(|error| ApiError::field(param, error))?);
        Ok(())
    }

    /// A choice of the answer to a prompt: `i` of `n`.
    pub fn choice(
        &self,
        model: &Model,
        i: u32,
        prompt: Vec<u32>,
        max_tokens: Option<u32>,
        logprobs: Option<u32>,
    ) -> Result<Choice, ApiError> {
        let seed = self.seed.wrapping_add(i.into());
        let sampler = Sampler::new(&SamplerOptions { seed, ..self.sampler.clone() }, model.vocab_len)?;
        let sampler: Box<dyn Sample> = match &self.grammar {
            Some(grammar) => Box::new(ConstrainedSampler::new(sampler, grammar.fork(), prompt.len())),
            // Nobody looks at logits.
            None if sampler.is_greedy() && logprobs.is_none() => Box::new(GreedyTokens),
            None => Box::new(sampler),
        };
        let (stops, salt, shown) = (self.stops.clone(), self.salt.clone(), Vec::new());
        Ok(Choice { prompt, max_tokens, sampler, stops, logprobs, salt, shown })
    }
}

/// Refuses more choices than the server has places for, before any of them takes memory.
pub fn check_places(param: &str, choices: usize, options: &Options) -> Result<(), ApiError> {
    let places = options.places();
    if choices == 0 || choices > places {
        let problem = format!(
            "the request asks for {choices} choices, but must ask for 1 to {places}, which is how many places the \
                               server has (--parallel and --queue)"
        );
        return Err(ApiError::field(param, problem));
    }
    Ok(())
}

/// Refuses a prompt that leaves no room for an answer, or has none.
pub fn check_prompt(param: &str, prompt: &[u32], model: &Model) -> Result<(), ApiError> {
    if prompt.is_empty() {
        return Err(ApiError::field(param, "there is no token to go on from; give some text"));
    }
    if prompt.len() >= model.context_len as usize {
        return Err(ApiError::context(param, prompt.len(), model.context_len));
    }
    if let Some(id) = prompt.iter().find(|&&id| id >= model.vocab_len) {
        let problem = format!("token {id}, but the model's tokens are 0 to {}", model.vocab_len - 1);
        return Err(ApiError::field(param, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Params {
        crate::body::parse(json.as_bytes()).expect("params")
    }

    #[test]
    fn what_a_request_says_comes_before_the_defaults() {
        let default = SamplerOptions { temperature: 0.5, top_k: Some(7), ..SamplerOptions::default() };
        let sampler = |json| params(json).sampler(&default).expect("options");
        assert_eq!(sampler("{}"), default);
        assert_eq!(sampler(r#"{"temperature": null, "top_k": null}"#), default);
        let changed =
            sampler(r#"{"temperature": 0, "top_k": -1, "top_p": 1, "min_p": 0, "repeat_last_n": -1}"#);
        let right = SamplerOptions { repeat_window: Window::All, ..SamplerOptions::default() };
        assert_eq!(changed, right);
    }

    /// Report 6.14 (llama.cpp #19699).
    #[test]
    fn a_bias_of_minus_100_is_never() {
        let biases = params(r#"{"logit_bias": {"1": -100, "2": false, "3": "-inf", "4": 100, "5": -99.5}}"#);
        let never = f64::NEG_INFINITY;
        assert_eq!(biases.logit_bias.0, [(1, never), (2, never), (3, never), (4, 100.0), (5, -99.5)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, param) in [
            (r#"{"stop": 5}"#, "stop"),
            (r#"{"stop": ["a", 5]}"#, "stop[1]"),
            (r#"{"seed": 1.5}"#, "seed"),
            (r#"{"seed": "a"}"#, "seed"),
            (r#"{"n": -1}"#, "n"),
            (r#"{"max_tokens": "many"}"#, "max_tokens"),
            (r#"{"logit_bias": {"x": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": {"1": "x"}}"#, "logit_bias"),
            (r#"{"logit_bias": [1]}"#, "logit_bias"),
            (r#"{"stream": "yes"}"#, "stream"),
            (r#"{"stream_options": {"include_usage": 1}}"#, "stream_options.include_usage"),
            (r#"{"stream_options": [true]}"#, "stream_options"),
            (r#"{"response_format": {"type": 1}}"#, "response_format.type"),
            (r#"{"response_format": {}}"#, "response_format.type"),
            (r#"{"response_format": ["text"]}"#, "response_format"),
            (r#"{"model": 5}"#, "model"),
        ] {
            let error = crate::body::parse::<Params>(json.as_bytes()).expect_err(json);
            let named = error.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
            assert!(named == param || named.starts_with(&format!("{param}.")), "{json}: {error}");
        }
        assert_eq!(params(r#"{"seed": -1}"#).seed, Some(Seed(u64::MAX)));
        assert_eq!(params(r#"{"stop": null}"#).stop, Texts(vec![]));
    }
}
