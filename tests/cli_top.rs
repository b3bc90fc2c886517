//! `unisonic top` against a `unisonic serve`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::program::{assert_says, failed, last_line_json, model, succeeded, unisonic};

/// A server with a key, which ends with the test.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unisonic"));
        command.args(["serve", "--port", "0", "--api-key", "secret", "--parallel", "4", &model()]);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
        assert!(lines.any(|line| line.starts_with("ready: ")), "the server is not ready");
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address: address.unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_a_server_does_is_text_or_json() {
    let server = Server::start();
    let top = |args: &[&str]| unisonic(&[&["top", "--once", "--interval", "0.1"], args].concat());
    let url = format!("http://{}/v1/", server.address);
    let state = last_line_json(&succeeded(top(&[&url, "--api-key", "secret", "--json"])));
    assert_eq!((&state["device"], &state["profile"]), (&"cpu".into(), &"u1".into()));
    assert_eq!((&state["running"], &state["slots"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(state["generated_tokens_per_second"], 0.0);
    assert!(state["memory_bytes"].as_u64().unwrap() > 1_000_000);
    let text = succeeded(top(&[&server.address, "--api-key", "secret"]));
    assert_says(&text, &["llama-Q4_0 on cpu, u1 arithmetic", "generated tokens/s", "KV pages held"]);
    assert_says(&failed(top(&[&url]), 1), &["/metrics", "the server wants a key; give it with --api-key"]);
    assert_says(&failed(top(&["http://127.0.0.1:1"]), 1), &["cannot read http://127.0.0.1:1/metrics"]);
    assert_says(&failed(unisonic(&["top", "--interval", "0"]), 2), &["from 0.1 to 86400"]);
}
