//! `/v1/responses`.

use serde_json::{Value as Json, json};
use unisonic_server::Options;

use crate::common::{Server, chat, with, with_words};

const PATH: &str = "/v1/responses";

fn ask(more: Json) -> Json {
    with(json!({ "input": "Hello", "seed": 1, "max_output_tokens": 20 }), more)
}

/// The events of a stream, each with its name in its data.
fn events(stream: &str) -> Vec<Json> {
    let events = stream.split_terminator("\n\n").filter_map(|event| event.strip_prefix("event: "));
    let events = events.map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Json = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    });
    let events: Vec<Json> = events.collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

#[tokio::test]
async fn a_response_is_the_chats_answer() {
    let server = Server::new().await;
    let chat =
        server.json("/v1/chat/completions", &chat("Hello", json!({ "seed": 1, "max_tokens": 20 }))).await;
    let content = chat["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let message = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] }]);
    for body in [ask(json!({})), ask(json!({ "input": message }))] {
        let response = server.json(PATH, &body).await;
        assert_eq!(
            (&response["object"], response["output"].as_array().unwrap().len()),
            (&"response".into(), 1)
        );
        assert_eq!(response["output"][0]["content"][0]["text"], content);
        assert_eq!(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"]);
    }
    let streamed = server.post(PATH, &ask(json!({ "stream": true }))).await.text;
    let events = events(&streamed);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), content);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"][0]["text"], content);
    assert_eq!(
        last["status"],
        if chat["choices"][0]["finish_reason"] == "stop" { "completed" } else { "incomplete" }
    );
}

#[tokio::test]
async fn a_response_follows_a_schema() {
    let server = Server::new().await;
    let schema = json!({ "enum": ["Paris", "Rome"] });
    let format = json!({ "type": "json_schema", "name": "city", "strict": true, "schema": schema });
    let answer = server.json(PATH, &ask(json!({ "text": { "format": format } }))).await;
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(["\"Paris\"", "\"Rome\""].contains(&text), "{answer}");
}

#[tokio::test]
async fn calls_and_results_are_items() {
    let server = Server::start(Options::default(), with_words("<|python_tag|>")).await;
    let call = json!({ "type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}" });
    let result = json!({ "type": "function_call_output", "call_id": "c", "output": "22" });
    let tools = json!([{ "type": "function", "name": "weather", "parameters": { "type": "object" } }]);
    let input = json!([{ "role": "user", "content": "Sun?" }, { "type": "reasoning" }, call, result]);
    let more = json!({ "input": input, "tools": tools, "instructions": "Be brief", "metadata": { "a": "b" }, "top_p": 0.5 });
    let response = server.json(PATH, &ask(more.clone())).await;
    for name in ["tools", "instructions", "metadata", "top_p"] {
        assert_eq!(response[name], more[name], "what was asked is said again");
    }
    assert_eq!(response["max_output_tokens"], 20);
}

#[tokio::test]
async fn an_answer_that_is_cut_is_incomplete() {
    let server = Server::new().await;
    let response = server.json(PATH, &ask(json!({ "max_output_tokens": 2 }))).await;
    assert_eq!(
        (&response["status"], &response["output"][0]["status"]),
        (&"incomplete".into(), &"incomplete".into())
    );
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Server::new().await;
    for (more, param) in [
        (json!({ "input": 5 }), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": [{ "content": "a" }] }), "input[0].role"),
        (json!({ "input": [{ "type": "image" }] }), "input[0].type"),
        (json!({ "previous_response_id": "resp_1" }), "previous_response_id"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "background": true }), "background"),
        (json!({ "truncation": "auto" }), "truncation"),
        (json!({ "input": [["user", "a"]] }), "input[0]"),
        (json!({ "metadata": [] }), "metadata"),
        (json!({ "text": { "format": { "type": "regex" } } }), "text.format.type"),
        (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format.schema"),
        (
            json!({ "text": { "format": { "type": "json_schema", "schema": { "$ref": "#/no" } } } }),
            "text.format",
        ),
        (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
    ] {
        server.refused(PATH, &ask(more), param).await;
    }
}
