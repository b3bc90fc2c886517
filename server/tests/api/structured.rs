//! Answers that have to be JSON, and calls of tools.

use serde_json::{Value as Json, json};
use unisonic_server::Options;

use crate::common::{Server, chat, put_together, with, with_template, with_words};

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

/// A tool whose calls can be foretold.
fn city(name: &str, city: &str) -> Json {
    let properties = json!({ "city": { "enum": [city] } });
    let parameters = json!({
        "type": "object", "properties": properties, "required": ["city"], "additionalProperties": false,
    });
    json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
}

/// Words by which the forms of calls are known: Llama 3, Qwen and ChatML, Mistral of two times, and none (Gemma).
const FORMS: [&str; 5] = ["<|python_tag|>", "<tool_call>", "[TOOL_CALLS]", "[TOOL_CALLS][ARGS]", ""];

/// Who has to call does, in the form of each template.
#[tokio::test]
async fn a_call_comes_as_a_call() {
    for words in FORMS.map(|words| if words.is_empty() { "hi" } else { words }) {
        let server = Server::start(Options { running: 2, ..Options::default() }, with_words(words)).await;
        // The smallest context holds what a template without words is told.
        let tools = json!([city("weather", "Paris")]);
        let choice = json!({ "type": "function", "function": { "name": "weather" } });
        let more = json!({
            "tools": tools, "tool_choice": choice, "parallel_tool_calls": false, "seed": 1, "max_tokens": 200,
        });
        let mut body = chat("?", more);
        let asked = server.post(PATH, &body).await;
        if words == "hi" && asked.status == 400 {
            assert!(asked.text.contains("context_length_exceeded"), "{}", asked.text);
            continue;
        }
        let whole = asked.json();
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{words}: {whole}");
        assert!(choice["message"]["content"].is_null());
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["id"].as_str().unwrap().len(), 9, "what Mistral's templates take");
        assert_eq!(calls[0]["function"], json!({ "name": "weather", "arguments": r#"{"city":"Paris"}"# }));
        body["stream"] = true.into();
        let chunks = server.post(PATH, &body).await.chunks();
        let calls: Vec<&Json> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls"))
            .map(|calls| &calls[0]["function"])
            .collect();
        let right =
            [json!({ "name": "weather", "arguments": "" }), json!({ "arguments": r#"{"city":"Paris"}"# })];
        assert_eq!(calls, right.iter().collect::<Vec<_>>(), "{words}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
}

/// With tools, a format is for answers that do not call.
#[tokio::test]
async fn an_answer_with_tools_calls_or_has_its_format() {
    let format = schema(json!({ "colour": { "enum": ["red"] } }));
    for words in ["<|python_tag|>", "<tool_call>", "[TOOL_CALLS]"] {
        let server = Server::start(Options::default(), with_words(words)).await;
        let mut seen = [0, 0];
        for seed in 0..12 {
            let more = json!({
                "tools": [city("weather", "Paris")], "response_format": format, "seed": seed, "max_tokens": 220,
                "parallel_tool_calls": false,
            });
            let answer = server.json(PATH, &chat("?", more)).await;
            let message = &answer["choices"][0]["message"];
            if answer["choices"][0]["finish_reason"] == "length" {
                // The model likes white space.
                continue;
            }
            match message["tool_calls"].get(0) {
                Some(call) => {
                    assert_eq!(call["function"]["arguments"], r#"{"city":"Paris"}"#);
                    seen[0] += 1;
                }
                None => {
                    let content: Json = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
                    assert_eq!(content, json!({ "colour": "red" }));
                    seen[1] += 1;
                }
            }
        }
        assert!(seen[0] + seen[1] > 0, "{words}: no answer came to its end");
    }
    let server = Server::start(Options::default(), with_words("<|python_tag|>")).await;
    let refers = schema(json!({ "a": { "$ref": "#/properties/b" }, "b": {} }));
    let body = chat("a", json!({ "tools": [weather()], "response_format": refers }));
    server.refused(PATH, &body, "response_format").await;
}

/// Where nothing may be called, what looks like a call is what the model says.
#[tokio::test]
async fn with_no_call_wanted_all_is_content() {
    let server = Server::start(Options::default(), with_words("<|python_tag|>")).await;
    let format = schema(json!({ "name": { "enum": ["Alice"] }, "age": { "enum": [30] } }));
    let body = chat(
        "Who?",
        json!({
            "tools": [weather()], "tool_choice": "none", "response_format": format, "seed": 1, "max_tokens": 220,
        }),
    );
    let answer = server.json(PATH, &body).await;
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("Alice"), "{answer}");
}

/// A prompt that begins the reasoning: what the answer has to be is not looked for in it.
#[tokio::test]
async fn reasoning_is_apart_and_no_place_for_a_format() {
    let template = crate::common::TEMPLATE.replace("[assistant:", "[assistant:<think>") + "{# </think> #}";
    let server = Server::start(Options::default(), with_template(&template)).await;
    let whole = server.json(PATH, &chat("a", json!({ "seed": 1, "max_tokens": 6 }))).await;
    let message = &whole["choices"][0]["message"];
    assert!(!message["reasoning"].as_str().unwrap().is_empty(), "{whole}");
    assert_eq!(message["content"], "");
    let streamed =
        server.post(PATH, &chat("a", json!({ "seed": 1, "max_tokens": 6, "stream": true }))).await.chunks();
    let deltas = streamed.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning"].as_str());
    assert_eq!(deltas.collect::<String>(), message["reasoning"].as_str().unwrap());
    let response =
        server.json("/v1/responses", &json!({ "input": "a", "seed": 1, "max_output_tokens": 6 })).await;
    assert_eq!(response["output"][0]["type"], "reasoning", "{response}");

    let format = schema(json!({ "colour": { "enum": ["red"] } }));
    let more = json!({ "seed": 1, "response_format": format, "max_tokens": 220 });
    let answer = server.json(PATH, &chat("a", more)).await;
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.starts_with('{') && content.contains("colour"), "{answer}");
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
        (json!({ "tools": [weather()], "tool_choice": "any" }), "tool_choice"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (
            json!({ "tools": [weather()], "tool_choice": { "type": "function", "function": { "name": "f" } } }),
            "tool_choice",
        ),
        (json!({ "functions": [{}] }), "functions"),
    ] {
        server.refused(PATH, &chat("a", more), param).await;
    }
}
