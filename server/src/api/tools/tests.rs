//! What becomes of calls on their way back to a model.

use super::*;

fn called(calls: &[&str]) -> Message {
    let call = |id: &&str| Data::object([("id", Data::text(*id)), ("function", Data::text(*id))]);
    let mut message = Message::new("assistant", "Well.");
    message.more.push(("tool_calls".into(), Data::List(calls.iter().map(call).collect())));
    message
}

fn result(id: &str) -> Message {
    let mut message = Message::new("tool", id);
    message.more.push(("tool_call_id".into(), Data::text(id)));
    message
}

/// Llama 3's template refuses more than one call a message.
#[test]
fn calls_are_given_back_one_by_one() {
    let user = || Message::new("user", "Sun?");
    let messages = vec![user(), called(&["a", "b"]), result("b"), result("a"), user(), called(&["c"])];
    let split = one_by_one(messages);
    let text = |message: &Message| {
        let calls = message.more.iter().find(|(name, _)| name == "tool_calls");
        let calls = calls.map(|(_, calls)| match calls {
            Data::List(calls) => calls.iter().filter_map(|call| call.get("id")?.as_text()).collect(),
            _ => String::new(),
        });
        format!("{}:{}:{}", message.role, message.content, calls.unwrap_or_default())
    };
    let found: Vec<String> = split.iter().map(text).collect();
    let right = [
        "user:Sun?:",
        "assistant:Well.:a",
        "tool:a:",
        "assistant::b",
        "tool:b:",
        "user:Sun?:",
        "assistant:Well.:c",
    ];
    assert_eq!(found, right);
}

#[test]
fn forms_are_known_by_words_of_templates() {
    for (words, calls) in [
        ("{{ '<tool_call>' }}", Calls::Tagged),
        ("{{ '[TOOL_CALLS]' }}", Calls::Marked),
        ("{{ '<|python_tag|>' }}", Calls::Bare),
        ("{{ '<start_of_turn>' }}", Calls::Told),
    ] {
        assert_eq!(Calls::of_template(words), calls, "{words}");
    }
}
