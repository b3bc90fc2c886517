//! The official Python client, in the tier full (DEVELOPERS.md, "Test tiers"), where it is installed (`pip install openai`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use unisonic_server::Options;

use crate::clients::Listening;
use crate::common::with_words;

/// Says past libtest's capture that the test was left out.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: the openai client for Python ({why})");
}

fn python() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    if own.exists() { own } else { "python3".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_is_content() {
    if std::env::var("UNISONIC_TIER").as_deref() != Ok("full") {
        return skipped("runs in tier full");
    }
    let installed = Command::new(python()).args(["-c", "import openai"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return skipped("not installed: pip install openai");
    }
    let options = Options { api_key: Some("secret".into()), ..Options::default() };
    let of = Listening::with(options, with_words("<|python_tag|>")).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/openai_client.py");
    let url = format!("http://{}/v1", of.address);
    let run = move || Command::new(python()).arg(script).arg(url).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(of.server.app.in_use(), 0);
}
