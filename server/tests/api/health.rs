//! Whether the server is ready, and what becomes of it when the device fails.

use std::sync::mpsc;

use unisonic_server::Options;

use crate::common::{Fault, Server, chat, loader, prompt};

#[tokio::test]
async fn the_truth_is_told_while_the_model_loads() {
    let (go_on, wait) = mpsc::channel::<()>();
    let mut load = loader(Fault::default());
    let server = Server::loading(
        Options::default(),
        Box::new(move || {
            wait.recv().ok();
            load()
        }),
    );
    let health = server.get("/health").await;
    assert_eq!((health.status.as_u16(), &health.json()["status"]), (503, &"loading".into()));
    for path in ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"] {
        let answer = server.post(path, &prompt("a", serde_json::json!({}))).await;
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.json()["error"]["code"], "loading");
        assert!(answer.headers.contains_key("retry-after"));
    }
    assert_eq!(server.get("/v1/models").await.status, 503);
    drop(go_on);
    server.ready().await;
    assert_eq!(server.get("/v1/models").await.json()["data"][0]["id"], "tiny");
    server.app.stop();
    assert_eq!(server.get("/health").await.json()["status"], "stopping");
    assert_eq!(server.post("/v1/completions", &prompt("a", serde_json::json!({}))).await.status, 503);
}

/// Reports 3.14 (llama.cpp #13281) and 3.11 (llama.cpp #13085).
#[tokio::test]
async fn a_device_that_fails_shows_and_is_loaded_anew() {
    let fault = Fault::default();
    let (loading, loads) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let mut load = loader(fault.clone());
    let load = Box::new(move || {
        loading.send(()).unwrap();
        wait.recv().unwrap();
        load()
    });
    let server = Server::loading(Options::default(), load);
    go_on.send(()).unwrap();
    server.ready().await;
    let right = server.json("/v1/chat/completions", &chat("hi", serde_json::json!({ "seed": 1 }))).await;

    fault.at_step(3);
    let failed = server.post("/v1/chat/completions", &chat("hi", serde_json::json!({ "seed": 1 }))).await;
    assert_eq!(failed.status, 500, "{}", failed.text);
    assert!(failed.text.contains("a test says so"), "{}", failed.text);
    let health = server.get("/health").await;
    assert_eq!((health.status.as_u16(), &health.json()["status"]), (503, &"failed".into()));
    let refused = server.post("/v1/chat/completions", &chat("hi", serde_json::json!({}))).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (503, &"device_failed".into()));

    go_on.send(()).unwrap();
    server.ready().await;
    assert_eq!(loads.try_iter().count(), 2);
    let again = server.json("/v1/chat/completions", &chat("hi", serde_json::json!({ "seed": 1 }))).await;
    assert_eq!(again["choices"], right["choices"]);
}

#[tokio::test]
async fn metrics_count() {
    let server = Server::new().await;
    let usage = server.json("/v1/completions", &prompt("ab", serde_json::json!({}))).await["usage"].clone();
    assert_eq!(server.metric("unisonic_prompt_tokens_total").await, usage["prompt_tokens"].as_f64().unwrap());
    assert_eq!(
        server.metric("unisonic_generated_tokens_total").await,
        usage["completion_tokens"].as_f64().unwrap()
    );
    assert_eq!(server.metric("unisonic_request_seconds_count").await, 1.0);
    assert_eq!(
        server.metric(r#"unisonic_http_answers_total{route="/v1/completions",status="200"}"#).await,
        1.0
    );
    assert!(server.metric("unisonic_kv_pages_free").await > 0.0);
    assert!(server.get("/metrics").await.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn metrics_tell_of_each_request_that_runs() {
    let fault = Fault::default();
    let server = Server::start(Options::default(), loader(fault.clone())).await;
    let model = r#"unisonic_model{model="tiny",device="cpu",profile="u1",context_tokens="256"}"#;
    assert_eq!(server.metric(model).await, 1.0);
    assert!(server.metric("process_resident_memory_bytes").await > 1e6);
    assert!(server.metric("process_cpu_seconds_total").await > 0.0);
    fault.slow(20);
    let body = chat("hi", serde_json::json!({ "logit_bias": { "2": -100 }, "n": 2, "max_tokens": 100 }));
    let running = async {
        // Polls, so that the request goes on.
        let pause = || tokio::time::sleep(std::time::Duration::from_millis(5));
        while !server.get("/metrics").await.text.contains(r#"unisonic_slot_prompt_tokens{slot="1"}"#) {
            pause().await;
        }
        let prompt_tokens = server.metric(r#"unisonic_slot_prompt_tokens{slot="1"}"#).await;
        while server.metric(r#"unisonic_slot_generated_tokens{slot="0"}"#).await < 2.0 {
            pause().await;
        }
        let known = server.metric(r#"unisonic_slot_known_tokens{slot="0"}"#).await;
        assert!((prompt_tokens..prompt_tokens + 100.0).contains(&known), "{known}");
        assert!(server.metric(r#"unisonic_slot_seconds{slot="0"}"#).await > 0.0);
        server.metric(r#"unisonic_slot_drafted_tokens{slot="0"}"#).await;
        fault.slow(0);
        prompt_tokens
    };
    let (answer, prompt_tokens) = tokio::join!(server.json("/v1/chat/completions", &body), running);
    assert_eq!(answer["usage"]["prompt_tokens"].as_f64(), Some(prompt_tokens));
    assert!(!server.get("/metrics").await.text.contains("slot="));
}

#[tokio::test]
async fn what_is_not_there_is_said_in_json() {
    let server = Server::new().await;
    for (path, status) in [("/nothing", 404), ("/v1/models/other", 404), ("/v1/completions", 405)] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    let embeddings = server.post("/v1/embeddings", &serde_json::json!({ "input": "a" })).await;
    assert_eq!(
        (embeddings.status.as_u16(), &embeddings.json()["error"]["code"]),
        (501, &"not_implemented".into())
    );
    let page = server.get("/").await;
    assert!(
        page.text.starts_with("<!doctype html>") && !page.text.contains("://"),
        "nothing is loaded from elsewhere"
    );
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(server.get("/v1/models/tiny").await.json()["object"], "model");
}
