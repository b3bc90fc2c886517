//! Answers that have to be JSON, and calls of tools.

use serde_json::{Value as Json, json};
use unisonic_server::Options;

use crate::common::{Server, chat, put_together, with, with_words};

const PATH: &str = "/v1/chat/completions";

fn schema(properties: Json) -> Json {
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let schema = json!({
        "type": "object", "properties": properties, "required": names, "additionalProperties": false,
    });
    json!({ "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } })
}

fn weather() -> Json {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    json!({ "type": "function", "function": { "name": "weather", "parameters": parameters } })
}

#[tokio::test]
async fn an_answer_follows_its_schema() {
    let server = Server::new().await;
    let format = schema(json!({ "colour": { "enum": ["red", "blue"] } }));
    let mut body = chat("Which?", json!({ "response_format": format, "seed": 3, "n": 2, "max_tokens": 200 }));
    let whole = server.json(PATH, &body).await;
    for choice in whole["choices"].as_array().unwrap() {
        assert_eq!(choice["finish_reason"], "stop");
        let answer: Json = serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap();
        assert!(["red", "blue"].contains(&answer["colour"].as_str().unwrap()), "{answer}");
    }
    body["stream"] = true.into();
    let streamed = put_together(&server.post(PATH, &body).await.chunks(), "chat.completion");
    let content = |answer: &Json| answer["choices"][1]["message"]["content"].clone();
    assert_eq!(content(&streamed), content(&whole));
}

/// Report 5.21 (llama.cpp #19051).
#[tokio::test]
async fn what_no_grammar_can_hold_is_refused() {
    let server = Server::new().await;
    for wrong in
        [json!({ "a": { "$ref": "#/nowhere" } }), json!({ "a": { "type": "string", "pattern": "(" } })]
    {
        let body = chat("a", json!({ "response_format": schema(wrong) }));
        server.refused(PATH, &body, "response_format").await;
    }
}

#[tokio::test]
async fn a_call_comes_as_a_call() {
    let server = Server::start(Options::default(), with_words("<|python_tag|>")).await;
    let format = schema(json!({
        "name": { "enum": ["weather"] },
        "parameters": schema(json!({ "city": { "enum": ["Paris"] } }))["json_schema"]["schema"],
    }));
    let more = json!({ "tools": [weather()], "response_format": format, "seed": 1, "max_tokens": 220 });
    let mut body = chat("Sun?", more);
    let whole = server.json(PATH, &body).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{whole}");
    assert!(choice["message"]["content"].is_null());
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(*function, json!({ "name": "weather", "arguments": r#"{"city":"Paris"}"# }));
    body["stream"] = true.into();
    let chunks = server.post(PATH, &body).await.chunks();
    let calls: Vec<&Json> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls"))
        .map(|calls| &calls[0]["function"])
        .collect();
    let right =
        [json!({ "name": "weather", "arguments": "" }), json!({ "arguments": r#"{"city":"Paris"}"# })];
    assert_eq!(calls, right.iter().collect::<Vec<_>>());
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    body["tool_choice"] = "none".into();
    body["stream"] = false.into();
    let answer = server.json(PATH, &body).await;
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("weather"));
}

#[tokio::test]
async fn a_template_without_words_for_tools_is_told_of_them() {
    let server = Server::new().await;
    let tokens = async |more: Json| {
        let body = chat("hi", with(json!({ "max_tokens": 1 }), more));
        server.json(PATH, &body).await["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let without = tokens(json!({})).await;
    let short = json!({ "type": "function", "function": { "name": "f" } });
    let answer = server.post(PATH, &chat("hi", json!({ "tools": [short] }))).await;
    // The text that tells of them is longer than the context of this server.
    assert!(answer.status == 200 || answer.text.contains("context_length_exceeded"), "{}", answer.text);
    assert_eq!(tokens(json!({ "tools": [short], "tool_choice": "none" })).await, without);
    assert_eq!(tokens(json!({ "tools": [] })).await, without);
}

#[tokio::test]
async fn tools_that_are_wrong_are_named() {
    let server = Server::new().await;
    for (more, param) in [
        (json!({ "tools": "weather" }), "tools"),
        (json!({ "tools": [{ "type": "retrieval" }] }), "tools[0].type"),
        (json!({ "tools": [weather(), { "type": "function", "function": {} }] }), "tools[1].function.name"),
        (json!({ "tools": [weather()], "tool_choice": "required" }), "tool_choice"),
        (json!({ "functions": [{}] }), "functions"),
    ] {
        server.refused(PATH, &chat("a", more), param).await;
    }
}
