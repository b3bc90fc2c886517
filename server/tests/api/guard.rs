//! Who may call, and how large and how slow a request may be.

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::stream;
use serde_json::json;
use unisonic_server::Options;

use crate::common::{Answer, Server, chat, prompt};

async fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = prompt("a", json!({ "max_tokens": 1 })).to_string();
    server.send(request.body(Body::from(body)).unwrap()).await
}

/// Report 5.23 (llama.cpp PR #25655, gpt4all #3681).
#[tokio::test]
async fn web_pages_of_others_may_not_call() {
    let server = Server::with(Options {
        allow_hosts: vec!["models.example".into()],
        allow_origins: vec!["https://chat.example".into()],
        ..Options::default()
    })
    .await;
    let status = async |method: &str, headers: &[(&str, &str)]| {
        ask(&server, method, "/v1/completions", headers).await.status.as_u16()
    };
    let evil = ("origin", "https://evil.example");
    for refused in [
        vec![evil],
        vec![evil, ("host", "127.0.0.1:8080")],
        vec![evil, ("content-type", "text/plain")],
        vec![("origin", "null")],
        vec![("origin", "http://localhost.evil.example")],
        vec![("host", "evil.example:8080")],
        vec![("host", "evil.example"), ("origin", "http://evil.example")],
        vec![("host", "")],
        vec![("host", "127.0.0.1.evil.example")],
    ] {
        assert_eq!(status("POST", &refused).await, 403, "{refused:?}");
        assert_eq!(status("OPTIONS", &refused).await, 403, "{refused:?}");
    }
    for taken in [
        vec![],
        vec![("host", "127.0.0.1:8080")],
        vec![("host", "[::1]:8080")],
        vec![("host", "LOCALHOST:1")],
        vec![("host", "192.168.0.7:8080")],
        vec![("host", "models.example")],
        vec![("host", "192.168.0.7:8080"), ("origin", "http://192.168.0.7:8080")],
        vec![("host", "127.0.0.1:8080"), ("origin", "http://localhost:3000")],
        vec![("host", "127.0.0.1:8080"), ("origin", "https://chat.example")],
    ] {
        assert_eq!(status("POST", &taken).await, 200, "{taken:?}");
    }
    let preflight = ask(
        &server,
        "OPTIONS",
        "/v1/completions",
        &[("origin", "https://chat.example"), ("access-control-request-headers", "x-stainless-os")],
    )
    .await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.headers["access-control-allow-origin"], "https://chat.example");
    assert_eq!(preflight.headers["access-control-allow-headers"], "x-stainless-os");
    let page = ask(&server, "GET", "/health", &[("host", "localhost"), evil]).await;
    assert_eq!(page.status, 403);
    assert!(!page.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn the_key_opens_what_needs_it() {
    let server = Server::with(Options { api_key: Some("secret".into()), ..Options::default() }).await;
    let status =
        async |path: &str, key: &[(&str, &str)]| ask(&server, "POST", path, key).await.status.as_u16();
    for wrong in
        ["", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret", "Bearer Secret"]
    {
        assert_eq!(status("/v1/completions", &[("authorization", wrong)]).await, 401, "{wrong:?}");
    }
    assert_eq!(status("/v1/completions", &[]).await, 401);
    assert_eq!(status("/no/such/route", &[]).await, 401);
    assert_eq!(status("/v1/completions", &[("authorization", "Bearer secret")]).await, 200);
    assert_eq!(status("/v1/completions", &[("authorization", "bearer secret")]).await, 200);
    assert_eq!(server.get("/health").await.status, 200);
    let refused = ask(&server, "GET", "/metrics", &[]).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (401, &"invalid_api_key".into()));
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    // The key is not among what a page could send unasked, so the name of the host does not matter.
    let named = [("authorization", "Bearer secret"), ("host", "models.example")];
    assert_eq!(status("/v1/completions", &named).await, 200);
}

#[tokio::test]
async fn bodies_have_a_size_and_a_time() {
    let options = Options {
        max_body_bytes: 500,
        client_timeout: std::time::Duration::from_millis(50),
        ..Options::default()
    };
    let server = Server::with(options).await;
    assert_eq!(server.post("/v1/chat/completions", &chat(&"a".repeat(500), json!({}))).await.status, 413);
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = server.send(Request::post("/v1/completions").body(never).unwrap()).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (408, &"body_timeout".into()));
}
