//! Faults that people reported of other servers. Those whose test is elsewhere:
//!
//! | report | test |
//! |---|---|
//! | 5.01 vLLM #3574 | `engine/src/stop_strings.rs`: `nothing_of_a_stop_string_gets_out` |
//! | 5.04 ferrox #124, llama.cpp #9195 | `worker/text/tests.rs`: `a_character_of_four_tokens_comes_whole` |
//! | 5.09 llama.cpp PR #13800 | `api/reply.rs`: `a_call_is_named_once_and_its_arguments_follow` |
//! | 5.14 llama.cpp #24496 | `clients`: `a_client_that_leaves_frees_its_place` |
//! | 5.16 mlx-lm #965 | `clients`: `sixteen_clients_get_what_each_gets_alone`; for longer, the program's `tests/soak/` |
//! | 5.21 llama.cpp #19051 | `structured`: `what_no_grammar_can_hold_is_refused` |
//! | 5.23 llama.cpp PR #25655 | `guard`: `web_pages_of_others_may_not_call` |
//! | 7.11 llama.cpp #20153 | the program's `tests/cli_chat.rs`: `a_conversation_is_what_its_messages_give_and_is_read_once` |
//! | 7.13 llama.cpp #27687 | the program's `tests/soak/`, its last lines |
//! | 3.11, 3.14 llama.cpp #13085, #13281 | `health`: `a_device_that_fails_shows_and_is_loaded_anew` |

use serde_json::{Value as Json, json};

use crate::common::{CONTEXT, Server, chat, prompt};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// 5.01: what a stop string begins with is not in the stream, and the text before it is.
#[tokio::test]
async fn stop_strings_are_not_streamed() {
    let server = Server::new().await;
    let body = |more| prompt("Once", crate::common::with(json!({ "seed": 11, "max_tokens": 60 }), more));
    let text = |answer: &Json| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    let whole = text(&server.json(COMPLETIONS, &body(json!({}))).await);
    let chars: Vec<char> = whole.chars().collect();
    let stop: String = chars[10..16].iter().collect();
    let right = &whole[..whole.find(&stop).unwrap()];
    let stopped = server.json(COMPLETIONS, &body(json!({ "stop": [stop], "logprobs": 1 }))).await;
    assert_eq!(text(&stopped), right);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    let chunks = server.post(COMPLETIONS, &body(json!({ "stop": [stop], "stream": true }))).await.chunks();
    assert_eq!(chunks.iter().map(text).collect::<String>(), right);
}

/// 5.06 (ollama #4448).
#[tokio::test]
async fn usage_comes_last_if_asked_for() {
    let server = Server::new().await;
    for (path, body) in [(CHAT, chat("hi", json!({}))), (COMPLETIONS, prompt("hi", json!({})))] {
        let streamed = |options: Json| {
            let mut body = body.clone();
            body["stream"] = true.into();
            body["stream_options"] = options;
            body
        };
        let chunks = server.post(path, &streamed(json!({ "include_usage": true }))).await.chunks();
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 0);
        assert!(
            others
                .iter()
                .all(|chunk| chunk["usage"].is_null() && !chunk["choices"].as_array().unwrap().is_empty())
        );
        for without in [json!(null), json!({}), json!({ "include_usage": false })] {
            let chunks = server.post(path, &streamed(without)).await.chunks();
            assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
        }
        let mut whole = body.clone();
        whole["stream_options"] = json!({ "include_usage": true });
        server.refused(path, &whole, "stream_options").await;
    }
}

