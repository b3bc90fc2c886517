//! Many clients at once, clients that leave, and the end of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::StreamExt;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tower::ServiceExt;
use unisonic_server::{App, Load, Options, ServeError, Stopped, listen};

use crate::common::{Fault, Server, chat, loader, prompt};

/// Never ends by itself before the context is full.
fn endless(text: &str) -> Json {
    prompt(text, json!({ "max_tokens": null, "logit_bias": { "2": -100 }, "max_completion_tokens": 200 }))
}

/// A server with a port.
pub struct Listening {
    pub server: Server,
    pub address: String,
    signals: mpsc::Sender<()>,
    stopped: JoinHandle<Result<Stopped, ServeError>>,
    said: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Listening {
    pub async fn new(options: Options, fault: &Fault) -> Self {
        Self::with(options, loader(fault.clone())).await
    }

    pub async fn with(mut options: Options, load: Load) -> Self {
        let said = Arc::new(std::sync::Mutex::new(Vec::new()));
        let lines = Arc::clone(&said);
        options.say = Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()));
        let app = App::start(options, load).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (signals, received) = mpsc::channel(2);
        let stopped = tokio::spawn(listen(Arc::clone(&app), listener, received));
        let server = Server { router: app.router(), app };
        server.ready().await;
        Self { server, address, signals, stopped, said }
    }

    /// Sends a request and leaves the connection open.
    async fn send(&self, path: &str, body: &Json) -> TcpStream {
        let body = body.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        stream
    }
}

/// Reads until this has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(end) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection ended: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

/// Report 5.14 (llama.cpp #24496).
#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let fault = Fault::default();
    let of = Listening::new(Options::default(), &fault).await;
    fault.slow(10);
    // Before the first token, of a prompt of several steps.
    let long = endless(&"a".repeat(200));
    let stream = of.send("/v1/completions", &long).await;
    of.server.until("unisonic_requests_running", 1.0).await;
    drop(stream);
    of.server.until("unisonic_requests_cancelled_total", 1.0).await;
    // In the middle of a stream.
    let mut body = endless("a");
    body["stream"] = true.into();
    let mut stream = of.send("/v1/completions", &body).await;
    read_until(&mut stream, "\"text\"").await;
    drop(stream);
    of.server.until("unisonic_requests_cancelled_total", 2.0).await;
    // Waiting for a whole answer.
    let generated = of.server.metric("unisonic_generated_tokens_total").await;
    let stream = of.send("/v1/completions", &endless("a")).await;
    while of.server.metric("unisonic_generated_tokens_total").await < generated + 3.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stream);
    of.server.until("unisonic_requests_cancelled_total", 3.0).await;
    of.server.until("unisonic_requests_running", 0.0).await;
    assert_eq!(of.server.app.in_use(), 0);
    assert_eq!(of.server.metric("unisonic_kv_pages_held").await, 0.0);
}

#[tokio::test]
async fn the_queue_has_an_end() {
    let fault = Fault::default();
    let of = Listening::new(Options { running: 1, queued: 1, ..Options::default() }, &fault).await;
    fault.slow(10);
    let mut first = of.send("/v1/completions", &endless("a")).await;
    of.server.until("unisonic_requests_running", 1.0).await;
    let second = of.send("/v1/completions", &endless("b")).await;
    while of.server.app.in_use() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = of.server.post("/v1/completions", &endless("c")).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["error"]["code"]), (429, &"queue_full".into()));
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    drop(second);
    while of.server.app.in_use() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fault.slow(0);
    assert_eq!(of.server.post("/v1/completions", &endless("c")).await.status, 200);
    assert!(read_until(&mut first, "\"usage\"").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_stop_finishes_what_is_at_work() {
    let fault = Fault::default();
    let of = Listening::new(Options::default(), &fault).await;
    fault.slow(5);
    let right = of.server.json("/v1/completions", &prompt("ab", json!({ "seed": 1 }))).await;
    of.server.until("unisonic_requests_running", 0.0).await;
    let mut stream = of.send("/v1/completions", &prompt("ab", json!({ "seed": 1 }))).await;
    of.server.until("unisonic_requests_running", 1.0).await;
    of.signals.send(()).await.unwrap();
    let answer = read_until(&mut stream, "\"usage\"").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Json = serde_json::from_str(body).unwrap();
    assert_eq!(body["choices"], right["choices"]);
    let stopped = of.stopped.await.unwrap().unwrap();
    assert_eq!(stopped, Stopped { at_work: 1, cancelled: 0 });
    let said = of.said.lock().unwrap().clone();
    assert!(said.iter().any(|line| line.starts_with("ready: tiny on cpu")), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("stopping: 1 answers")), "{said:?}");
    assert!(said.last().unwrap().contains("1 answers finished, 0 cancelled"), "{said:?}");
    assert!(TcpStream::connect(&of.address).await.is_err());
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let fault = Fault::default();
    let of = Listening::new(Options { grace: Duration::from_secs(1000), ..Options::default() }, &fault).await;
    fault.slow(50);
    let _stream = of.send("/v1/completions", &endless("ab")).await;
    of.server.until("unisonic_requests_running", 1.0).await;
    of.signals.send(()).await.unwrap();
    of.signals.send(()).await.unwrap();
    let stopped = of.stopped.await.unwrap().unwrap();
    assert_eq!(stopped, Stopped { at_work: 1, cancelled: 1 });
}

