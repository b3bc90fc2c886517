//! `unisonic batch` as people use it: many lines, bad lines, and processes that are killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::program::{assert_says, failed, last_line_json, model, names, succeeded, unisonic};
use serde_json::{Value as Json, json};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(lines: &[String]) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(place.input(), lines.join("\n")).unwrap();
        place
    }

    fn input(&self) -> PathBuf {
        self.folder.path().join("in.jsonl")
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.jsonl")
    }

    fn args(&self, more: &[&str]) -> Vec<String> {
        let (input, output) = (self.input(), self.output());
        let args = ["batch", input.to_str().unwrap(), "-o", output.to_str().unwrap(), "--model", &model()]
            .map(str::to_owned);
        args.into_iter().chain(more.iter().map(|&arg| arg.to_owned())).collect()
    }

    fn run(&self, more: &[&str]) -> std::process::Output {
        let args = self.args(more);
        unisonic(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn answers(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.output()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn by_line(&self) -> BTreeMap<u64, Json> {
        let answers = self.answers();
        let count = answers.len();
        let by_line: BTreeMap<u64, Json> =
            answers.into_iter().map(|answer| (answer["line"].as_u64().unwrap(), answer)).collect();
        assert_eq!(by_line.len(), count, "a line is answered twice");
        by_line
    }
}

/// Lines of unlike lengths, some drawn, some without an id.
fn some_lines(count: usize) -> Vec<String> {
    let line = |n: usize| {
        let mut line = json!({ "prompt": "abc ".repeat(n * 7 % 23), "max_tokens": 1 + n * 5 % 17 });
        if n.is_multiple_of(3) {
            line["temperature"] = 0.9.into();
            line["seed"] = n.into();
        }
        if !n.is_multiple_of(4) {
            line["id"] = format!("q{n}").into();
        }
        line.to_string()
    };
    (0..count).map(line).collect()
}

fn run_alone(line: &str) -> Json {
    let line: Json = serde_json::from_str(line).unwrap();
    let max_tokens = line["max_tokens"].to_string();
    let model = model();
    let mut args = vec!["run", "--json", "--max-tokens", &max_tokens];
    let seed = line["seed"].to_string();
    if line.get("seed").is_some() {
        args.extend(["--temperature", "0.9", "--seed", &seed]);
    }
    args.extend([&model, "--", line["prompt"].as_str().unwrap()]);
    last_line_json(&succeeded(unisonic(&args)))
}

#[test]
fn answers_are_those_of_run() {
    let lines = some_lines(12);
    let place = Place::new(&lines);
    let output = place.run(&[]);
    assert_says(&String::from_utf8_lossy(&output.stderr), &["answered: 12 lines", "errors: 0"]);
    assert_eq!(succeeded(output), "");
    let answers = place.by_line();
    assert_eq!(answers.len(), 12);
    for (line, n) in lines.iter().zip(1..) {
        let (answer, alone) = (&answers[&n], run_alone(line));
        for name in ["token_ids", "text", "stop", "prompt_tokens"] {
            assert_eq!(answer[name], alone[name], "{line}: {name}");
        }
        let line: Json = serde_json::from_str(line).unwrap();
        assert_eq!(answer.get("id"), line.get("id"));
    }
    assert_eq!(names(place.folder.path()), ["in.jsonl", "out.jsonl"]);
    let stderr = failed(place.run(&[]), 1);
    assert_says(&stderr, &["out.jsonl", "is there already"]);
}

#[test]
fn nothing_but_the_order_depends_on_how_it_runs() {
    let place = Place::new(&some_lines(40));
    succeeded(place.run(&["--ordered"]));
    let right = place.answers();
    assert!(right.iter().map(|answer| answer["line"].as_u64().unwrap()).eq(1..=40));
    for options in [&["--parallel", "1"][..], &["--parallel", "7", "--chunk", "5"], &["--no-speculation"]] {
        std::fs::remove_file(place.output()).unwrap();
        succeeded(place.run(options));
        assert!(place.by_line().into_values().eq(right.iter().cloned()), "{options:?}");
    }
}

#[test]
fn a_bad_line_is_an_error_in_the_output_and_no_more() {
    let lines: Vec<(&str, &str)> = vec![
        (r#"{"prompt": "Hi", "max_tokens": 2}"#, ""),
        ("", ""),
        ("{\"prompt\"", "not JSON"),
        ("[1]", "no JSON object"),
        (r#"{"id": 7}"#, "none of prompt, messages or ids"),
        (r#"{"prompt": "a", "ids": [1]}"#, "prompt and ids"),
        (r#"{"prompt": 5}"#, "`prompt`"),
        (r#"{"ids": []}"#, "empty"),
        (r#"{"ids": [1, 100000]}"#, "token id 100000"),
        (r#"{"prompt": "a", "temprature": 1}"#, "temprature"),
        (r#"{"prompt": "a", "temperature": -1}"#, "temperature"),
        (r#"{"prompt": "a", "max_tokens": -1}"#, "`max_tokens`"),
        (r#"{"messages": [{"role": "user", "content": "a"}]}"#, "chat template"),
        (r#"{"messages": "a"}"#, "`messages`"),
        (r#"{"prompt": "Hi", "max_tokens": 2, "id": {"a": null}}"#, ""),
    ];
    let place = Place::new(&lines.iter().map(|(line, _)| (*line).to_owned()).collect::<Vec<_>>());
    let output = place.run(&["--ordered", "--context", "64"]);
    assert_says(&String::from_utf8_lossy(&output.stderr), &["answered: 2 lines", "errors: 12"]);
    succeeded(output);
    let answers = place.by_line();
    for ((line, said), number) in lines.iter().zip(1..) {
        match (line.is_empty(), said.is_empty()) {
            (true, _) => assert!(!answers.contains_key(&number)),
            (_, true) => assert_eq!(answers[&number]["stop"], "length"),
            _ => assert_says(answers[&number]["error"].as_str().unwrap(), &[said]),
        }
    }
    assert_eq!(answers[&5]["id"], 7);
    assert_eq!(answers[&15]["id"], json!({ "a": null }));
}

#[test]
fn a_prompt_that_is_too_long_is_its_lines_error() {
    let lines =
        [json!({ "prompt": "abc ".repeat(100) }), json!({ "prompt": "a" })].map(|line| line.to_string());
    let place = Place::new(&lines);
    succeeded(place.run(&["--context", "64", "--max-tokens", "3"]));
    let answers = place.by_line();
    assert_says(answers[&1]["error"].as_str().unwrap(), &["context overflow"]);
    assert_eq!(answers[&2]["token_ids"].as_array().unwrap().len(), 3);
}

/// Kills the program after a time, over and over until it comes to its end.
fn run_with_kills(place: &Place, options: &[&str], mut pause: impl FnMut() -> Duration) -> u32 {
    let mut kills = 0;
    loop {
        let mut child = Command::new(env!("CARGO_BIN_EXE_unisonic"))
            .args(place.args(options))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(pause());
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success());
                return kills;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
    }
}

#[test]
fn a_batch_that_is_killed_at_any_moment_loses_and_repeats_no_line() {
    let place = Place::new(&some_lines(60));
    succeeded(place.run(&["--ordered"]));
    let right = place.answers();
    let mut random = 7_u64;
    for options in [&["--parallel", "2", "--threads", "1"][..], &["--parallel", "5", "--ordered"]] {
        std::fs::remove_file(place.output()).unwrap();
        let (mut kills, mut longest) = (0, 40);
        kills += run_with_kills(&place, options, || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Longer and longer, so that it comes to an end on a slow machine too.
            longest += 40;
            Duration::from_millis((random >> 33) % longest)
        });
        assert!(kills > 0, "nothing was killed");
        assert!(place.by_line().into_values().eq(right.iter().cloned()), "{options:?} after {kills} kills");
        assert_eq!(names(place.folder.path()), ["in.jsonl", "out.jsonl"]);
    }
}

#[test]
fn another_input_is_refused_and_a_torn_line_is_made_anew() {
    let lines: Vec<String> =
        (0..30).map(|n| json!({ "ids": [1, n], "max_tokens": 150 }).to_string()).collect();
    let place = Place::new(&lines);
    succeeded(place.run(&["--ordered"]));
    let right = place.answers();
    std::fs::remove_file(place.output()).unwrap();

    let args = place.args(&["--parallel", "1", "--threads", "1"]);
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_unisonic")).args(&args).stderr(Stdio::null()).spawn().unwrap();
    while !std::fs::metadata(place.output()).is_ok_and(|output| output.len() > 0) {
        assert!(child.try_wait().unwrap().is_none(), "it ends without a line");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(place.folder.path()), ["in.jsonl", "out.jsonl", "out.jsonl.unfinished"]);

    let options = ["--parallel", "1", "--threads", "1"];
    std::fs::write(place.input(), [&lines.join("\n"), "\n{}"].concat()).unwrap();
    assert_says(&failed(place.run(&options), 1), &["out.jsonl", "the input has changed", "start again"]);
    std::fs::write(place.input(), lines.join("\n")).unwrap();
    assert_says(&failed(place.run(&["--max-tokens", "7"]), 1), &["options have changed", "max_tokens"]);

    let torn = [&std::fs::read(place.output()).unwrap()[..], b"{\"line\":30,\"to"].concat();
    std::fs::write(place.output(), torn).unwrap();
    succeeded(place.run(&options));
    assert!(place.by_line().into_values().eq(right));
}
