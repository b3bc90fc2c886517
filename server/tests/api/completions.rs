//! `/v1/completions`.

use serde_json::{Value as Json, json};

use crate::common::{CONTEXT, Server, prompt, put_together};

const PATH: &str = "/v1/completions";

/// Without what differs from answer to answer.
fn timeless(mut answer: Json) -> Json {
    let answer_members = answer.as_object_mut().unwrap();
    answer_members.remove("id");
    answer_members.remove("created");
    answer
}

#[tokio::test]
async fn the_shape_is_openais() {
    let server = Server::new().await;
    let answer = server.json(PATH, &prompt("Once", json!({ "temperature": 0 }))).await;
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!((&answer["object"], &answer["model"]), (&"text_completion".into(), &"tiny".into()));
    assert_eq!(answer["system_fingerprint"], "unisonic-u1");
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["logprobs"]), (&0.into(), &Json::Null));
    assert!(["stop", "length"].contains(&choice["finish_reason"].as_str().unwrap()));
    let usage = &answer["usage"];
    let sum = usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
}

#[tokio::test]
async fn a_stream_is_the_answer_in_pieces() {
    let server = Server::new().await;
    for more in [
        json!({ "temperature": 0, "seed": 1, "logprobs": 3 }),
        json!({ "seed": 7, "n": 3, "logprobs": 0 }),
        json!({ "seed": 9, "prompt": ["a", "b"], "n": 2, "stop": ["e", "zz"] }),
        json!({ "seed": 3, "max_tokens": 200, "repeat_penalty": 1.3, "top_p": 0.9, "logit_bias": {"70": -100} }),
    ] {
        let mut body = prompt("Once upon", more);
        let whole = server.json(PATH, &body).await;
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        let chunks = server.post(PATH, &body).await.chunks();
        let streamed = put_together(&chunks, "text_completion");
        assert_eq!(timeless(streamed), timeless(whole), "{body}");
    }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_answer_and_says_it() {
    let server = Server::new().await;
    let drawn = server.json(PATH, &prompt("Once", json!({}))).await;
    let again = server.json(PATH, &prompt("Once", json!({ "seed": drawn["seed"] }))).await;
    assert_eq!(drawn["choices"], again["choices"]);
    let text =
        async |seed| server.json(PATH, &prompt("Once", json!({ "seed": seed }))).await["choices"].clone();
    assert_ne!(text(1).await, text(2).await);
    let many = server.json(PATH, &prompt("Once", json!({ "seed": 1, "n": 2 }))).await;
    for (choice, alone) in many["choices"].as_array().unwrap().iter().zip([text(1).await, text(2).await]) {
        assert_eq!(choice["text"], alone[0]["text"], "choice i is what seed + i gives alone");
    }
}

#[tokio::test]
async fn prompts_are_texts_or_ids() {
    let server = Server::new().await;
    let text = async |prompt: Json| {
        let body = json!({ "prompt": prompt, "seed": 4, "max_tokens": 9 });
        server.json(PATH, &body).await["choices"].clone()
    };
    let ids = server.json("/tokenize", &json!({ "content": "Once", "add_special": true })).await;
    let one = text(json!("Once")).await;
    assert_eq!(text(ids["tokens"].clone()).await, one);
    let two = text(json!(["Once", "Twice"])).await;
    assert_eq!(two[0]["text"], one[0]["text"]);
    assert_eq!((&two[1]["index"], two.as_array().unwrap().len()), (&1.into(), 2));
    assert_eq!(
        server.json(PATH, &json!({ "prompt": "a", "logit_bias": { "2": -100 } })).await["usage"]["completion_tokens"],
        16
    );
}

#[tokio::test]
async fn no_tokens_are_no_text() {
    let server = Server::new().await;
    let answer = server.json(PATH, &prompt("Once", json!({ "max_tokens": 0 }))).await;
    assert_eq!(answer["choices"][0]["text"], "");
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["completion_tokens"]),
        (&"length".into(), &0.into())
    );
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Server::new().await;
    for (more, param) in [
        (json!({ "prompt": 5 }), "prompt"),
        (json!({ "prompt": [] }), "prompt"),
        (json!({ "prompt": [1, 300] }), "prompt"),
        (json!({ "prompt": ["a", [300]] }), "prompt[1]"),
        (json!({ "temperature": -1 }), "temperature"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "top_p": 1.5 }), "top_p"),
        (json!({ "min_p": -0.5 }), "min_p"),
        (json!({ "logit_bias": { "259": 1 } }), "logit_bias"),
        (json!({ "logprobs": 21 }), "logprobs"),
        (json!({ "n": 0 }), "n"),
        (json!({ "n": 1000 }), "n"),
        (json!({ "n": 4_000_000_000_u32 }), "n"),
        (json!({ "prompt": vec!["a"; 1000] }), "prompt"),
        (json!({ "prompt": vec!["a"; 50], "n": 50 }), "prompt"),
        (json!({ "echo": true }), "echo"),
        (json!({ "suffix": "x" }), "suffix"),
        (json!({ "best_of": 2 }), "best_of"),
        (json!({ "stream_options": {} }), "stream_options"),
        (json!({ "response_format": { "type": "regex" } }), "response_format.type"),
        (json!({ "frequency_penalty": 1e9 }), "frequency_penalty"),
    ] {
        server.refused(PATH, &prompt("a", more), param).await;
    }
    server.refused(PATH, &json!({}), "prompt").await;
    server.json(PATH, &prompt("a", json!({ "unknown": { "x": [1] }, "model": "gpt-4", "user": 5 }))).await;
}

#[tokio::test]
async fn an_answer_ends_with_the_context() {
    let server = Server::new().await;
    let ids = vec![70; CONTEXT as usize - 1];
    let body = json!({ "prompt": ids, "max_tokens": 50, "logit_bias": { "2": -100 } });
    let answer = server.json(PATH, &body).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 1);
}
