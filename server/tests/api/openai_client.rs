//! The official clients, in any tier once `make clients` has fetched them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use unisonic_server::Options;

use crate::clients::Listening;
use crate::common::with_words;

/// A file of `make clients`; none, and a line past libtest's capture that says so, before that.
fn fetched(path: &str) -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.fixtures/clients").join(path);
    if !fetched.exists() {
        let _ = writeln!(
            std::io::stderr().lock(),
            "skipped: OpenAI's clients ({path} comes with `make clients`)"
        );
    }
    fetched.exists().then_some(fetched)
}

/// Runs a client against a server over the tiny model; it has to be content, and to leave nothing behind.
async fn is_content(mut client: Command, script: &str) {
    let options = Options { api_key: Some("secret".into()), ..Options::default() };
    let of = Listening::with(options, with_words("<|python_tag|>")).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api").join(script);
    client.arg(script).arg(format!("http://{}/v1", of.address));
    let output = tokio::task::spawn_blocking(move || client.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    while of.server.app.in_use() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_is_content() {
    let Some(python) = fetched("python/bin/python") else { return };
    is_content(Command::new(python), "openai_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_client_is_content() {
    let Some(modules) = fetched("node/node_modules") else { return };
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules);
    is_content(node, "openai_client.cjs").await;
}
