//! `/v1/chat/completions`.

use serde_json::{Value as Json, json};
use unisonic_server::{Load, Options};

use crate::common::{Fault, Server, chat, loader, prompt, put_together};

const PATH: &str = "/v1/chat/completions";

fn timeless(mut answer: Json) -> Json {
    let members = answer.as_object_mut().unwrap();
    members.remove("id");
    members.remove("created");
    for choice in answer["choices"].as_array_mut().unwrap() {
        choice["message"].as_object_mut().unwrap().remove("refusal");
    }
    answer
}

#[tokio::test]
async fn the_shape_is_openais() {
    let server = Server::new().await;
    let answer = server.json(PATH, &chat("Hello", json!({ "temperature": 0 }))).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].is_string());
    assert!(choice["logprobs"].is_null());
}

#[tokio::test]
async fn a_stream_is_the_answer_in_pieces() {
    let server = Server::new().await;
    for more in [
        json!({ "temperature": 0, "seed": 1 }),
        json!({ "seed": 7, "n": 3, "logprobs": true, "top_logprobs": 2 }),
        json!({ "seed": 9, "stop": "e", "logprobs": true }),
        json!({ "seed": 3, "max_completion_tokens": 100, "presence_penalty": 0.5, "top_k": 50 }),
    ] {
        let mut body = chat("Hello", more);
        let whole = server.json(PATH, &body).await;
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        let chunks = server.post(PATH, &body).await.chunks();
        assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        let streamed = put_together(&chunks, "chat.completion");
        assert_eq!(timeless(streamed), timeless(whole), "{body}");
    }
}

#[tokio::test]
async fn the_prompt_is_the_templates() {
    let server = Server::new().await;
    let body = json!({
        "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "H" }, { "type": "text", "text": "i" }] },
            { "role": "assistant", "content": null },
            { "role": "user", "name": "x", "content": "Go on" },
        ],
        "seed": 5,
        "max_tokens": 20,
    });
    let chat = server.json(PATH, &body).await;
    let rendered = "[system:Be brief.][user:Hi][assistant:][user:Go on][assistant:";
    let raw = server.json("/v1/completions", &prompt(rendered, json!({ "seed": 5, "max_tokens": 20 }))).await;
    assert_eq!(chat["choices"][0]["message"]["content"], raw["choices"][0]["text"]);
    assert_eq!(chat["usage"], raw["usage"]);
}

/// What is a control token in a raw prompt is text in a message.
#[tokio::test]
async fn control_tokens_in_messages_are_text() {
    let server = Server::new().await;
    let tokens = async |content| {
        let body = chat(content, json!({ "max_tokens": 1 }));
        server.json(PATH, &body).await["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(tokens("</s>").await, tokens("<xx>").await);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Server::new().await;
    let message = |message: Json| json!({ "messages": [{ "role": "user", "content": "a" }, message] });
    for (more, param) in [
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": "hi" }), "messages"),
        (json!({ "messages": [["user", "hi"]] }), "messages[0]"),
        (message(json!({ "content": "a" })), "messages[1].role"),
        (message(json!({ "role": "assistant", "tool_calls": [["c"]] })), "messages[1].tool_calls[0]"),
        (json!({ "model": 5 }), "model"),
        (message(json!({ "role": "user", "content": 5 })), "messages[1].content"),
        (message(json!({ "role": 5, "content": "" })), "messages[1].role"),
        (
            message(json!({ "role": "user", "content": [{ "type": "image_url" }] })),
            "messages[1].content[0].type",
        ),
        (message(json!({ "role": "user", "content": [{ "type": "text" }] })), "messages[1].content[0].text"),
        (message(json!({ "role": "<s>", "content": "" })), "messages"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "logprobs": 1 }), "logprobs"),
        (json!({ "max_completion_tokens": -5 }), "max_completion_tokens"),
        (json!({ "response_format": { "type": "json_schema" } }), "response_format.json_schema.schema"),
    ] {
        server.refused(PATH, &chat("a", more), param).await;
    }
}

#[tokio::test]
async fn a_model_without_a_template_says_so() {
    let mut load = loader(Fault::default());
    let load: Load = Box::new(move || {
        let mut loaded = load()?;
        loaded.template = Err("the file has no chat template".into());
        Ok(loaded)
    });
    let server = Server::start(Options::default(), load).await;
    let message = server.refused(PATH, &chat("a", json!({})), "messages").await;
    assert!(message.contains("no chat template"), "{message}");
}

#[tokio::test]
async fn defaults_are_the_servers() {
    let mut options = Options { max_tokens: Some(5), ..Options::default() };
    options.sampler.temperature = 0.0;
    let server = Server::with(options).await;
    let body = |more: Json| {
        crate::common::with(json!({ "messages": [{ "role": "user", "content": "Hello" }] }), more)
    };
    let first = server.json(PATH, &body(json!({}))).await;
    assert_eq!(first["usage"]["completion_tokens"], 5);
    assert_eq!(server.json(PATH, &body(json!({}))).await["choices"], first["choices"], "greedy");
    let other = server.json(PATH, &body(json!({ "max_tokens": 7, "temperature": 2, "seed": 3 }))).await;
    assert_ne!(other["choices"], first["choices"]);
}
