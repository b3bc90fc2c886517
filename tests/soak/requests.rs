//! Requests of all lengths and kinds.

use serde_json::{Value as Json, json};

/// A request, and the answer that it gives alone.
pub struct Request {
    pub path: &'static str,
    pub body: Json,
    pub right: Vec<Json>,
}

impl Request {
    /// What an answer says, choice by choice and event by event, without what is new each time.
    pub fn normal(&self, body: &str) -> Vec<Json> {
        let read = |text: &str| {
            let mut json: Json = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            for name in ["id", "created"] {
                json.as_object_mut().unwrap().remove(name);
            }
            json
        };
        if self.body["stream"] != true {
            return vec![read(body)];
        }
        let events = body.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {body}"));
        let events = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        let mut events: Vec<Json> = events.map(read).collect();
        // Whose token comes first is up to the steps; usage is of no choice, and last.
        events.sort_by_key(|event| event["choices"][0]["index"].as_u64().unwrap_or(u64::MAX));
        events
    }
}

/// Random numbers (xorshift).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

const WORDS: [&str; 12] =
    ["the", "fox", "of", "a", "river", "counts", "seven", "stones", "and", "sleeps", "under", "trees"];

/// So many requests; many begin with the same words.
pub fn requests(seed: u64, count: usize) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    (0..count).map(|index| request(index, &mut rng)).collect()
}

fn request(index: usize, rng: &mut Rng) -> Request {
    let len = [0, 3, 10, 30, 60][rng.below(5)];
    let mut text = ["Once upon a time", "Tell me about", "Dear"][rng.below(3)].to_owned();
    for _ in 0..len {
        text.push(' ');
        text.push_str(WORDS[rng.below(WORDS.len())]);
    }
    let max_tokens = [1, 4, 12, 24, 24, 48, 96][rng.below(7)];
    let temperature = [0.0, 0.0, 0.7, 1.2][rng.below(4)];
    let mut body = json!({
        "seed": index, "max_tokens": max_tokens, "temperature": temperature, "stream": rng.one_in(2),
    });
    let chat = rng.one_in(2);
    if chat {
        body["messages"] = json!([{ "role": "user", "content": text }]);
    } else {
        body["prompt"] = text.into();
    }
    if rng.one_in(4) {
        body["stop"] = json!(["e", " the"]);
    }
    if rng.one_in(6) {
        body["n"] = 2.into();
    }
    if rng.one_in(4) {
        body["logprobs"] = if chat { true.into() } else { 2.into() };
    }
    if rng.one_in(5) {
        body["repeat_penalty"] = 1.3.into();
    }
    if rng.one_in(6) {
        let properties =
            json!({ "city": { "enum": ["Paris", "Rome", "Oslo"] }, "open": { "type": "boolean" } });
        let schema = json!({ "type": "object", "properties": properties, "required": ["city", "open"], "additionalProperties": false });
        body["response_format"] =
            json!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema } });
    }
    if body["stream"] == true {
        body["stream_options"] = json!({ "include_usage": true });
    }
    Request { path: if chat { "/v1/chat/completions" } else { "/v1/completions" }, body, right: Vec::new() }
}
