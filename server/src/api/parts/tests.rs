//! Answers as models of several families write them, in pieces of every size.

use super::*;

const WEATHER: &str = r#"{"city":"Paris","days":[1,2]}"#;

/// Reasoning, content and calls, put together.
fn parts(rules: &Rules, text: &str, piece_chars: usize) -> (String, String, Vec<Call>) {
    let mut parts = Parts::new(rules.clone());
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(piece_chars).map(|piece| piece.iter().collect::<String>());
    let mut all: Vec<Part> = pieces.flat_map(|piece| parts.push(&piece)).collect();
    all.extend(parts.finish());
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    for part in all {
        match part {
            Part::Reasoning(text) => reasoning.push_str(&text),
            Part::Content(text) => content.push_str(&text),
            Part::Call(call) => calls.push(call),
        }
    }
    (reasoning, content, calls)
}

fn check(rules: &Rules, text: &str, right: (&str, &str, &[&str])) {
    for piece_chars in [1, 2, 3, 7, 1000] {
        let (reasoning, content, calls) = parts(rules, text, piece_chars);
        let calls: Vec<String> = calls.into_iter().map(|call| call.name + &call.arguments).collect();
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        assert_eq!(
            (reasoning.as_str(), content.as_str(), calls.as_slice()),
            right,
            "{text} by {piece_chars}"
        );
    }
}

fn with(calls: Calls) -> Rules {
    let names = ["a", "b"].map(str::to_owned).into();
    Rules { calls: Some(calls), names, parallel: true, ..Rules::default() }
}

#[test]
fn calls_of_qwen_and_chatml() {
    let call =
        |name: &str| format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {WEATHER}}}\n</tool_call>");
    let (one, two) = (format!("a{WEATHER}"), format!("b{WEATHER}"));
    let text = format!("Let me see.\n{}\n{}", call("a"), call("b"));
    check(&with(Calls::Tagged), &text, ("", "Let me see.", &[&one, &two]));
    check(&Rules { parallel: false, ..with(Calls::Tagged) }, &text, ("", "Let me see.", &[&one]));
    check(&with(Calls::Told), &call("a"), ("", "", &[&one]));
    // The mark may be a part of an argument.
    let text = r#"<tool_call>{"name": "a", "arguments": {"x": "1</tool_call>2"}}</tool_call>"#;
    check(&with(Calls::Tagged), text, ("", "", &[r#"a{"x":"1</tool_call>2"}"#]));
    let unclosed = call("a").replace("</tool_call>", "");
    check(&with(Calls::Tagged), &unclosed, ("", "", &[&one]));
    check(&Rules::default(), &call("a"), ("", &call("a"), &[]));
    check(&with(Calls::Tagged), "1 <tool 2 < 3 ", ("", "1 <tool 2 < 3 ", &[]));
    check(&with(Calls::Tagged), "<tool_call>{no}</tool_call>", ("", "<tool_call>{no}</tool_call>", &[]));
}

#[test]
fn calls_of_mistral() {
    let (one, two) = (format!("a{WEATHER}"), "b{}");
    let old = format!(r#"[TOOL_CALLS] [{{"name": "a", "arguments": {WEATHER}}}, {{"name": "b"}}]"#);
    check(&with(Calls::Marked), &old, ("", "", &[&one, two]));
    let new = format!("Well. [TOOL_CALLS]a[ARGS]{WEATHER}[TOOL_CALLS]b[CALL_ID]123456789[ARGS]{{}}");
    check(&with(Calls::Marked), &new, ("", "Well.", &[&one, two]));
}

#[test]
fn calls_of_llama_3() {
    let one = format!("a{WEATHER}");
    let call = format!(r#"{{"name": "a", "parameters": {WEATHER}}}"#);
    check(&with(Calls::Bare), &call, ("", "", &[&one]));
    check(&with(Calls::Bare), &format!("<|python_tag|>{call}; {call}"), ("", "", &[&one, &one]));
    check(&with(Calls::Bare), "{ is a brace", ("", "{ is a brace", &[]));
    check(&with(Calls::Bare), "Fine: {}", ("", "Fine: {}", &[]));
    // An object with a name is not yet a call.
    let person = r#"{"name": "Alice", "age": 30}"#;
    check(&with(Calls::Bare), person, ("", person, &[]));
}

#[test]
fn reasoning_is_apart() {
    let rules = Rules { reasons: true, ..Rules::default() };
    check(&rules, "<think>\nHm <b>.\n</think>\n\nYes.", ("Hm <b>.", "Yes.", &[]));
    check(&rules, "Yes. <think>", ("", "Yes. <think>", &[]));
    check(&rules, "<thin", ("", "<thin", &[]));
    check(&rules, "<think>Hm", ("Hm", "", &[]));
    let begun = Rules { reasons: true, begins_reasoning: true, ..with(Calls::Tagged) };
    let call = r#"Hm</think><tool_call>{"name": "a"}</tool_call>"#;
    check(&begun, call, ("Hm", "", &["a{}"]));
}