/// 5.07 (vLLM #4795, llama.cpp #11346) and 6.17 (vLLM PR #11073).
#[tokio::test]
async fn logprobs_have_openais_shape() {
    let server = Server::new().await;
    let of = json!({ "logprobs": true, "temperature": 0, "max_tokens": 8, "top_k": 1, "seed": 1 });
    let answer = server.json(CHAT, &chat("hi", of)).await;
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(!content.is_empty());
    for token in content {
        assert_eq!(token["top_logprobs"], json!([]));
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
        // Every token of this model is a byte, and most of them are no character.
        assert_eq!(token["bytes"].as_array().unwrap().len(), 1);
    }
    let bytes = content.iter().map(|token| token["bytes"][0].as_u64().unwrap() as u8);
    let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
    assert_eq!(answer["choices"][0]["message"]["content"], text);

    let of = json!({ "logprobs": true, "top_logprobs": 5, "top_k": 1, "max_tokens": 8 });
    let answer = server.json(CHAT, &chat("hi", of)).await;
    for token in answer["choices"][0]["logprobs"]["content"].as_array().unwrap() {
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 5);
        assert_eq!(token["top_logprobs"][0]["bytes"], token["bytes"], "the most probable one was chosen");
    }

    let answer =
        server.json(COMPLETIONS, &prompt("hi", json!({ "logprobs": 1, "max_tokens": 8, "seed": 1 }))).await;
    let of = &answer["choices"][0]["logprobs"];
    let len = of["tokens"].as_array().unwrap().len();
    assert!(len > 0);
    for list in ["token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(of[list].as_array().unwrap().len(), len, "{list}");
    }
}

/// 5.11 (llama.cpp #13471).
#[tokio::test]
async fn messages_may_lack_content() {
    let server = Server::new().await;
    let messages = json!([
        { "role": "developer", "content": [{ "type": "text", "text": "x" }] },
        { "role": "user" },
        { "role": "assistant", "content": null, "refusal": null, "audio": null, "tool_calls": [
            { "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "{\"city\": \"Paris\"}" } },
        ] },
        { "role": "tool", "tool_call_id": "call_1", "content": "22" },
    ]);
    server.json(CHAT, &json!({ "messages": messages, "max_tokens": 2 })).await;
}

/// 5.12 (ollama #17889, colibri PR #506).
#[tokio::test]
async fn a_prompt_that_does_not_fit_is_refused_with_both_numbers() {
    let server = Server::new().await;
    for (len, fits) in [(CONTEXT - 1, true), (CONTEXT, false), (CONTEXT + 1, false), (5 * CONTEXT, false)] {
        let body = json!({ "prompt": vec![70; len as usize], "max_tokens": 4 });
        if fits {
            server.json(COMPLETIONS, &body).await;
        } else {
            let message = server.refused(COMPLETIONS, &body, "prompt").await;
            let numbers = [format!("{len} tokens"), format!("holds {CONTEXT} ")];
            assert!(numbers.iter().all(|number| message.contains(number)), "{message}");
        }
    }
    let answer = server.post(CHAT, &chat(&"a".repeat(2000), json!({ "stream": true }))).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["error"]["code"]),
        (400, &"context_length_exceeded".into())
    );
    assert_eq!(answer.json()["error"]["param"], "messages");
}

/// 5.20 (llama-cpp-python #1906).
#[tokio::test]
async fn n_choices_are_n() {
    let server = Server::new().await;
    let body = |stream: bool| chat("hi", json!({ "n": 3, "temperature": 0.7, "seed": 5, "stream": stream }));
    let answer = server.json(CHAT, &body(false)).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_ne!(choices[0]["message"], choices[1]["message"]);
    let chunks = server.post(CHAT, &body(true)).await.chunks();
    for index in 0..3 {
        let of_choice = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let of_choice: Vec<&Json> = of_choice.filter(|choice| choice["index"] == index).collect();
        assert_eq!(of_choice.iter().filter(|choice| !choice["finish_reason"].is_null()).count(), 1);
    }
}

/// 6.11 (ollama #5044) and 6.14 (llama.cpp #19699).
#[tokio::test]
async fn a_seed_keeps_the_temperature_and_a_bias_is_a_bias() {
    let server = Server::new().await;
    let text =
        async |more| server.json(COMPLETIONS, &prompt("Once", more)).await["choices"][0]["text"].clone();
    assert_ne!(
        text(json!({ "seed": 1, "temperature": 1.0 })).await,
        text(json!({ "seed": 2, "temperature": 1.0 })).await
    );
    let id = |byte: u8| (u32::from(byte) + 3).to_string();
    let always = text(json!({ "logit_bias": { id(b'x'): 100 }, "max_tokens": 5 })).await;
    assert_eq!(always, "xxxxx");
    let both = json!({ "logit_bias": { id(b'x'): -100, id(b'y'): 100 }, "max_tokens": 5, "temperature": 0 });
    assert_eq!(text(both).await, "yyyyy");
}
