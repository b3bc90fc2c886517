//! `unisonic chat` as scripts use it; what only a terminal has (editing, history) is rustyline's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::program::{assert_says, last_line_json, succeeded, unisonic, with_stdin};
use common::{Tier, quant, smollm2, with_metadata};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use unisonic_core::format::Value;

/// Each turn in brackets with its role.
const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}\
    {% if add_generation_prompt %}[assistant:{% endif %}";

/// A folder with a tiny model that has the template.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = with_metadata(&quant("Q4_0"), &[("tokenizer.chat_template", Value::String(TEMPLATE.into()))]);
    std::fs::write(folder.path().join("tiny.gguf"), model).unwrap();
    folder
}

fn chat(folder: &Path, args: &[&str], input: &str) -> Output {
    let model = folder.join("tiny.gguf");
    with_stdin(&[&["chat", "--max-tokens", "12"], args, &[model.to_str().unwrap()]].concat(), input)
}

/// What is said on stdout, and on stderr.
fn said(output: Output) -> (String, String) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    (succeeded(output), stderr)
}

/// What `unisonic batch` says to a conversation.
fn of_batch(folder: &Path, messages: &Json) -> String {
    let (input, output) = (folder.join("in"), folder.join("out"));
    let _ = std::fs::remove_file(&output);
    std::fs::write(&input, json!({ "messages": messages, "max_tokens": 12 }).to_string()).unwrap();
    let model = folder.join("tiny.gguf");
    let [input, output_path, model] = [&input, &output, &model].map(|path| path.to_str().unwrap());
    succeeded(unisonic(&["batch", input, "-o", output_path, "--model", model]));
    last_line_json(&std::fs::read_to_string(output).unwrap())["text"].as_str().unwrap().to_owned()
}

fn saved(path: &Path) -> Json {
    serde_json::from_str::<Json>(&std::fs::read_to_string(path).unwrap()).unwrap()["messages"].take()
}

#[test]
fn a_conversation_is_what_its_messages_give_and_is_read_once() {
    let folder = folder();
    let file = folder.path().join("chat.json");
    let input = format!("Hello\nAnd \\\nnow?\n/save {}\n", file.display());
    let (stdout, stderr) = said(chat(folder.path(), &["--system", "Be brief."], &input));
    let messages = saved(&file);
    let roles: Vec<&str> =
        messages.as_array().unwrap().iter().map(|of| of["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(messages[3]["content"], "And \nnow?");
    for last in [2, 4] {
        let before: Json = messages.as_array().unwrap()[..last].to_vec().into();
        assert_eq!(messages[last]["content"], of_batch(folder.path(), &before).as_str());
    }
    let answers = [2, 4].map(|last| messages[last]["content"].as_str().unwrap());
    assert!(stdout.starts_with(answers[0]) && stdout.trim_end().ends_with(answers[1].trim_end()), "{stdout}");
    // Of the second prompt the first and the bracket after its answer are known, if its text has the ids it was made of.
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].contains(" 0 known"), "{stderr}");
    assert!(!lines[1].contains(" 0 known"), "{stderr}");
}

#[test]
fn commands_change_what_is_said_next() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let input = format!(
        "/system Be brief.\nHello\n/save {}\nmore\n/undo\n/save {}\n/retry\n/save {}\n/set temperature 0.9\n/retry\n/save {}\n\
         /clear\n/save {}\n/load {}\n/stats\n/set\n/system\n/help\n/quit\nnever\n",
        path("a"),
        path("b"),
        path("c"),
        path("d"),
        path("e"),
        path("a"),
    );
    let (_, stderr) = said(chat(folder.path(), &[], &input));
    let of = |name: &str| saved(&folder.path().join(name));
    assert_eq!(of("b"), of("a"), "undone");
    assert_eq!(of("c"), of("a"), "the most probable tokens are the same again");
    assert_eq!((of("d")[1].clone(), of("d")[2] == of("a")[2]), (of("a")[1].clone(), false), "another seed");
    assert_eq!(of("e"), json!([{ "role": "system", "content": "Be brief." }]));
    assert_says(
        &stderr,
        &["temperature 0.9", "seed 1", "max_tokens 12", "answers: 4", "Be brief.", "/undo "],
    );
}

/// Guesses are of the conversation as it is, not as it was.
#[test]
fn a_conversation_goes_on_after_what_it_forgot() {
    let folder = folder();
    let forgets = "Hello\nAnd another.\n/clear\nhi\nMore of it.\n/undo\n/retry\n/undo\nhello\n";
    let (stdout, _) = said(chat(folder.path(), &[], forgets));
    let (without_guesses, _) = said(chat(folder.path(), &["--speculate", "off"], forgets));
    assert_eq!(stdout, without_guesses);
}

#[test]
fn what_is_wrong_ends_a_script() {
    let folder = folder();
    for (input, says) in [
        ("/whatever\nHello\n", "there is no command /whatever"),
        ("/set temprature 1\n", "temprature"),
        ("/set temperature -1\n", "temperature is -1"),
        ("/undo\n", "no message to forget"),
        ("/load /nowhere\n", "/load /nowhere"),
    ] {
        let output = chat(folder.path(), &[], input);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{input}: {stderr}");
        assert_says(&stderr, &["error: ", says]);
    }
    let (stdout, _) = said(chat(folder.path(), &[], ""));
    assert_eq!(stdout, "");
    let output = chat(folder.path(), &["--context", "20"], &"long ".repeat(10));
    assert_says(&String::from_utf8(output.stderr).unwrap(), &["the conversation has", "context holds 20"]);
}

/// Ctrl-C ends the answer, which is kept, and not the chat.
#[test]
fn an_interrupt_stops_an_answer() {
    let Some(model) = smollm2(Tier::Ci, "Ctrl-C in a chat") else { return };
    let endless = ["--logit-bias", "0=-inf", "--logit-bias", "2=-inf"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_unisonic"))
        .arg("chat")
        .args(endless)
        .arg(model)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut stdout = child.stdout.take().unwrap();
    stdin.write_all(b"Count for ever\n").unwrap();
    // It has begun to answer.
    stdout.read_exact(&mut [0; 8]).unwrap();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert_says(&line, &["stop: cancelled"]);
    stdin.write_all(b"/set max_tokens 4\nAnd now?\n/stats\n").unwrap();
    drop(stdin);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_says(&rest, &["answers: 2", "messages: 4"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
