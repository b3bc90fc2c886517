//! Conversations with calls by the templates of real models, which `make vocabularies` fetches into `.fixtures/vocab/templates/`.

use std::path::Path;
use std::sync::Arc;

use unisonic_core::format::GgufFile;
use unisonic_engine::chat::ChatTemplate;
use unisonic_engine::tokenizer::Tokenizer;

use super::*;

/// Templates, how their models write calls, and what two calls look like.
const FAMILIES: [(&str, Calls, &str); 10] = [
    ("Qwen-Qwen2.5-7B-Instruct", Calls::Tagged, TAGGED),
    ("Qwen-Qwen3-0.6B", Calls::Tagged, TAGGED),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", Calls::Tagged, TAGGED),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Calls::Tagged, TAGGED),
    ("meta-llama-Llama-3.1-8B-Instruct", Calls::Bare, BARE),
    ("meta-llama-Llama-3.2-3B-Instruct", Calls::Bare, BARE),
    ("meta-llama-Llama-3.3-70B-Instruct", Calls::Bare, BARE),
    ("mistralai-Mistral-Nemo-Instruct-2407", Calls::Marked, LIST),
    ("Mistral-Small-3.2-24B-Instruct-2506", Calls::Marked, ARGUMENTS),
    ("google-gemma-2-2b-it", Calls::Told, TAGGED),
];
const TAGGED: &str = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \
                      \"time\", \"arguments\": {}}\n</tool_call>";
const BARE: &str =
    r#"{"name": "weather", "parameters": {"city": "Paris"}}; {"name": "time", "parameters": {}}"#;
const LIST: &str =
    r#"[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "time", "arguments": {}}]"#;
const ARGUMENTS: &str = r#"[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]time[ARGS]{}"#;

fn json(text: &str) -> Data {
    serde_json::from_str(text).expect("JSON")
}

fn tools() -> Tools {
    let tool = |name: &str| {
        json(&format!(
            r#"{{"type": "function", "function": {{"name": "{name}", "description": "Says it", "parameters":
                {{"type": "object", "properties": {{"city": {{"type": "string", "description": "Where"}}}}, "required": []}}}}}}"#
        ))
    };
    Tools { tools: vec![tool("weather"), tool("time")], choice: Choice::Auto, parallel: true }
}

/// A question, two calls, their results, and another question.
fn messages() -> Vec<Message> {
    let mut calls = Message::new("assistant", "");
    let call = |id: &str, name: &str, arguments: &str| {
        json(&format!(
            r#"{{"id": "{id}", "type": "function", "function": {{"name": "{name}", "arguments": {arguments}}}}}"#
        ))
    };
    let list = vec![call("callnumb1", "weather", r#"{"city": "Paris"}"#), call("callnumb2", "time", "{}")];
    calls.more.push(("tool_calls".into(), Data::List(list)));
    let result = |id: &str, name: &str, content: &str| {
        let mut message = Message::new("tool", content);
        message.more.push(("tool_call_id".into(), Data::text(id)));
        message.more.push(("name".into(), Data::text(name)));
        message
    };
    vec![
        Message::new("user", "Sun?"),
        calls,
        result("callnumb1", "weather", "22 degrees"),
        result("callnumb2", "time", "noon"),
        Message::new("assistant", "It shines."),
        Message::new("user", "And tomorrow?"),
    ]
}

#[test]
fn models_of_each_family_are_told_of_tools_calls_and_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join(".fixtures/vocab/templates");
    if !folder.is_dir() {
        println!("skipped: calls by the templates of ten models (`make vocabularies` fetches them)");
        return;
    }
    let file = GgufFile::open(&root.join("tests/data/quants/llama-Q4_0.gguf")).expect("the committed model");
    let tokenizer = Arc::new(Tokenizer::from_metadata(file.metadata()).expect("its tokenizer"));
    for (name, calls, written) in FAMILIES {
        let source = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).expect(name);
        assert_eq!(Calls::of_template(&source), calls, "{name}");
        let template = ChatTemplate::new(source.as_str()).expect(name);
        let mut chat = ChatOptions { date: Some("2026-11-30".into()), ..ChatOptions::default() };
        let messages = for_template(calls, messages(), &tools(), &mut chat);
        let rendered = template.render(&tokenizer, &messages, &chat);
        let text = rendered.unwrap_or_else(|error| panic!("{name}: {error}")).text().to_owned();
        for said in ["weather", "Says it", "Paris", "22 degrees", "noon", "It shines.", "And tomorrow?"] {
            assert!(text.contains(said), "{name}: {said} is not in\n{text}");
        }
        // What such a model then writes.
        let mark = ["[TOOL_CALLS]", "<tool_call>"].into_iter().find(|mark| written.starts_with(mark));
        let pieces = written.split(mark.unwrap_or("\0")).filter(|piece| !piece.is_empty());
        let read: Vec<Call> = match calls {
            Calls::Tagged | Calls::Told => pieces
                .flat_map(|piece| {
                    Call::read(calls, piece.trim().trim_end_matches("</tool_call>")).expect(name)
                })
                .collect(),
            Calls::Marked | Calls::Bare => {
                Call::read(calls, written.strip_prefix("[TOOL_CALLS]").unwrap_or(written)).expect(name)
            }
        };
        let found: Vec<(&str, &str)> =
            read.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(found, [("weather", r#"{"city":"Paris"}"#), ("time", "{}")], "{name}");
    }
}