#[tokio::test]
async fn a_client_that_sends_no_head_is_cut_off() {
    let options = Options { client_timeout: Duration::from_millis(50), ..Options::default() };
    let of = Listening::new(options, &Fault::default()).await;
    let mut stream = TcpStream::connect(&of.address).await.unwrap();
    stream.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: ").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    let mut stream = TcpStream::connect(&of.address).await.unwrap();
    let head = format!("GET /health HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1_000_000));
    // The server may close before all is written.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

/// What does not fit into the buffers between waits for the client, and not for ever.
#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let options =
        Options { client_timeout: Duration::from_millis(300), max_connections: 1, ..Options::default() };
    let of = Listening::new(options, &Fault::default()).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(of.address.parse().unwrap()).await.unwrap();
    // An answer of some 12 MB.
    let body = json!({ "content": "a".repeat(3_000_000) }).to_string();
    let head =
        format!("POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    slow.write_all((head + &body).as_bytes()).await.unwrap();
    slow.readable().await.unwrap();
    // There may be one connection: this one is taken when the other has been cut off.
    let mut next = TcpStream::connect(&of.address).await.unwrap();
    next.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(read_until(&mut next, "\"status\"").await.starts_with("HTTP/1.1 200"));
    let mut answer = Vec::new();
    let end = slow.read_to_end(&mut answer).await;
    let head = String::from_utf8_lossy(&answer[..200]).to_lowercase();
    let len = head.split_once("content-length: ").unwrap().1.split_once("\r\n").unwrap().0;
    assert!(answer.len() < len.parse().unwrap(), "the answer came whole: {end:?}");
}

/// What a client asked and got, or that it left.
async fn client(server: &Server, body: &Json, leaves_after: Option<usize>) -> Option<String> {
    let request = Request::post("/v1/chat/completions").body(Body::from(body.to_string())).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();
    let mut pieces = 0;
    while let Some(piece) = stream.next().await {
        if leaves_after == Some(pieces) {
            return None;
        }
        pieces += 1;
        text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
    }
    Some(content(&text))
}

/// The text of the stream's first choice.
fn content(stream: &str) -> String {
    let data = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
    let chunks = data.map(|event| serde_json::from_str::<Json>(&format!("{{{event}")).unwrap());
    let deltas =
        chunks.map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned());
    deltas.collect()
}

/// Report 5.16 (mlx-lm #965).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_get_what_each_gets_alone() {
    const CLIENTS: usize = 16;
    const ROUNDS: usize = 3;
    let options = Options { running: 6, queued: CLIENTS, ..Options::default() };
    let server = Arc::new(Server::with(options).await);
    let body = |client: usize, round: usize| {
        let content = format!("{client} says {}", "word ".repeat(client * 2 % 7));
        let more = json!({
            "stream": true, "seed": client * 100 + round, "max_tokens": 8 + client * 2,
            "temperature": f64::from(client as u32 % 3) * 0.6, "stop": if client.is_multiple_of(4) { json!("e") } else { json!(null) },
        });
        chat(&content, more)
    };
    let answers = Arc::new(Mutex::new(Vec::new()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (server, answers) = (Arc::clone(&server), Arc::clone(&answers));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let leaves_after =
                        (index * 7 + round * 3).is_multiple_of(4).then_some((index + round) % 6);
                    let answer = client(&server, &body(index, round), leaves_after).await;
                    answers.lock().await.extend(answer.map(|answer| (index, round, answer)));
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let answers = answers.lock().await;
    assert!(answers.len() > CLIENTS * ROUNDS / 2);
    for (index, round, answer) in answers.iter() {
        let alone = client(&server, &body(*index, *round), None).await;
        assert_eq!(alone.as_ref(), Some(answer), "client {index}, round {round}");
    }
    while server.app.in_use() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
